"""The recipe of translation, and the type of its trained models."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from latentalign.config import Section
from latentalign.core.distributions import DISTRIBUTIONS
from latentalign.core.objectives import OBJECTIVES
from latentalign.tasks.base import Trained, choose_split
from latentalign.tasks.nmt.evidence import EvidenceConfig
from latentalign.tasks.nmt.inference_network import InferenceConfig
from latentalign.tasks.nmt.model import ModelConfig, TranslationModel
from latentalign.tasks.nmt.prior import PriorConfig
from latentalign.tasks.nmt.splits import DataConfig, SplitConfig
from latentalign.tasks.nmt.tokenizer import Tokenizer, TokenizerConfig
from latentalign.training.objective import ObjectiveConfig
from latentalign.training.recipe import TaskRecipe, TrainingConfig


class SearchConfig(Section):
    """Beam search in evaluation and translation."""

    beam: int = Field(10, ge=1)
    """Number of hypotheses kept at each step."""
    length_penalty: float = 1.0
    """Exponent of the length normalisation ((5 + length) / 6). Use 0 to disable it."""
    eos_norm: float = 0.0
    """Subtract this value times |x| / length from log p(end of sentence). The paper's published runs used 3."""
    max_length_ratio: float = 2.0
    """A translation ends at this many tokens per source token, plus `max_length_extra`."""
    max_length_extra: int = 10
    """Tokens that a translation may have beyond `max_length_ratio`."""


class NMTConfig(TaskRecipe):
    """A whole recipe."""

    task: Literal["nmt"] = "nmt"
    """The task to train. A recipe without this key is recognised by its data."""
    data: DataConfig
    tokenizer: TokenizerConfig = TokenizerConfig()
    model: ModelConfig = ModelConfig()
    prior: PriorConfig = PriorConfig()
    inference: InferenceConfig = InferenceConfig()
    evidence: EvidenceConfig = EvidenceConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    training: TrainingConfig = TrainingConfig(batch_tokens=4096)
    search: SearchConfig = SearchConfig()

    @model_validator(mode="after")
    def _size_inference_network(self) -> NMTConfig:
        """Let the inference network follow the encoder and the prior, so that a complete recipe states what it is."""
        sized = self.inference.like_encoder(self.model.encoder_layers, self.model.inference_size)
        if sized.chain is None:
            sized = sized.model_copy(update={"chain": self.prior.kind == "monotone"})
        object.__setattr__(self, "inference", sized)  # the model is frozen, but not handed out yet
        return self

    @model_validator(mode="after")
    def _check_support(self) -> NMTConfig:
        """Refuse a q beside a prior whose support it would have to know."""
        if self.prior.sparse and self.objective.prototype.needs_inferred:
            raise ValueError(
                f"{self.objective.name} needs KL[q, p], which is infinite for a q over all positions if prior.kind is "
                f'"{self.prior.kind}"; use marginal, which sums over the positions that have mass'
            )
        return self

    @model_validator(mode="after")
    def _check_start_at_prior(self) -> NMTConfig:
        """Refuse a q that cannot start at the prior."""
        objective = self.objective.prototype
        if not self.inference.start_at_prior or not objective.needs_inferred:
            return self
        problem = None
        if self.inference.kind != "network":
            problem = f'a q that is learned, but inference.kind is "{self.inference.kind}"'
        elif self.prior.chained:
            problem = f'independent alignments, but prior.kind is "{self.prior.kind}"'
        elif not DISTRIBUTIONS[objective.distribution].supports("enumerate"):
            problem = (
                f"alignments at one source position each, but those of {self.objective.name} are mixtures"
            )
        if problem is not None:
            raise ValueError(
                f"inference.start_at_prior needs {problem}; set inference.start_at_prior = false"
            )
        return self

    @model_validator(mode="after")
    def _check_chain(self) -> NMTConfig:
        """Refuse a prior whose alignments depend on each other where the objective or q cannot use it."""
        kind, objective = self.prior.kind, self.objective.prototype
        self.prior.check_objective(self.objective.name, objective)
        if self.prior.several and objective.needs_inferred and self.inference.kind != "network":
            raise ValueError(
                f'inference.kind = "{self.inference.kind}" says which position a word comes from, but not which look '
                'found it; set inference.kind = "network" or prior.looks = 1'
            )
        if self.prior.several and self.evidence.used:
            raise ValueError(
                "[evidence] says which position a word comes from, but not which look found it; set prior.looks = 1"
            )
        if self.inference.chain and not self.prior.chained:
            raise ValueError(
                'inference.chain needs a prior that is a chain; set prior.kind = "jump" or another'
            )
        if self.prior.null and not DISTRIBUTIONS[objective.distribution].supports("enumerate"):
            raise ValueError(
                f"{self.objective.name} has no NULL, because its alignments are mixtures; set prior.null = false"
            )
        if not self.prior.chained:
            self.prior.distribution(objective.distribution)
            return self
        if not objective.accepts_chains:
            able = [n for n, entry in OBJECTIVES.items() if entry().accepts_chains]
            raise ValueError(
                f'{self.objective.name} is not defined for prior.kind = "{kind}", where alignments depend on each '
                f"other; use one of {', '.join(able)}"
            )
        if objective.needs_inferred and kind == "monotone" and self.inference.kind != "network":
            raise ValueError(
                f'a monotone prior needs a q that never goes back, but inference.kind is "{self.inference.kind}"; '
                'set inference.kind = "network"'
            )
        if objective.needs_inferred and kind == "monotone" and not self.inference.chain:
            raise ValueError("a monotone prior needs a q that never goes back; set inference.chain = true")
        return self


TrainedTranslator = Trained[NMTConfig, Tokenizer, TranslationModel]


def find_split(trained: TrainedTranslator, name: str) -> SplitConfig:
    """A split of a run's data by name."""
    data = trained.config.data
    split: SplitConfig = choose_split(
        {"train": data.train, "valid": data.valid, "test": data.test}, name, trained.run.folder
    )
    return split
