"""Transformer layers with soft attention, and the encoder.

Layers are pre-norm: x + f(norm(x)), with a last norm after the stack (Xiong et al. 2020). Positions are rotary (Su et
al. 2021), in attention to the source too, or learned. Padding is replaced by zeros on the way in and is never attended
to, so it may hold anything.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, cast

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from latentalign.core.linear import Linear
from latentalign.nn.dropout import Dropout

Positions = Literal["rotary", "learned"]
ROTARY_BASE = 10000.0
POSITION_SIZE = 0.5
"""Standard deviation of new learned positions. Embedded words have about 1."""


@dataclass(frozen=True)
class LayerSizes:
    """Sizes that all layers of a transformer share."""

    width: int
    heads: int
    inner: int
    """Hidden units of the feed-forward layers."""
    dropout: float = 0.0
    positions: Positions = "rotary"
    max_positions: int = 1024
    """Number of learned positions. All positions beyond share the last one."""

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise ValueError(f"a width of {self.width} cannot be divided among {self.heads} heads")
        if self.positions == "rotary" and self.width // self.heads % 2:
            raise ValueError(
                f"rotary positions need heads of even size, but {self.width} / {self.heads} is odd"
            )


@dataclass(frozen=True, eq=False)
class Rotation:
    """Rotary positions: turn pairs of numbers of a query or key by angles that grow with its position."""

    cos: Float[Tensor, "S half"]
    sin: Float[Tensor, "S half"]

    @classmethod
    def of(cls, start: int, count: int, *, size: int, like: Tensor) -> Rotation:
        """The rotations of the positions from `start` on, for heads of some size."""
        dtype = torch.promote_types(like.dtype, torch.float32)
        position = torch.arange(start, start + count, device=like.device, dtype=dtype)
        pair = torch.arange(0, size, 2, device=like.device, dtype=dtype)
        angle = position.unsqueeze(1) * ROTARY_BASE ** (-pair / size)
        return cls(angle.cos(), angle.sin())

    def __call__(self, x: Float[Tensor, "n h S d"]) -> Float[Tensor, "n h S d"]:
        a, b = x.chunk(2, -1)
        turned = torch.cat([a * self.cos - b * self.sin, a * self.sin + b * self.cos], -1)
        return turned.to(x.dtype)


class Attention(nn.Module):
    """Soft attention with several heads: the queries of x look at projected members."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.query = Linear(width, width)
        self.members = Linear(width, 2 * width)
        self.output = Linear(width, width)
        self.heads = heads

    def split(self, x: Float[Tensor, "n S W"]) -> Float[Tensor, "n h S d"]:
        """Heads as a dimension of their own."""
        return x.view(*x.shape[:-1], self.heads, -1).transpose(1, 2)

    def join(self, x: Float[Tensor, "n h S d"]) -> Float[Tensor, "n S W"]:
        """The opposite of `split`."""
        return x.transpose(1, 2).flatten(2)

    def forward(
        self,
        x: Float[Tensor, "n S W"],
        projected: Float[Tensor, "n T two_W"],
        *,
        mask: Bool[Tensor, "n 1 1 T"] | None = None,
        causal: bool = False,
        rotation: Rotation | None = None,
    ) -> Float[Tensor, "n S W"]:
        """The output for every row of x. Keys are already rotated, queries are not. A mask is True where to look."""
        query = self.split(self.query(x))
        query = query if rotation is None else rotation(query)
        key, value = (self.split(part) for part in projected.chunk(2, -1))
        found = F.scaled_dot_product_attention(
            query, key.to(query.dtype), value.to(query.dtype), attn_mask=mask, is_causal=causal
        )
        out: Tensor = self.output(self.join(found))
        return out

    def project(
        self, x: Float[Tensor, "n T W"], rotation: Rotation | None = None
    ) -> Float[Tensor, "n T two_W"]:
        """Keys and values of the members x, side by side."""
        projected: Tensor = self.members(x)
        if rotation is None:
            return projected
        key, value = projected.chunk(2, -1)
        return torch.cat([self.join(rotation(self.split(key))), value], -1)


class FeedForward(nn.Sequential):
    """Two linear layers with GELU between them."""

    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__(
            Linear(sizes.width, sizes.inner),
            nn.GELU(),
            Dropout(sizes.dropout),
            Linear(sizes.inner, sizes.width),
        )


