"""q(z; x, x~, y) for translation: a network that sees the whole target, or links from another aligner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor, nn

from latentalign.config import Section
from latentalign.core.distributions import AlignmentDistribution, Chain
from latentalign.core.scores import BilinearScore
from latentalign.links.sets import Links
from latentalign.nn.recurrent import LSTMStack
from latentalign.tasks.nmt.prior import PriorConfig


class InferenceConfig(Section):
    """Where q comes from, for objectives that need one."""

    kind: Literal["network", "external"] = "network"
    """`network`: trained with the model. `external`: word links of another aligner, read from `data.*.links`."""
    layers: int | None = Field(None, ge=1)
    """Layers of both bidirectional LSTMs of the network. If unset, as many as `model.encoder_layers`."""
    size: int | None = Field(None, ge=1)
    """Units of both LSTMs in each direction. If unset, as many as `model.encoder_size`."""
    chain: bool | None = None
    """Let the alignments of q depend on each other in the same way as those of the prior. If unset, only for a
    monotone prior, which needs it."""
    smoothing: float = Field(0.1, ge=0, le=1)
    """Share of an external q that is spread evenly over all source positions."""

    def like_encoder(self, layers: int, size: int) -> InferenceConfig:
        """The same settings. Sizes that are not set are those of the encoder."""
        return self.model_copy(update={"layers": self.layers or layers, "size": self.size or size})


class InferenceNetwork(nn.Module):
    """Two bidirectional LSTMs, over the source and over y_1..end, and bilinear scores: h_j' U x_i.

    If the prior is a chain with NULL, NULL has a score of its own. With `config.chain`, q is such a chain as well.
    """

    def __init__(
        self,
        config: InferenceConfig,
        embedding: int,
        *,
        dropout: float,
        extra_scores: Sequence[str] = (),
        prior: PriorConfig | None = None,
    ) -> None:
        super().__init__()
        assert config.layers is not None
        assert config.size is not None
        stacks: dict[str, Any] = {"bidirectional": True, "dropout": dropout}
        self.source = LSTMStack(embedding, config.size, config.layers, **stacks)
        self.target = LSTMStack(embedding, config.size, config.layers, **stacks)
        self.score = BilinearScore(2 * config.size, 2 * config.size)
        self.extra_scores = tuple(extra_scores)
        for name in extra_scores:
            setattr(self, name, BilinearScore(2 * config.size, 2 * config.size))
        prior = prior or PriorConfig()
        self.chain = prior.build(2 * config.size, 2 * config.size, emits=False) if config.chain else None
        if config.chain and self.chain is None:
            raise ValueError(
                'inference.chain needs a prior that is a chain: set prior.kind to "jump" or another'
            )
        if prior.kind == "monotone" and not config.chain:
            raise ValueError(
                "a monotone prior needs a q that never goes back either: set inference.chain = true"
            )
        self.null_score = nn.Linear(2 * config.size, 1) if prior.null and self.chain is None else None

    def forward(
        self,
        source: Float[Tensor, "B T E"],
        source_mask: Bool[Tensor, "B T"],
        target: Float[Tensor, "B S E"],
        *,
        target_mask: Bool[Tensor, "B S"],
        distribution: type[AlignmentDistribution],
    ) -> AlignmentDistribution:
        """q(z; x, x~, y) of all target positions."""
        x, h = self.source(source, source_mask), self.target(target, target_mask)
        mask = target_mask.unsqueeze(2) & source_mask.unsqueeze(1)
        scores = [getattr(self, name)(h, x.unsqueeze(1)) for name in ("score", *self.extra_scores)]
        if self.chain is not None:
            chain: Chain = self.chain(scores[0], mask, h, x)
            return chain
        if self.null_score is not None:
            scores[0] = torch.cat([scores[0], self.null_score(h)], -1)
            mask = torch.cat([mask, target_mask.unsqueeze(2)], -1)
        return distribution.from_scores(*scores, exists=mask)


def external_scores(
    links: Sequence[Links],
    source_words: Sequence[Sequence[int]],
    target_words: Sequence[Sequence[int]],
    *,
    smoothing: float,
    shape: tuple[int, int, int],
) -> Float[Tensor, "B S T"]:
    """log q from word links: even over the pieces linked to, mixed with an even share over all of them.

    A target word without links, and the end of the sentence, get the even share alone.
    """
    log_q = torch.zeros(shape)
    for b, (pairs, source, target) in enumerate(zip(links, source_words, target_words, strict=True)):
        hits = torch.tensor([[(v, w) in pairs for v in source] for w in target], dtype=torch.float32)
        hits = hits.view(len(target), len(source))
        count = hits.sum(1, keepdim=True)
        even = 1 / len(source)
        q = torch.where(count > 0, (1 - smoothing) * hits / count.clamp_min(1) + smoothing * even, even)
        log_q[b, : len(target), : len(source)] = q.clamp_min(1e-8).log()
    return log_q
