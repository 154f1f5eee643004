"""q(z; x, x~, y) for translation: a network that sees the whole target, or links from another aligner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor, nn

from latentalign.config import Section
from latentalign.core.distributions import AlignmentDistribution, Categorical, Chain, LookMixture
from latentalign.core.linear import Linear
from latentalign.core.scores import BilinearScore
from latentalign.links.sets import LinkProbabilities
from latentalign.nn.recurrent import LSTMStack
from latentalign.tasks.nmt.prior import PriorConfig


class InferenceConfig(Section):
    """Where q comes from, for objectives that need one."""

    kind: Literal["network", "aligner", "external"] = "network"
    """`network`: trained with the model. `aligner`: the posterior of our word aligner, which is trained on the training
    text first. `external`: word links of another aligner, read from `data.*.links`."""
    layers: int | None = Field(None, ge=1)
    """Layers of both bidirectional LSTMs of the network. If unset, as many as `model.encoder_layers`."""
    size: int | None = Field(None, ge=1)
    """Units of both LSTMs in each direction. If unset, as many as `model.encoder_size`, or half of `model.embedding` in
    a transformer."""
    chain: bool | None = None
    """Let the alignments of q depend on each other in the same way as those of the prior. If unset, only for a
    monotone prior, which needs it."""
    smoothing: float = Field(0.1, ge=0, le=1)
    """Share of a q from links that is spread evenly over all source positions, and NULL if the prior has it."""
    start_at_prior: bool = False
    """Let q be the prior times learned factors, q(z) = p(z) exp(score) / sum, so that q is the prior when training
    begins. Without it, q starts almost even over the source."""

    def like_encoder(self, layers: int, size: int) -> InferenceConfig:
        """The same settings. Sizes that are not set are those of the encoder."""
        return self.model_copy(update={"layers": self.layers or layers, "size": self.size or size})


class InferenceNetwork(nn.Module):
    """Two bidirectional LSTMs, over the source and over y_1..end, and bilinear scores: h_j' U x_i.

    If the prior has NULL, NULL has a score of its own. With `config.chain`, q is such a chain as well. If the prior has
    several looks with views of their own, q has scores for each look.
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
        # Scores and factors of the prior have different names, because `convert` and warm starts copy weights by name.
        role = "factor" if config.start_at_prior else "score"
        self.parts = role, f"look_{role}s", f"null_{role}"
        self.add_module(role, BilinearScore(2 * config.size, 2 * config.size))
        self.extra_scores = tuple(extra_scores)
        for name in extra_scores:
            setattr(self, name, BilinearScore(2 * config.size, 2 * config.size))
        prior = prior or PriorConfig()
        self.null, self.looks = prior.null, prior.inferred_looks
        further = [BilinearScore(2 * config.size, 2 * config.size) for _ in range(self.looks - 1)]
        self.add_module(f"look_{role}s", nn.ModuleList(further))
        self.chain = prior.build(2 * config.size, 2 * config.size, emits=False) if config.chain else None
        if config.chain and self.chain is None:
            raise ValueError(
                'inference.chain needs a prior that is a chain: set prior.kind to "jump" or another'
            )
        if prior.kind == "monotone" and not config.chain:
            raise ValueError(
                "a monotone prior needs a q that never goes back either: set inference.chain = true"
            )
        has_null = prior.null and self.chain is None
        self.add_module(f"null_{role}", Linear(2 * config.size, 1) if has_null else None)
        self.start_at_prior = config.start_at_prior
        if config.start_at_prior and prior.chained:
            raise ValueError("inference.start_at_prior needs independent alignments; set it to false")

    def start(self) -> None:
        """Let q be the prior, if it is to start there: all factors are exp(0)."""
        for name in self.parts if self.start_at_prior else ():
            part = getattr(self, name)
            for parameter in () if part is None else part.parameters():
                nn.init.zeros_(parameter)

    def forward(
        self,
        source: Float[Tensor, "B T E"],
        source_mask: Bool[Tensor, "B T"],
        target: Float[Tensor, "B S E"],
        *,
        target_mask: Bool[Tensor, "B S"],
        prior: AlignmentDistribution,
        distribution: type[AlignmentDistribution],
    ) -> AlignmentDistribution:
        """q(z; x, x~, y) of all target positions. It passes no gradient to the prior."""
        x, h = self.source(source, source_mask), self.target(target, target_mask)
        mask = target_mask.unsqueeze(2) & source_mask.unsqueeze(1)
        score, looks, null = (getattr(self, name) for name in self.parts)
        scores = [part(h, x.unsqueeze(1)) for part in (score, *(getattr(self, n) for n in self.extra_scores))]
        if self.chain is not None:
            chain: Chain = self.chain(scores[0], mask, h, x)
            return chain
        if looks:
            scores[0] = torch.cat([scores[0], *[look(h, x.unsqueeze(1)) for look in looks]], -1)
            mask = mask.repeat(1, 1, self.looks)
        if null is not None:
            scores[0] = torch.cat([scores[0], null(h)], -1)
            mask = torch.cat([mask, target_mask.unsqueeze(2)], -1)
        if self.start_at_prior:
            log_prior = prior.detach().enumerate().log_weight
            scores[0] = scores[0] + log_prior.masked_fill(~mask, 0.0)
        q = distribution.from_scores(*scores, exists=mask)
        if not looks:
            return q
        assert isinstance(q, Categorical)
        return LookMixture.of(q, looks=self.looks, null=self.null)


def external_scores(
    links: Sequence[LinkProbabilities],
    source_words: Sequence[Sequence[int]],
    target_words: Sequence[Sequence[int]],
    *,
    smoothing: float,
    shape: tuple[int, int, int],
    null: bool = False,
) -> Float[Tensor, "B S T"]:
    """log q from word links: even over the pieces of a linked word, mixed with an even share over all members.

    What the probabilities of a target word leave of 1 is NULL, and so is the end of the sentence. Without NULL, which
    would be the last member, that part is spread evenly.
    """
    log_q = torch.zeros(shape)
    for b, (pairs, source, target) in enumerate(zip(links, source_words, target_words, strict=True)):
        q = spread_over_pieces(pairs, source, [*target, -1])
        rest, even = (1 - q.sum(1, keepdim=True)).clamp_min(0), 1 / (len(source) + null)
        q = (1 - smoothing) * (q if null else q + rest * even) + smoothing * even
        log_q[b, : len(target) + 1, : len(source)] = q.clamp_min(1e-8).log()
        if null:
            q_null = (1 - smoothing) * rest.squeeze(1) + smoothing * even
            log_q[b, : len(target) + 1, -1] = q_null.clamp_min(1e-8).log()
    return log_q


def spread_over_pieces(
    links: LinkProbabilities, source: Sequence[int], target: Sequence[int]
) -> Float[Tensor, "S T"]:
    """Probabilities of the source pieces for each target piece, given the words they belong to; -1 is no word.

    The probabilities of a target word are scaled down to a sum of 1 if their sum is larger.
    """
    words = torch.zeros(
        max(target, default=-1) + 2, max(source, default=-1) + 2
    )  # the last row and column stay 0
    for (v, w), probability in links.items():
        if (
            v < words.shape[1] - 1 and w < words.shape[0] - 1
        ):  # gold links and those of other tools may have slips
            words[w, v] = probability
    words /= words.sum(1, keepdim=True).clamp_min(1)
    pieces = torch.tensor(source, dtype=torch.int64)
    share = torch.bincount(pieces, minlength=1)[pieces] if len(source) else pieces
    return words[torch.tensor(target)][:, pieces] / share
