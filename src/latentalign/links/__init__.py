"""Word-alignment links: sets of links, files, scores and probabilities of words."""