class Layer(nn.Module):
    """Self-attention, attention to a source if `cross` is set, and a feed-forward layer."""

    def __init__(self, sizes: LayerSizes, *, cross: bool = False) -> None:
        super().__init__()
        width, heads = sizes.width, sizes.heads
        self.self_norm, self.self_attention = nn.LayerNorm(width), Attention(width, heads)
        if cross:
            self.cross_norm, self.cross_attention = nn.LayerNorm(width), Attention(width, heads)
        self.inner_norm, self.inner = nn.LayerNorm(width), FeedForward(sizes)
        self.dropout = Dropout(sizes.dropout)

    def forward(
        self,
        x: Float[Tensor, "n S W"],
        *,
        rotation: Rotation | None,
        mask: Bool[Tensor, "n 1 1 S"] | None = None,
        causal: bool = False,
    ) -> Float[Tensor, "n S W"]:
        """Self-attention within x; `finish` does the rest."""
        normed = self.self_norm(x)
        projected = self.self_attention.project(normed, rotation)
        found = self.self_attention(normed, projected, mask=mask, causal=causal, rotation=rotation)
        return x + cast(Tensor, self.dropout(found))

    def step(
        self, x: Float[Tensor, "n 1 W"], cache: Float[Tensor, "n t two_W"], rotation: Rotation | None
    ) -> tuple[Float[Tensor, "n 1 W"], Float[Tensor, "n after two_W"]]:
        """`forward` for the newest position alone, and the keys and values of all positions so far."""
        normed = self.self_norm(x)
        cache = torch.cat([cache, self.self_attention.project(normed, rotation)], 1)
        return x + self.self_attention(normed, cache, rotation=rotation), cache

    def look(
        self,
        x: Float[Tensor, "n S W"],
        projected: Float[Tensor, "n T two_W"],
        mask: Bool[Tensor, "n 1 1 T"],
        *,
        rotation: Rotation | None,
    ) -> tuple[Float[Tensor, "n S W"], Float[Tensor, "n S W"]]:
        """x after attention to the projected source, and what the attention found."""
        found: Tensor = self.cross_attention(self.cross_norm(x), projected, mask=mask, rotation=rotation)
        return x + self.dropout(found), found

    def finish(self, x: Float[Tensor, "n S W"]) -> Float[Tensor, "n S W"]:
        """The feed-forward layer."""
        return x + cast(Tensor, self.dropout(self.inner(self.inner_norm(x))))


class Stack(nn.Module):
    """Layers with a last norm, and the positions that they share. The lowest `cross` layers look at a source."""

    def __init__(self, sizes: LayerSizes, layers: int, *, cross: int = 0) -> None:
        super().__init__()
        self.sizes = sizes
        self.layers = nn.ModuleList([Layer(sizes, cross=i < cross) for i in range(layers)])
        self.norm = nn.LayerNorm(sizes.width)
        learned = sizes.positions == "learned"
        self.positions = nn.Embedding(sizes.max_positions, sizes.width) if learned else None
        initialise(self, layers)

    def place(
        self, x: Float[Tensor, "n S W"], start: int = 0
    ) -> tuple[Float[Tensor, "n S W"], Rotation | None]:
        """x with learned positions, or the rotation that stands for its positions."""
        if self.positions is None:
            return x, self.rotation_of(x, start)
        position = torch.arange(start, start + x.shape[1], device=x.device)
        added: Tensor = self.positions(position.clamp_max(self.positions.num_embeddings - 1))
        return x + added, None

    def rotation_of(self, x: Float[Tensor, "n S W"], start: int = 0) -> Rotation | None:
        """The rotation of the positions of x; None if positions are learned."""
        size = self.sizes.width // self.sizes.heads
        rotary = self.sizes.positions == "rotary"
        return Rotation.of(start, x.shape[1], size=size, like=x) if rotary else None

    def layer_list(self) -> list[Layer]:
        """The layers, the lowest first."""
        return [cast(Layer, layer) for layer in self.layers]


class TransformerEncoder(Stack):
    """Members of the source, each seen in the context of all. The output is zero in padding."""

    def __init__(self, sizes: LayerSizes, layers: int) -> None:
        super().__init__(sizes, layers)
        self.output_size = sizes.width

    def forward(self, x: Float[Tensor, "B T W"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B T W"]:
        h, rotation = self.place(scale_words(x, mask))
        keys = key_mask(mask)
        for layer in self.layer_list():
            h = layer.finish(layer(h, rotation=rotation, mask=keys))
        out: Tensor = self.norm(h).masked_fill(~mask.unsqueeze(-1), 0.0)
        return out


def scale_words(x: Float[Tensor, "B S W"], mask: Bool[Tensor, "B S"]) -> Float[Tensor, "B S W"]:
    """Embedded words at unit scale, and zeros in padding.

    New embeddings have a standard deviation of W^-1/2, because the output layer shares them.
    """
    return x.masked_fill(~mask.unsqueeze(-1), 0.0) * math.sqrt(x.shape[-1])


def key_mask(mask: Bool[Tensor, "B T"]) -> Bool[Tensor, "B 1 1 T"]:
    """Where attention may look. An example without any member looks at zeros instead, as softmax needs a member."""
    return (mask | ~mask.any(1, keepdim=True)).unsqueeze(1).unsqueeze(1)


def initialise(module: nn.Module, layers: int) -> None:
    """Glorot's uniform weights, biases of zero, and norms as they are.

    The last layer of every residual branch is smaller, so that the sum over a deep stack starts at unit scale.
    """
    for name, part in module.named_modules():
        if isinstance(part, nn.Linear):
            is_last = name.endswith((".output", ".inner.3"))
            nn.init.xavier_uniform_(part.weight, gain=(2 * max(1, layers)) ** -0.5 if is_last else 1.0)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
        elif isinstance(part, nn.Embedding):
            nn.init.normal_(part.weight, std=POSITION_SIZE)
