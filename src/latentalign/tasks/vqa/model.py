"""The question answering model of the paper's Appendix B: question, prior over regions, head, inference network."""

from __future__ import annotations

from functools import partial
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field, field_validator
from torch import Tensor, nn

from latentalign.config import DataPath, Section
from latentalign.core.choice import LatentChoice
from latentalign.core.distributions import DISTRIBUTIONS, AlignmentDistribution, Categorical, LookMixture
from latentalign.core.kernels.emission import EmissionLatent
from latentalign.core.kernels.likelihood import MAX_LOGITS
from latentalign.core.linear import Linear
from latentalign.core.registry import SCORES
from latentalign.core.scores import Score, resolve_score
from latentalign.nn.dropout import Dropout
from latentalign.nn.heads import MLPHead, ProductHead
from latentalign.nn.recurrent import LSTMStack
from latentalign.tasks.looks import LooksConfig
from latentalign.tasks.vqa.data import Batch
from latentalign.tasks.vqa.inference_network import InferenceConfig, InferenceNetwork

HEADS = {"mlp": MLPHead, "product": ProductHead}


class ModelConfig(Section):
    """Sizes of the generative model."""

    embedding: int = Field(300, ge=1)
    """Size of word embeddings."""
    vectors: DataPath | None = None
    """File of word vectors that the embeddings start from, one word and its numbers per line, such as GloVe."""
    question_size: int = Field(1024, ge=1)
    """Units of the LSTM that reads the question."""
    region_size: int | None = Field(None, ge=1)
    """Hidden units of a layer between the features of a region and everything that uses them, so that scores and head
    learn from each other what a region shows. If unset, there is none, as in the paper."""
    attention: str = "mlp"
    """How a question scores a region: `mlp`, as in the paper; `product`, which can ask for several properties at once;
    bilinear, scaled-dot or another registered score."""
    attention_size: int = Field(1024, ge=1)
    """Hidden units of the attention scores."""
    head: Literal["mlp", "product"] = "mlp"
    """How the head combines question and region: `mlp`, the sum of both in a hidden layer, as in the paper; `product`,
    the product of a hidden layer of each, so that the question can select what it asks about."""
    head_size: int = Field(1024, ge=1)
    """Hidden units of the head, which predicts the answer from question and region."""
    dropout: float = Field(0.5, ge=0, lt=1)
    """Dropout rate before the last layer of the head, and after the layer of `region_size`."""
    normalize: bool = False
    """Scale every region's features to length 1."""
    blind: bool = False
    """Replace all regions by zeros, to measure what the question alone can answer."""
    max_logits: int = Field(MAX_LOGITS, ge=1)
    """Largest number of logits in memory at once. It limits memory and never changes results."""

    @field_validator("attention")
    @classmethod
    def _is_registered(cls, name: str) -> str:
        SCORES[name]  # an unknown name raises an error that suggests the nearest one
        return name

    def build_score(self, region_dim: int) -> Score:
        """A new score of regions."""
        sizes = {"query_dim": self.question_size, "memory_dim": region_dim, "hidden": self.attention_size}
        return resolve_score(self.attention, **sizes)


class AnswerModel(nn.Module):
    """p(y | x, x~) through a latent region z."""

    def __init__(
        self,
        config: ModelConfig,
        *,
        words: int,
        answers: int,
        region_dim: int,
        distribution: str = "categorical",
        prior: LooksConfig | None = None,
        inference: InferenceConfig | None = None,
    ) -> None:
        super().__init__()
        self.config, self.region_dim = config, region_dim
        prior = prior or LooksConfig()
        self.distribution = DISTRIBUTIONS[distribution]
        if self.distribution.extra_scores:
            raise ValueError(f"this model has one score for every region; {distribution} needs more")
        self.embedding = nn.Embedding(words, config.embedding)
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)
        self.encoder = LSTMStack(config.embedding, config.question_size, 1, bidirectional=False)
        self.region, self.dropout = None, Dropout(config.dropout)
        if config.region_size is not None:
            self.region = Linear(region_dim, config.region_size)
            region_dim = config.region_size
        self.score = config.build_score(region_dim)
        self.looks = prior.build_looks(
            query_dim=config.question_size,
            memory_dim=region_dim,
            member_dim=region_dim,
            view_dim=config.head_size,
            hidden=config.attention_size,
            make_score=lambda: config.build_score(region_dim),
        )
        self.head = HEADS[config.head](
            config.question_size,
            region_dim if self.looks is None else self.looks.seen_size(region_dim),
            answers,
            hidden=config.head_size,
            dropout=config.dropout,
            activation=nn.ReLU(),
        )
        sizes = {"region_dim": region_dim, "question_dim": config.question_size, "answers": answers}
        self.inference = None
        if inference is not None:
            sizes["looks"] = self.inferred_looks = prior.inferred_looks
            self.start_at_prior = inference.start_at_prior
            self.inference = InferenceNetwork(inference.like_prior(config.attention_size), **sizes)

    def ask(self, question: Int[Tensor, "B L"], mask: Bool[Tensor, "B L"]) -> Float[Tensor, "B H"]:
        """x~: the state after the last word."""
        states: Tensor = self.encoder(self.embedding(question), mask)
        last = (mask.sum(1) - 1).clamp_min(0)
        found: Tensor = states[torch.arange(len(last), device=last.device), last]
        return found

    def look(self, regions: Float[Tensor, "B T F"]) -> Float[Tensor, "B T D"]:
        """x: the members of the source."""
        regions = regions.to(self.head.output.weight.dtype)
        if self.config.blind:
            regions = torch.zeros_like(regions)
        elif self.config.normalize:
            regions = nn.functional.normalize(regions, dim=-1)
        return regions if self.region is None else self.dropout(torch.relu(self.region(regions)))

    def forward(self, batch: Batch) -> LatentChoice:
        """The latent region of every question."""
        query, memory = self.ask(batch.question, batch.question_mask), self.look(batch.regions)
        mask = batch.region_mask
        scores = self.score(query, memory)
        members, prior = memory, self.distribution.from_scores(scores, exists=mask)
        if self.looks is not None:
            members, prior = self.looks.view(memory), self.looks(scores, query, memory, exists=mask)
        return LatentChoice(
            prior,
            self.head,
            query,
            members,
            infer=None if self.inference is None else partial(self.infer, memory, query, mask, prior),
            max_logits=self.config.max_logits,
        )

    def infer(
        self,
        memory: Float[Tensor, "B T D"],
        query: Float[Tensor, "B H"],
        mask: Bool[Tensor, "B T"],
        prior: AlignmentDistribution,
        target: Int[Tensor, "B"],
    ) -> AlignmentDistribution:
        """q(z; x, x~, y) from the inference network. It passes no gradient to the prior."""
        assert self.inference is not None
        mask, scores = mask.repeat(1, self.inferred_looks), self.inference(memory, query, target)
        if self.start_at_prior:
            scores = scores + prior.detach().enumerate().log_weight.masked_fill(~mask, 0.0)
        q = self.distribution.from_scores(scores, exists=mask)
        if self.inferred_looks == 1:
            return q
        assert isinstance(q, Categorical)
        return LookMixture.of(q, looks=self.inferred_looks)

    def latent(self, batch: Batch) -> EmissionLatent:
        """The latent regions with the batch's answers observed."""
        choice: LatentChoice = self(batch)
        return choice.observe(batch.target)
