"""What the paper reports about question answering: its figures and the orderings it claims (tables 1 and 2)."""

from __future__ import annotations

from latentalign.reproduction.claims import Claim, claim_orderings

FIGURES: dict[str, dict[str, float]] = {
    "soft": {"nll": 1.76, "accuracy": 58.93, "entropy_prior": 2.70},
    "marginal": {"nll": 1.69, "accuracy": 60.33, "entropy_prior": 2.66},
    "hard-enum": {"nll": 1.78, "accuracy": 57.60, "entropy_prior": 0.73},
    "hard-sample": {"nll": 1.82, "accuracy": 56.30, "entropy_prior": 0.58},
    "variational-enum": {"nll": 1.69, "accuracy": 58.44, "entropy_prior": 2.07},
    "variational-sample": {"nll": 1.75, "accuracy": 57.52, "entropy_prior": 2.44},
}
"""VQA 2.0, half of the validation set."""

CLAIMS: list[Claim] = [
    *claim_orderings(
        "nll",
        "a lower negative log-likelihood",
        ("marginal", "soft"),
        ("variational-enum", "soft"),
        ("variational-sample", "soft"),
        ("soft", "hard-enum"),
        ("soft", "hard-sample"),
        ("variational-enum", "variational-sample"),
    ),
    *claim_orderings(
        "accuracy",
        "a higher accuracy",
        ("marginal", "soft"),
        ("soft", "variational-enum"),
        ("soft", "hard-sample"),
        higher_is_better=True,
    ),
    *claim_orderings(
        "entropy_prior",
        "a more certain prior",
        ("marginal", "soft"),
        ("variational-enum", "marginal"),
        ("hard-sample", "variational-enum"),
        lower_scores_win=True,
    ),
]
