"""A transformer decoder with one latent alignment on top of its stack.

All queries of a known target are computed at once. `step` computes one more query from the keys and values of the
positions before it. Attention inside the layers is soft; only the scores on top decide about z.
"""

from __future__ import annotations

from itertools import zip_longest

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from latentalign.core.linear import Linear
from latentalign.core.numerics import at_least_float32, masked_log_softmax
from latentalign.core.scores import resolve_score
from latentalign.nn.attention_decoder import DecoderState
from latentalign.nn.transformer import LayerSizes, Stack, initialise, key_mask, scale_words


class TransformerDecoder(nn.Module):
    """States of y_<j that have looked at the source, the scores of every member, and the queries of the head.

    The scores, which decide about z_j, always come from the last state. With `lagged_layers` = 0, this state is the
    query of the head too. It may then have seen the right member already, and z explains little. With more, the query
    is *lagged*: it comes from so many layers of causal self-attention over the words before y_j and what the last
    attention to the source found one position earlier. This corresponds to the input feeding of recurrent decoders.

    With `feed_expected`, the query sees E_p[x]: the mean of `memory` under the softmax of the scores. It is added to a
    full state, and takes the place of what attention found in a lagged one. The scores then also learn as in soft
    attention. As in the recurrent decoder, the mean knows nothing of NULL, transitions, zeros of a sparse prior and
    further looks.

    Only the lowest `cross_layers` layers look at the source; all of them if it is None.
    """

    def __init__(
        self,
        sizes: LayerSizes,
        layers: int,
        *,
        score: str | nn.Module,
        lagged_layers: int = 0,
        cross_layers: int | None = None,
        feed_expected: bool = False,
    ) -> None:
        super().__init__()
        width = sizes.width
        self.cross_layers = layers if cross_layers is None else cross_layers
        self.stack = Stack(sizes, layers, cross=self.cross_layers)
        self.score = resolve_score(score, query_dim=width, memory_dim=width, hidden=width)
        self.lagged = Stack(sizes, lagged_layers) if lagged_layers else None
        self.feed_expected = feed_expected
        self.from_found = Linear(width, width) if lagged_layers or feed_expected else None
        if self.from_found is not None:
            initialise(self.from_found, 1)
            if not lagged_layers:  # so that a model that is trained without it can go on with it
                nn.init.zeros_(self.from_found.weight)
        self.width = width

    def forward(
        self,
        words: Float[Tensor, "B S W"],
        word_mask: Bool[Tensor, "B S"],
        memory: Float[Tensor, "B T W"],
        *,
        mask: Bool[Tensor, "B T"],
    ) -> tuple[Float[Tensor, "B S W"], Float[Tensor, "B S T"]]:
        """Queries and scores of every position of a known target; their values in padding have no meaning."""
        words = scale_words(words, word_mask)
        x, rotation = self.stack.place(words)
        keys, found, members = key_mask(mask), x, self.project_layers(memory)
        for layer, part in zip_longest(self.stack.layer_list(), members):
            x = layer(x, rotation=rotation, causal=True)
            if part is not None:
                x, found = layer.look(x, part, keys, rotation=rotation)
            x = layer.finish(x)
        state = self.stack.norm(x)
        scores: Tensor = self.score(state, memory.unsqueeze(1))
        if self.from_found is None:
            return state, scores
        if self.feed_expected:
            found = expected_member(scores, memory, mask.unsqueeze(1))
        if self.lagged is None:
            return state + self.from_found(found), scores
        # One position later. The first word follows no look at the source.
        x = words + F.pad(self.from_found(found), (0, 0, 1, 0))[:, :-1]
        x, rotation = self.lagged.place(x)
        for layer in self.lagged.layer_list():
            x = layer.finish(layer(x, rotation=rotation, causal=True))
        return self.lagged.norm(x), scores

    def project(self, memory: Float[Tensor, "B T W"]) -> Float[Tensor, "B T A"]:
        """What `step` needs of the source, computed once: the score's share, then keys and values of every layer."""
        return torch.cat([self.score.project(memory), *self.project_layers(memory)], -1)

    def project_layers(self, memory: Float[Tensor, "B T W"]) -> list[Float[Tensor, "B T two_W"]]:
        """Keys and values of the source for every layer that looks at it."""
        rotation = self.stack.rotation_of(memory)
        layers = self.stack.layer_list()[: self.cross_layers]
        return [layer.cross_attention.project(memory, rotation) for layer in layers]

    def start(self, n: int, like: Tensor) -> DecoderState:
        """The state before the first word: no keys and values, and nothing found."""
        stacks = {"keys": self.stack, "lagged": self.lagged}
        state = {
            f"{name}.{i}": like.new_zeros(n, 0, 2 * self.width)
            for name, stack in stacks.items()
            if stack is not None
            for i in range(len(stack.layers))
        }
        if self.lagged is not None:
            state["found"] = like.new_zeros(n, self.width)
        return state

    def step(
        self,
        words: Float[Tensor, "n W"],
        state: DecoderState,
        memory: Float[Tensor, "n T W"],
        projected: Float[Tensor, "n T A"],
        *,
        mask: Bool[Tensor, "n T"],
    ) -> tuple[Float[Tensor, "n W"], Float[Tensor, "n T"], DecoderState]:
        """Query, scores and next state of one position, for decoding. All hypotheses have the same length."""
        layers = self.stack.layer_list()
        after: DecoderState = {}
        seen = state["keys.0"].shape[1]
        per_layer = [2 * self.width] * self.cross_layers
        score, *members = projected.split([projected.shape[-1] - sum(per_layer), *per_layer], -1)
        word = scale_words(words.unsqueeze(1), mask.new_ones(len(words), 1))
        x, rotation = self.stack.place(word, seen)
        keys, found = key_mask(mask), x
        for i, (layer, part) in enumerate(zip_longest(layers, members)):
            x, after[f"keys.{i}"] = layer.step(x, state[f"keys.{i}"], rotation)
            if part is not None:
                x, found = layer.look(x, part, keys, rotation=rotation)
            x = layer.finish(x)
        query = self.stack.norm(x).squeeze(1)
        scores = self.score.scores(query, score)
        after["context"] = expected_member(scores.unsqueeze(1), memory, mask.unsqueeze(1)).squeeze(1)
        if self.from_found is None:
            return query, scores, after
        if self.feed_expected:
            found = after["context"].unsqueeze(1)
        if self.lagged is None:
            return query + self.from_found(found).squeeze(1), scores, after
        after["found"] = self.from_found(found).squeeze(1)
        x, rotation = self.lagged.place(word + state["found"].unsqueeze(1), seen)
        for i, layer in enumerate(self.lagged.layer_list()):
            x, after[f"lagged.{i}"] = layer.step(x, state[f"lagged.{i}"], rotation)
            x = layer.finish(x)
        return self.lagged.norm(x).squeeze(1), scores, after


def expected_member(
    scores: Float[Tensor, "B S T"], memory: Float[Tensor, "B T D"], mask: Bool[Tensor, "B #S T"]
) -> Float[Tensor, "B S D"]:
    """E_p[x] for p = softmax(scores); zero without members."""
    log_weight = masked_log_softmax(at_least_float32(scores), mask.expand(scores.shape))
    return log_weight.exp().to(memory.dtype) @ memory
