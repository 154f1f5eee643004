"""q(z; x, x~, y) for visual question answering: the answer tells where to look."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from latentalign.config import Section
from latentalign.core.linear import Linear


class InferenceConfig(Section):
    """Sizes of the inference network, for objectives that need one."""

    answer_embedding: int = Field(256, ge=1)
    """Size of answer embeddings."""
    size: int | None = Field(None, ge=1)
    """Hidden units of its attention scores. If unset, as many as `model.attention_size`."""
    start_at_prior: bool = False
    """Let q be the prior times learned factors, q(z) = p(z) exp(score) / sum, so that q is the prior when training
    begins. Without it, q starts almost even over the regions."""

    def like_prior(self, attention_size: int) -> InferenceConfig:
        """The same settings. A size that is not set is that of the prior."""
        return self.model_copy(update={"size": self.size or attention_size})


class InferenceNetwork(nn.Module):
    """q(z_i = 1) proportional to exp(u' tanh(U1 (x_i * relu(V1 h_y)) + U2 (x~ * relu(V2 h_y)))).

    With `config.start_at_prior`, that is the factor by which q differs from the prior, and u is 0 at first.
    """

    def __init__(
        self, config: InferenceConfig, *, region_dim: int, question_dim: int, answers: int, looks: int = 1
    ) -> None:
        super().__init__()
        assert config.size is not None
        self.answer = nn.Embedding(answers, config.answer_embedding)
        self.to_region = Linear(config.answer_embedding, region_dim, bias=False)
        self.to_question = Linear(config.answer_embedding, question_dim, bias=False)
        self.from_region = Linear(region_dim, config.size, bias=False)
        self.from_question = Linear(question_dim, config.size, bias=False)
        # Scores and factors of the prior have different names, because `convert` and warm starts copy weights by name.
        self.last = "to_factor" if config.start_at_prior else "to_score"
        self.add_module(self.last, Linear(config.size, looks, bias=False))
        if config.start_at_prior:
            nn.init.zeros_(getattr(self, self.last).weight)

    def forward(
        self,
        regions: Float[Tensor, "B T D"],
        question: Float[Tensor, "B H"],
        target: Int[Tensor, "B"],
    ) -> Float[Tensor, "B looks_T"]:
        """log q, or log(q / p), of every region, plus a constant; with several looks, those of the first come first."""
        h = self.answer(target)
        seen = self.from_region(regions * torch.relu(self.to_region(h)).unsqueeze(1))
        asked = self.from_question(question * torch.relu(self.to_question(h))).unsqueeze(1)
        scores: Tensor = getattr(self, self.last)(torch.tanh(seen + asked)).transpose(1, 2).flatten(1)
        return scores
