"""Errors of the core."""

from __future__ import annotations


class NonFiniteScoresError(ValueError):
    """A score of an existing member is NaN or +inf."""


class NotNormalisedError(ValueError):
    """Probabilities that do not sum to one, or parameters outside of their range."""


class TargetError(ValueError):
    """A target of an existing query that is not one of the outputs."""


class LikelihoodShapeError(ValueError):
    """A `log_likelihood` that does not give one number for every alignment."""


class MissingAbilityError(TypeError):
    """A distribution lacks what an objective, an estimator or a predictive needs."""
