"""The two latent alignments around a model: one that translates with it, one that explains its outputs by words."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from latentalign.core.heads import FactoredHead
from latentalign.core.kernels.fused_softmax import linear_log_prob
from latentalign.core.kernels.likelihood import MAX_LOGITS
from latentalign.core.latent import Latent
from latentalign.core.linear import Linear
from latentalign.core.scores import ScaledDotScore
from latentalign.nn.chain_prior import ChainPrior

States = tuple[Tensor, Tensor]
"""Decoder states (B, S, H) and encoder states (B, T, D)."""
NULL = -2.0
"""Log odds of NULL before training: 12 %."""


class ShiftedHead(FactoredHead):
    """softmax(W (x~ + B X z) + b): a model's own output layer, whose input the selected member shifts.

    B starts at zero. Every member then predicts what the model predicts without any.
    """

    def __init__(self, memory_dim: int, output: nn.Linear) -> None:
        super().__init__()
        self.from_memory = Linear(memory_dim, output.in_features, bias=False)
        nn.init.zeros_(self.from_memory.weight)
        self.output = output

    def memory_part(self, context: Float[Tensor, "*n D"]) -> Float[Tensor, "*n H"]:
        part: Tensor = self.from_memory(context)
        return part

    def query_part(self, query: Float[Tensor, "*n H"]) -> Float[Tensor, "*n H"]:
        return query

    def hidden(
        self, query_part: Float[Tensor, "*n H"], memory_part: Float[Tensor, "*n H"]
    ) -> Float[Tensor, "*n H"]:
        return query_part + memory_part

    def hidden_by_row(self) -> bool:
        return type(self).hidden is ShiftedHead.hidden


class Lexicon(nn.Module):
    """log p(y | x_i) = log softmax(W g(x_i) + b)[y]: outputs from a source word alone.

    W is the model's own output layer, divided by the typical length of its rows, and does not learn. g has one hidden
    layer.
    """

    def __init__(self, word_dim: int, output: nn.Linear, hidden: int) -> None:
        super().__init__()
        self.first = Linear(word_dim, hidden)
        self.second = Linear(hidden, output.in_features)
        self.bias = nn.Parameter(torch.zeros(output.out_features))

    def forward(
        self, words: Float[Tensor, "B T E"], target: Int[Tensor, "B S"], weight: Float[Tensor, "V H"]
    ) -> Float[Tensor, "B S T"]:
        """log p(y_j | x_i) of every output and word; one softmax for each word."""
        weight = weight / weight.norm(dim=1).mean()
        hidden = self.second(torch.relu(self.first(words)))
        logits = weight[target] @ hidden.transpose(1, 2) + self.bias[target].unsqueeze(-1)
        # The normaliser of a word is the difference between a logit and its log-probability, of any output.
        any_output = target[:, :1].expand(words.shape[:2])
        rows = linear_log_prob(
            hidden.flatten(0, 1), weight, self.bias, any_output.flatten(), max_logits=MAX_LOGITS
        )
        normaliser = logits[:, 0] - rows.view(any_output.shape)
        table: Tensor = logits - normaliser.unsqueeze(1)
        return table


class AlignmentLayer(nn.Module):
    """z_j from a jump chain with NULL, y_j from the word that z_j selects and from nothing else.

    The emission sees no state of the model, so that z has to explain y. The prior sees decoder and encoder states if
    they are given. A decoder state nearly knows y_j: a prior that saw it from the start would make z a code for y_j,
    and not the place where y_j comes from. So the prior is blind at first: its scores are zero until `score` learns.
    """

    def __init__(
        self, query_dim: int, memory_dim: int, word_dim: int, *, output: nn.Linear, hidden: int
    ) -> None:
        super().__init__()
        self.score = ScaledDotScore(query_dim, memory_dim, hidden)
        nn.init.zeros_(self.score.from_query.weight)
        self.chain = ChainPrior("jump", query_dim, memory_dim, null=True, member_dim=word_dim)
        nn.init.zeros_(self.chain.null_score.weight)
        nn.init.constant_(self.chain.null_score.bias, NULL)
        self.lexicon = Lexicon(word_dim, output, hidden)

    def forward(
        self,
        words: Float[Tensor, "B T E"],
        target: Int[Tensor, "B S"],
        states: States | None,
        *,
        mask: Bool[Tensor, "B S T"],
        weight: Float[Tensor, "V H"],
    ) -> Latent:
        """The alignments of observed outputs, blind without states; `mask` is True where both tokens exist."""
        words = normalise(words)
        table = self.lexicon(self.chain.append_null(words), target, weight)
        if states is None:
            scores = words.new_zeros(mask.shape)
            query = words.new_zeros(*target.shape, self.chain.null_score.in_features)
        else:
            query, memory = (normalise(each) for each in states)
            scores = self.score(query, memory.unsqueeze(1))
        chain = self.chain(scores, mask, query, words)  # the memory of a jump chain is not used
        return Latent(chain, lambda z: z.select(table))

    def prior_parameters(self) -> list[nn.Parameter]:
        """The parameters of the prior, without the member that stands for NULL, which the emission uses."""
        emitted = self.chain.null_member
        return [*self.score.parameters(), *(p for p in self.chain.parameters() if p is not emitted)]


def normalise(states: Float[Tensor, "*n D"]) -> Float[Tensor, "*n D"]:
    """Vectors of mean 0 and variance 1, so that models of every scale learn at the same rate."""
    return F.layer_norm(states, states.shape[-1:])
