"""The translation model: encoder, decoder, prior, head and inference network (the paper's Appendix B)."""

from __future__ import annotations

from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from latentalign.core.choice import LatentChoice
from latentalign.core.distributions import DISTRIBUTIONS, AlignmentDistribution, Categorical, LookMixture
from latentalign.core.kernels.emission import EmissionLatent
from latentalign.nn.dropout import Dropout
from latentalign.nn.null_member import NullMember
from latentalign.tasks.nmt.backbone import ModelConfig
from latentalign.tasks.nmt.data import Batch
from latentalign.tasks.nmt.inference_network import InferenceConfig, InferenceNetwork
from latentalign.tasks.nmt.prior import PriorConfig
from latentalign.tasks.nmt.tokenizer import BOS

__all__ = ["ModelConfig", "TranslationModel"]


class TranslationModel(nn.Module):
    """p(y_j | x, y_<j) through a latent alignment z_j: that of the paper's Appendix B, or on top of a transformer."""

    def __init__(
        self,
        config: ModelConfig,
        *,
        source_size: int,
        target_size: int,
        distribution: str = "categorical",
        prior: PriorConfig | None = None,
        inference: InferenceConfig | None = None,
    ) -> None:
        super().__init__()
        if config.joint_embedding and source_size != target_size:
            raise ValueError("model.joint_embedding needs one vocabulary: set tokenizer.joint = true")
        prior = prior or PriorConfig()
        self.config, self.distribution = config, DISTRIBUTIONS[prior.distribution(distribution)]
        self.source_embedding = nn.Embedding(source_size, config.embedding)
        self.target_embedding = (
            self.source_embedding if config.joint_embedding else nn.Embedding(target_size, config.embedding)
        )
        self.dropout = Dropout(config.dropout)
        self.encoder = config.build_encoder()
        self.decoder = config.build_decoder()
        for name in self.distribution.extra_scores:
            setattr(self, name, config.build_score())
        self.looks = prior.build_looks(
            query_dim=config.query_dim,
            memory_dim=config.memory_dim,
            member_dim=config.member_dim,
            view_dim=config.head_dim,
            hidden=config.head_dim,
            make_score=config.build_score,
        )
        seen_dim = config.member_dim if self.looks is None else self.looks.seen_size(config.member_dim)
        self.head = config.build_head(self.target_embedding, seen_dim)
        sizes = (config.query_dim, config.memory_dim)
        self.chain = prior.build(*sizes, member_dim=config.member_dim)
        has_null = prior.null and self.chain is None
        self.null = NullMember(config.query_dim, seen_dim) if has_null else None
        self.inference = self.build_inference(inference, prior)
        config.initialise(self)
        if self.inference is not None:
            self.inference.start()

    def build_inference(
        self, inference: InferenceConfig | None, prior: PriorConfig
    ) -> InferenceNetwork | None:
        """The network behind q; None if there is no q, or if it comes from files."""
        if inference is None or inference.kind != "network":
            return None
        return InferenceNetwork(
            inference.like_encoder(self.config.encoder_layers, self.config.inference_size),
            self.config.embedding,
            dropout=self.config.dropout,
            extra_scores=self.distribution.extra_scores,
            prior=prior,
        )

    @property
    def has_null(self) -> bool:
        """Whether an output may come from no source position. NULL is then the last member."""
        return self.null is not None or (self.chain is not None and self.chain.null)

    @property
    def mean_is_context(self) -> bool:
        """Whether the decoder's context is the mean of the members under the prior."""
        single = self.chain is None and self.null is None and self.looks is None
        return single and self.config.emission == "state" and self.distribution.mean_is_softmax

    def encode(
        self, source: Int[Tensor, "B T"], mask: Bool[Tensor, "B T"]
    ) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B M Dm"]]:
        """The encoder's states, which the decoder attends to, and the members x_1..x_M, which the head sees.

        With several looks, there is a member for each look and position. NULL, if there is one, is the last member and
        has no state.
        """
        words = self.dropout(self.source_embedding(source))
        states: Tensor = self.encoder(words, mask)
        members = states
        if self.config.emission != "state":
            words = words.to(states.dtype) * self.config.word_scale
            members = words if self.config.emission == "word" else torch.cat([words, states], -1)
        if self.looks is not None:
            members = self.looks.view(members)
        if self.chain is not None:
            return states, self.chain.append_null(members)
        return states, members if self.null is None else self.null.append_to(members)

    def prior(
        self,
        query: Float[Tensor, "*batch Dq"],
        scores: Float[Tensor, "*batch T"],
        memory: Float[Tensor, "*#batch T D"],
        *,
        mask: Bool[Tensor, "*batch T"],
    ) -> AlignmentDistribution:
        """p(z | x, x~) of single queries from the decoder's scores; with NULL, over one member more."""
        if self.looks is not None:
            return self.add_null(self.looks(scores, query, memory, exists=mask), query)
        if self.null is not None:
            scores, mask = self.null.extend(scores, mask, query)
            return self.distribution.from_scores(scores, exists=mask)
        more = [getattr(self, name)(query, memory) for name in self.distribution.extra_scores]
        return self.distribution.from_scores(scores, *more, exists=mask)

    def add_null(self, prior: Categorical, query: Float[Tensor, "*batch Dq"]) -> Categorical:
        """The prior of several looks with NULL as one more member, if the model has NULL."""
        if self.null is None:
            return prior
        scores, mask = self.null.extend(prior.log_probs, prior.mask, query)
        found = Categorical.from_scores(scores, exists=mask)
        return (
            LookMixture.of(found, looks=prior.looks, null=True) if isinstance(prior, LookMixture) else found
        )

    def forward(self, batch: Batch) -> LatentChoice:
        """The latent choices of all target positions: queries and scores first, all emissions after them."""
        memory, members = self.encode(batch.source, batch.source_mask)
        previous = batch.target.roll(1, dims=1)
        previous[:, 0] = BOS
        words = self.dropout(self.target_embedding(previous))
        queries, scores = self.decoder(words, batch.target_mask, memory, mask=batch.source_mask)
        mask = batch.target_mask.unsqueeze(2) & batch.source_mask.unsqueeze(1)
        prior: AlignmentDistribution
        if self.chain is None:
            prior = self.prior(queries, scores, memory.unsqueeze(1), mask=mask)
        else:
            prior = self.chain(scores, mask, queries, memory)
        return LatentChoice(
            prior,
            self.head,
            queries,
            members.unsqueeze(1),
            infer=partial(self.infer, batch, mask, prior),
            max_logits=self.config.max_logits,
        )

    def infer(
        self,
        batch: Batch,
        mask: Bool[Tensor, "B S T"],
        prior: AlignmentDistribution,
        target: Int[Tensor, "B S"],
    ) -> AlignmentDistribution | None:
        """q(z; x, x~, y) from the links of another aligner or the inference network; None without either."""
        if batch.external is not None:
            if self.has_null:
                mask = torch.cat([mask, mask.any(-1, keepdim=True)], -1)
            return self.distribution.from_scores(batch.external.to(self.head.output.weight), exists=mask)
        if self.inference is None:
            return None
        source = self.dropout(self.source_embedding(batch.source))
        words = self.dropout(self.target_embedding(target))
        q: AlignmentDistribution = self.inference(
            source,
            batch.source_mask,
            words,
            target_mask=batch.target_mask,
            prior=prior,
            distribution=self.distribution,
        )
        return q

    def latent(self, batch: Batch) -> EmissionLatent:
        """The latent choices with the batch's target observed, and its evidence about z, if there is some."""
        choice: LatentChoice = self(batch)
        evidence = None if batch.evidence is None else batch.evidence.to(self.head.output.weight)
        return choice.observe(batch.target, side_evidence=evidence)
