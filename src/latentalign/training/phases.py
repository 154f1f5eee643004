"""The phases of a training run, a warm start and the training itself: what each used, and whether enough was left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from latentalign.training.recipe import TaskRecipe, TrainingConfig
from latentalign.training.run import Run

WARM_START, MAIN = "warm start", "training"


@dataclass(frozen=True)
class Phase:
    """Which part of a training run a trainer does."""

    name: str = MAIN
    objective: str = ""
    later: TrainingConfig | None = None
    """The settings of the phase that follows."""


def describe_phase(phase: Phase, last: Mapping[str, Any], ended_by: str | None) -> dict[str, Any]:
    """What a phase used, from the last record of its metrics."""
    seconds = last.get("seconds", 0.0)
    return {
        "phase": phase.name,
        "objective": phase.objective,
        "steps": last["step"],
        "epochs": last.get("epochs", last.get("epoch", 0)),
        "minutes": round(seconds / 60, 2),
        "ended_by": ended_by,
    }


def warm_start_phase(run: Run, objective: str) -> dict[str, Any] | None:
    """What the warm start of a run used; None if there was none. Older runs do not say why it ended."""
    warm = Run(run.warm_start)
    known = warm.read_card().get("phases")
    if isinstance(known, list) and known and isinstance(known[-1], dict):
        return {**known[-1], "phase": WARM_START}
    history = warm.history()
    return describe_phase(Phase(WARM_START, objective), history[-1], None) if history else None


def sentence(phase: Mapping[str, Any]) -> str:
    """One phase in words."""
    ended = f", ended by {phase['ended_by']}" if phase.get("ended_by") else ""
    used = f"{phase['steps']:,} steps, {phase['epochs']:.3g} epochs, {phase['minutes']:g} minutes"
    return f"{phase['objective']}: {used}{ended}"


def warn_before(config: TaskRecipe, first: TaskRecipe, steps_per_epoch: int) -> str | None:
    """Why a warm start will be cut short, if the recipe alone tells."""
    limit, wanted = config.training.max_steps, first.training.epochs * steps_per_epoch
    if limit is None or limit >= wanted:
        return None
    return (
        f"training.max_steps = {limit} ends the warm start after {limit / steps_per_epoch:.2g} of "
        f"{first.training.epochs} epochs; the limit holds for each phase"
    )


def warn_between(config: TaskRecipe, warm: Mapping[str, Any], steps_per_epoch: int) -> str | None:
    """Whether the warm start has left too little time for one epoch, at its own speed."""
    limit = config.training.max_minutes
    if limit is None or not warm["steps"]:
        return None
    left = max(0.0, limit - warm["minutes"])
    epochs = left / max(1e-9, warm["minutes"] / warm["steps"]) / steps_per_epoch
    if epochs >= 1:
        return None
    return (
        f"the warm start took {warm['minutes']:g} of training.max_minutes = {limit:g}; the rest is enough for about "
        f"{epochs:.2g} epochs of {config.objective.name}; {REMEDY}"
    )


def warn_after(phases: Sequence[Mapping[str, Any]]) -> str | None:
    """Whether the training after a warm start ended before its first epoch was over."""
    if len(phases) < 2 or phases[-1]["epochs"] >= 1 or phases[-1]["ended_by"] not in LIMITS:
        return None
    warm, main = phases[0], phases[-1]
    return (
        f"{main['objective']} was trained for {main['steps']} steps only ({main['epochs']:.3g} epochs), because "
        f"training.{main['ended_by']} ended it; the warm start took {warm['minutes']:g} minutes; {REMEDY}"
    )


LIMITS = ("max_minutes", "max_steps")
REMEDY = "raise the limit, or lower training.warm_start_epochs"
