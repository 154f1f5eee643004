"""Bugs of the word aligner that tests/planted_bugs.py plants, each with the test that must catch it."""

from __future__ import annotations

from support.bugs import Bug

ALIGNER_BUGS = [
    Bug(
        "aligner: digamma of the total without the prior",
        "aligner/lexicon.py",
        "torch.digamma(total + sparsity * outcomes)",
        "torch.digamma(total)",
        "aligner/test_lexicon.py::test_two_passes_equal_dictionaries",
    ),
    Bug(
        "aligner: the rarest word pairs are kept",
        "aligner/corpus.py",
        "keep = (self.counts >= least)",
        "keep = (self.counts <= least)",
        "aligner/test_corpus.py::test_a_full_table_keeps_the_most_frequent_pairs",
    ),
    Bug(
        "aligner: the other direction's posterior is not turned",
        "aligner/model.py",
        "backward.links[row, :t, :s].numpy().T.copy()",
        "backward.links[row, :t, :s].numpy().copy().reshape(s, t)",
        "aligner/test_alignment.py::test_every_row_sums_to_one_with_null",
    ),
    Bug(
        "aligner: a group is read twice as far ahead",
        "aligner/model.py",
        "list(islice(stream, GROUP))",
        "list(islice(stream, 2 * GROUP))",
        "aligner/test_aligned_text.py::test_no_more_than_a_group_is_read_ahead",
    ),
    Bug(
        "aligner: wide jumps of long sentences are not counted",
        "core/kernels/jump_posterior.py",
        "counts[-1] += (mass * after.clamp_min(0)).sum()",
        "pass",
        "core/test_jump_posterior.py::test_expected_jumps_include_the_first_and_the_last[convolution]",
    ),
    Bug(
        "aligner: the threshold is the least probable link itself",
        "aligner/training.py",
        "max(f1 / 2, LEAST_CANDIDATE)",
        "max(least, LEAST_CANDIDATE)",
        "aligner/test_alignment.py::test_a_text_aligned_with_itself_gives_the_diagonal",
    ),
    Bug(
        "n-best paths: the unseen position is not summed out",
        "core/distributions/chain_paths.py",
        "first = log_sum_over(unseen.unsqueeze(-1) + moves, 1)",
        "first = (unseen.unsqueeze(-1) + moves).amax(1)",
        "core/test_best_paths.py::test_the_probabilities_of_all_paths_sum_to_one",
    ),
    Bug(
        "phrase pairs: links that leave the phrase are allowed",
        "links/phrases.py",
        "if all(start <= t <= end for",
        "if any(start <= t <= end for",
        "links/test_phrases.py::test_they_are_all_consistent_rectangles",
    ),
]
