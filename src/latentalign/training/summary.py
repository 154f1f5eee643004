"""What a training run is about to do, and what it has done and used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from latentalign.core.objectives import Objective
from latentalign.progress import warn
from latentalign.training.loop import Trainer
from latentalign.training.phases import describe_phase, warm_start_phase, warn_after
from latentalign.training.recipe import TaskRecipe
from latentalign.training.warm_start import warm_start_recipe


def describe_plan(config: TaskRecipe, card: Mapping[str, Any], trainer: Trainer) -> str:
    """What is going to be trained, and when it ends, in one line."""
    counts, training = card["parameters"], trainer.config
    parameters = f"{counts['model']:,} parameters"
    if counts["inference"]:
        parameters += f" and {counts['inference']:,} of the inference network"
    steps = -(-trainer.count_batches() // training.accumulate)
    limits = [f"{training.epochs} epochs of {steps:,} steps"]
    limits += [f"{training.max_steps:,} steps"] if training.max_steps is not None else []
    limits += [f"{training.max_minutes:.3g} minutes"] if training.max_minutes is not None else []
    start = f", continued at step {trainer.position.step:,}" if trainer.position.step else ""
    name = f"{trainer.phase.name} on {config.objective.name}"
    return f"{name}, {parameters}, on {training.device}; at most {' or '.join(limits)}{start}"


def train_and_summarise(trainer: Trainer, config: TaskRecipe) -> dict[str, Any]:
    """Train to the end; the figures of the best model, and what each phase of the run cost."""
    schedule = trainer.train()
    first, position, run = warm_start_recipe(config), trainer.position, trainer.run
    last = {"step": position.step, "epochs": round(trainer.epochs, 4), "seconds": position.seconds}
    phases = [describe_phase(trainer.phase, last, trainer.ended_by)]
    warm = warm_start_phase(run, first.objective.name) if first is not None else None
    if warm is not None:
        phases.insert(0, warm)
    if trainer.world.leader and (problem := warn_after(phases)):
        warn(problem)
    start = f"{warm['epochs']:.3g} epochs of {warm['objective']}" if warm else None
    return {
        "ppl": schedule.best_score,
        "bound": schedule.best_bound,
        "steps": position.step,
        "epochs": round(trainer.epochs, 4),
        "seconds": round(position.seconds + run.warm_start_seconds, 1),
        "tokens_per_second": round(position.queries / max(1e-9, position.seconds), 1),
        "peak_memory_mb": round(position.peak_memory_mb, 1),
        "warm_start": config.training.warm_start or start,
        "samples": count_samples(config.objective.build()),
        "ended_by": trainer.ended_by,
        "phases": phases,
    }


def count_samples(objective: Objective) -> int | None:
    """How many alignments of a query an objective draws; None if it draws none."""
    for part in (objective, getattr(objective, "expectation", None)):
        if isinstance(number := getattr(part, "n", None), int):
            return number * int(getattr(part, "steps", 1))
    return None


def count_parameters(model: nn.Module) -> dict[str, int]:
    """Parameters of the generative model, and of the inference network, which is not used at test time."""
    inference = sum(p.numel() for n, p in model.named_parameters() if n.startswith("inference."))
    return {"model": sum(p.numel() for p in model.parameters()) - inference, "inference": inference}
