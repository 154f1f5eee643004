"""Word alignment: two text files in, links with probabilities out."""
