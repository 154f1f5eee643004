"""What `wrap` needs of a model: encoder states, decoder states, word vectors and an output layer."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from latentalign.errors import InputError

NEEDED = {
    "output": "the output layer, a torch.nn.Linear whose input is a decoder state",
    "start": "the id of the token that the decoder sees before the first output",
    "end": "the id of the token that ends an output",
    "pad": "the id at padding",
    "embed": "embed(source) -> (B, T, E), a vector for every source token, whatever its neighbours",
    "encode": "encode(source, *, exists) -> (B, T, D), the encoder states",
    "decode": "decode(previous, memory, *, exists) -> (B, S, H), the states that enter the output layer",
}
"""The parts of an `EncoderDecoder`, and what each of them is."""


@runtime_checkable
class EncoderDecoder(Protocol):
    """A module with an encoder, a decoder and a linear output layer.

    Token ids are (B, T) and (B, S), padded on the right. `exists` is True where a source token exists, the opposite of
    PyTorch's `key_padding_mask`. `previous` has `start` and then the outputs before each position; padding at its end
    must not change earlier states, so the decoder's self-attention is causal.
    """

    output: nn.Linear
    start: int
    end: int
    pad: int

    def embed(self, source: Int[Tensor, "B T"], /) -> Float[Tensor, "B T E"]:
        """A vector for every source token, which does not depend on its neighbours."""

    def encode(self, source: Int[Tensor, "B T"], /, *, exists: Bool[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        """The encoder states."""

    def decode(
        self,
        previous: Int[Tensor, "B S"],
        memory: Float[Tensor, "B T D"],
        /,
        *,
        exists: Bool[Tensor, "B T"],
    ) -> Float[Tensor, "B S H"]:
        """The decoder states, as they enter the output layer."""


def check_parts(model: nn.Module) -> None:
    """Raise unless a module has all parts of an `EncoderDecoder`; the message says what is missing."""
    missing = [f"{name}: {meaning}" for name, meaning in NEEDED.items() if not hasattr(model, name)]
    if missing:
        raise InputError(
            f"{type(model).__name__} cannot be wrapped: it is no encoder-decoder of Hugging Face's transformers, and "
            f"it lacks {'; '.join(missing)}. Add them, for example in a small module around it (docs/wrap.md)"
        )
    if type(model.output) is not nn.Linear:
        raise InputError(
            f"{type(model).__name__}.output must be a torch.nn.Linear, got a {type(model.output).__name__}"
        )
