"""Bugs of several looks, for tests/planted_bugs.py."""

from __future__ import annotations

from support.bugs import Bug

LOOP = "core/test_looks.py::test_value_and_gradient_equal_a_loop_over_looks_and_members"

LOOK_BUGS = [
    Bug(
        "the looks of a pair exchanged",
        "core/alignments.py",
        "index // each ** (looks - 1 - k) % each",
        "index // each**k % each",
        f"{LOOP}[sums-marginal-pairs]",
    ),
    Bug(
        "weights of looks without gradient",
        "core/distributions/looks.py",
        "masked_log_softmax(scores, mask) + log_weights.unsqueeze(-1)",
        "masked_log_softmax(scores, mask) + log_weights.detach().unsqueeze(-1)",
        f"{LOOP}[sums-soft-mixture]",
    ),
    Bug(
        "parts of a head summed that does not add members",
        "core/kernels/pairs.py",
        "if flat is None or not (single or head.adds_members()):",
        "if flat is None:",
        f"{LOOP}[squares-marginal-pairs]",
    ),
    Bug(
        "the second look not shown",
        "core/distributions/looks.py",
        "return (first + second) / 2",
        "return first",
        "core/test_looks.py::test_posterior_is_bayes_rule_and_its_marginals_are_those_of_each_look[pairs]",
    ),
    Bug(
        "every piece of pairs reads the first targets",
        "core/kernels/likelihood.py",
        "target[rows], max_logits=max_logits",
        "target[: len(hidden)], max_logits=max_logits",
        "core/test_looks.py::test_pieces_of_pairs_give_what_the_whole_gives[1-marginal-pairs]",
    ),
]
