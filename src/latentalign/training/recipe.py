"""The tables of a recipe that every task has: `task`, `[objective]` and `[training]`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from latentalign.config import Section
from latentalign.training.objective import ObjectiveConfig
from latentalign.training.schedule import Decay


class TrainingConfig(Section):
    """How long, how fast and on which device to train."""

    alternatives = (frozenset({"batch_tokens"}), frozenset({"batch_sentences"}))

    learning_rate: float = Field(3e-4, gt=0)
    """Step size of Adam at the start of training, or after `warmup_steps`."""
    epochs: int = Field(30, ge=1)
    """Passes over the training data after which training ends."""
    max_steps: int | None = Field(None, ge=1)
    """Updates after which training ends, if the epochs have not ended before. A warm start has the same limit of its
    own."""
    max_minutes: float | None = Field(None, gt=0)
    """Minutes of updates after which training ends. The warm start counts and may use half of them. All parts of a
    resumed run count. Reading data, validating and saving do not count. The last step depends on the machine."""
    batch_tokens: int | None = Field(None, ge=1)
    """Source and target tokens of a batch, padding included."""
    batch_sentences: int | None = Field(None, ge=1)
    """Examples of a batch."""
    normalize: Literal["tokens", "sentences"] = "tokens"
    """Divide the summed loss of a batch by its number of queries (`tokens`) or of examples (`sentences`)."""
    accumulate: int = Field(1, ge=1)
    """Number of batches whose gradients are summed for one update."""
    clip: float = Field(5.0, gt=0)
    """Largest norm of the gradient, taken over the model and the inference network together."""
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    """Share of the loss that asks for an even distribution over all outputs, at the mean of the prior. Bounds and
    perplexities are always reported without it."""
    warmup_steps: int = Field(0, ge=0)
    """Updates over which the learning rate grows from 0."""
    schedule: Decay = "plateau"
    """How the learning rate falls. `plateau`: after validations, as `decay` says. `inverse-sqrt`: with the root of the
    number of updates. `linear` and `cosine`: to a hundredth, at `decay_steps`."""
    decay_steps: int | None = Field(None, ge=1)
    """`linear` and `cosine`: update at which the learning rate has fallen."""
    decay: float = Field(0.5, gt=0, le=1)
    """Factor by which the learning rate falls after a validation without improvement."""
    decay_start: int = Field(2, ge=1)
    """First validation after which the learning rate may fall."""
    decay_always: int | None = Field(None, ge=1)
    """First validation from which the learning rate falls every time, with or without improvement."""
    patience: int = Field(5, ge=1)
    """Validations in a row without improvement after which training ends."""
    min_gain: float = Field(0.0, ge=0, lt=1)
    """Relative decrease of perplexity that counts as an improvement for `decay` and `patience`."""
    validate_steps: int | None = Field(None, ge=1)
    """Updates between validations. If unset, validate once an epoch."""
    checkpoint_steps: int = Field(1000, ge=1)
    """Updates between checkpoints."""
    log_steps: int = Field(50, ge=1)
    """Updates between lines of `metrics.jsonl`, and between lines of progress where there is no terminal."""
    warm_start: str | None = None
    """Run directory whose model to start from."""
    warm_start_epochs: int = Field(0, ge=0)
    """Epochs on `warm_start_objective` before training on the objective and its inference network begins."""
    warm_start_objective: str | None = None
    """Objective of the warm start. It applies if its prior is of the same family as that of the objective. Otherwise
    `relaxed` starts with the Jensen bound, and other objectives start without a warm start."""
    seed: int = 0
    """Seed of all random numbers."""
    threads: int = Field(2, ge=1)
    """Number of CPU threads, whatever OMP_NUM_THREADS says; take 1 if other programs use the machine."""
    device: str = "cpu"
    """Device to train on, such as `cpu` or `cuda:1`."""
    precision: Literal["float32", "float64", "bf16"] = "float32"
    """Number format of training."""
    compile: bool = False
    """Compile the steps of recurrent layers. Useful on a GPU; on a CPU, compiled steps are slower and take half a
    minute to build."""
    tensorboard: bool = False
    """Also write metrics for TensorBoard (needs the extra `tensorboard`)."""
    logger: str | None = None
    """Your own logger as `package.module:function`. It is called with the recipe and the run directory, and returns an
    object with `log(record)` and `end(summary)`."""

    @model_validator(mode="after")
    def _check_schedule(self) -> TrainingConfig:
        """Refuse keys that this schedule would ignore, or that it lacks."""
        planned = self.schedule in ("linear", "cosine")
        if planned and self.decay_steps is None:
            raise ValueError(f'training.schedule = "{self.schedule}" needs training.decay_steps')
        if planned and self.decay_steps is not None and self.decay_steps <= self.warmup_steps:
            raise ValueError("training.decay_steps must be larger than training.warmup_steps")
        if not planned and self.decay_steps is not None:
            raise ValueError('training.decay_steps needs training.schedule = "linear" or "cosine"')
        for name in ("decay", "decay_start", "decay_always"):
            if self.schedule != "plateau" and getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f'training.{name} has no effect if training.schedule is "{self.schedule}"')
        return self


class TaskRecipe(Section):
    """What the recipes of all tasks have in common; each task adds its own tables in a subclass."""

    task: str = ""
    """The task to train, by its registered name. Recipes without it are recognised by their data."""
    objective: ObjectiveConfig = ObjectiveConfig()
    training: TrainingConfig = TrainingConfig()
