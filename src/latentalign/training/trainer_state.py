"""Saving and restoring a training run, such that it continues as if nothing had happened."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from latentalign.errors import CheckpointError, DivergedError
from latentalign.training import checkpoint
from latentalign.training.distributed import World
from latentalign.training.position import Position

if TYPE_CHECKING:
    from latentalign.training.loop import Trainer

ADVICE = "the last checkpoint is kept: lower training.learning_rate and --resume"


def save_trainer(trainer: Trainer) -> None:
    """Write a checkpoint. Never save non-finite weights."""
    require_finite_weights(trainer)
    randoms = gather_random_states(trainer.world, trainer.device)
    if trainer.world.leader:
        optimizer = trainer.optimizer.tensors()
        checkpoint.save(
            trainer.run.checkpoint,
            tensors={"module": dict(trainer.module.state_dict()), "optimizer": optimizer, **randoms},
            documents={
                "position": dataclasses.asdict(trainer.position),
                "schedule": dataclasses.asdict(trainer.schedule),
                "metadata": trainer.metadata,
            },
        )
    trainer.world.wait()


def require_finite_weights(trainer: Trainer) -> None:
    """Raise before non-finite weights replace good ones."""
    for name, tensor in trainer.module.state_dict().items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise DivergedError(f"{name} is not finite after step {trainer.position.step}; {ADVICE}")


def gather_random_states(world: World, device: torch.device) -> dict[str, dict[str, Tensor]]:
    """The random state of every process, by the name of its file."""
    own = checkpoint.random_state()
    found = {name: world.gather(state, device) for name, state in own.items()}
    return {name_random_state(rank): {n: found[n][rank] for n in own} for rank in range(world.size)}


def name_random_state(rank: int) -> str:
    """The file of a process's random state in a checkpoint."""
    return "random" if rank == 0 else f"random-{rank}"


def restore_trainer(trainer: Trainer) -> None:
    """Return to the last checkpoint."""
    loaded = checkpoint.load(trainer.run.checkpoint)
    require_same_run(trainer, loaded)
    try:
        trainer.module.load_state_dict(loaded.tensors["module"])
    except RuntimeError as error:
        raise CheckpointError(f"{trainer.run.checkpoint}: does not fit the recipe: {error}") from None
    trainer.optimizer.load_tensors(loaded.tensors["optimizer"])
    position = loaded.documents["position"]
    trainer.position = Position.from_checkpoint(position)
    trainer.schedule.resume(loaded.documents["schedule"])
    checkpoint.restore_random_state(loaded.tensors[name_random_state(trainer.world.rank)])
    if "validated" not in position:  # an older checkpoint: only its metrics say so
        steps = [r["step"] for r in trainer.run.history() if r["kind"] == "validation"]
        trainer.position.validated = trainer.position.step if trainer.position.step in steps else -1
    trainer.world.wait()
    if trainer.world.leader:  # repeat a validation that the schedule has not taken into account
        step = trainer.position.step
        trainer.run.rewind(step, validated=trainer.position.validated == step)
    trainer.world.wait()


def require_same_run(trainer: Trainer, loaded: checkpoint.Loaded) -> None:
    """Raise if a checkpoint belongs to another model, or to another number of processes."""
    folder = trainer.run.checkpoint
    if loaded.documents["metadata"] != trainer.metadata:
        raise CheckpointError(
            f"{folder}: belongs to another training run: {loaded.documents['metadata']}, this one is "
            f"{trainer.metadata}; start again with --overwrite"
        )
    processes = sum(name.startswith("random") for name in loaded.tensors)
    if processes != trainer.world.size:
        raise CheckpointError(
            f"{folder}: was written by {processes} processes, this run has {trainer.world.size}: "
            f"continue with the same number, torchrun --nproc-per-node {processes}"
        )
