"""Errors of the core."""

from __future__ import annotations


class NonFiniteScoresError(ValueError):
    """A score of an existing member is NaN or +inf."""


class MissingAbilityError(TypeError):
    """A distribution lacks what an objective, an estimator or a predictive needs."""
