"""Encoder-decoders of Hugging Face's transformers (MarianMT, T5, BART and others) as an `EncoderDecoder`.

`transformers` is not imported: a model brings everything along. Nothing is assumed about the way from the decoder to
the logits. `HuggingFaceModel` looks at one forward pass, and refuses a model whose logits it cannot explain.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from latentalign.errors import InputError
from latentalign.wrapping.fitting import evaluating

LogProbs = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(decoder states (n, S, H), encoder states (n, T, D), exists (n, T)) -> log-probabilities (n, S, V)."""


def is_huggingface(model: object) -> bool:
    """Whether an object is a model of `transformers`, which is looked at only if it is imported already."""
    library = sys.modules.get("transformers")
    return library is not None and isinstance(model, library.PreTrainedModel)


class HuggingFaceModel(nn.Module):
    """A model of `transformers` with the parts of an `EncoderDecoder`; its weights are shared, not copied."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        name, config = type(model).__name__, model.config
        if not getattr(config, "is_encoder_decoder", False):
            raise InputError(f"{name} has no encoder and decoder; wrap a MarianMT, T5, BART or similar model")
        if not isinstance(model.get_output_embeddings(), nn.Linear):
            raise InputError(
                f"{name} has no linear output layer; wrap the class that generates text, such as "
                "AutoModelForSeq2SeqLM"
            )
        self.model = model
        self.output = output_layer(model)
        self.start = require_id(config, "decoder_start_token_id", name)
        self.end = require_id(config, "eos_token_id", name)
        self.pad = require_id(config, "pad_token_id", name)
        self.longest: int | None = getattr(config, "max_position_embeddings", None)
        self.scale = 1.0
        self.scale = find_scale(self)

    def embed(self, source: Int[Tensor, "B T"]) -> Float[Tensor, "B T E"]:
        """The word embeddings of the encoder."""
        found: Tensor = self.model.get_encoder().get_input_embeddings()(source)
        return found

    def encode(self, source: Int[Tensor, "B T"], *, exists: Bool[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        """The encoder states."""
        encoder = self.model.get_encoder()
        found: Tensor = encoder(input_ids=source, attention_mask=exists.long()).last_hidden_state
        return found

    def decode(
        self, previous: Int[Tensor, "B S"], memory: Float[Tensor, "B T D"], *, exists: Bool[Tensor, "B T"]
    ) -> Float[Tensor, "B S H"]:
        """The decoder states, with T5's scaling for tied embeddings if the model has it."""
        found: Tensor = self.model.get_decoder()(
            input_ids=previous,
            encoder_hidden_states=memory,
            encoder_attention_mask=exists.long(),
            use_cache=False,
        ).last_hidden_state
        return found if self.scale == 1.0 else found * self.scale

    def generate(
        self,
        source: Int[Tensor, "B T"],
        *,
        exists: Bool[Tensor, "B T"],
        log_probs: LogProbs | None,
        **options: Any,
    ) -> Int[Tensor, "n S"]:
        """The sequences of the model's own `generate`; with `log_probs`, of another output distribution."""
        inputs = {"input_ids": source, "attention_mask": exists.long()}
        options |= {"return_dict_in_generate": True}
        if log_probs is None:
            found = self.model.generate(**inputs, **options)
        else:
            with replaced_logits(self.model, log_probs):
                found = self.model.generate(**inputs, **options)
        return cast(Tensor, found.sequences)


def require_id(config: Any, name: str, model: str) -> int:
    """The id of a special token of a model."""
    found = getattr(config, name, None)
    found = found[0] if isinstance(found, list | tuple) and found else found
    if not isinstance(found, int):
        raise InputError(f"the configuration of {model} has no {name}; set model.config.{name}")
    return found


def output_layer(model: Any) -> nn.Linear:
    """The model's own W and b as one linear layer; b is that of the layer plus `final_logits_bias`."""
    head = model.get_output_embeddings()
    layer = nn.Linear(head.in_features, head.out_features, bias=False, device="meta")
    layer.weight = head.weight
    extra = getattr(model, "final_logits_bias", None)
    if extra is None:
        layer.bias = head.bias
    else:
        del layer.bias  # a parameter by default; this one is a buffer, which training leaves alone
        bias = extra.detach().flatten()
        layer.register_buffer("bias", bias if head.bias is None else bias + head.bias.detach())
    return layer


def find_scale(base: HuggingFaceModel) -> float:
    """The factor between the decoder's last state and the input of the output layer, seen in one forward pass.

    Raises unless W and b turn that state into the model's own log-probabilities.
    """
    model, device = base.model, base.output.weight.device
    source, previous = (torch.tensor([[token]], device=device) for token in (base.end, base.start))
    exists = torch.ones_like(source, dtype=torch.bool)
    seen: list[Tensor] = []
    with evaluating(model):
        handle = model.get_output_embeddings().register_forward_pre_hook(lambda _, args: seen.append(args[0]))
        try:
            logits = model(input_ids=source, attention_mask=exists.long(), decoder_input_ids=previous).logits
        finally:
            handle.remove()
        state = base.decode(previous, base.encode(source, exists=exists), exists=exists)
        scale = float((seen[0].double() * state.double()).sum() / state.double().square().sum())
        scale = 1.0 if abs(scale - 1) < 1e-3 else scale
        ours = base.output(state * scale).double().log_softmax(-1)
        error = float((ours - logits.double().log_softmax(-1)).nan_to_num(0.0).abs().max())
    if error > (1e-4 if state.dtype in (torch.float32, torch.float64) else 0.1):
        raise InputError(
            f"{type(model).__name__} cannot be wrapped: its log-probabilities differ by up to {error:.2g} from "
            "those of its output layer applied to its decoder states"
        )
    return scale


@contextmanager
def replaced_logits(model: Any, log_probs: LogProbs) -> Iterator[None]:
    """Let a model's forward pass return other log-probabilities in place of its logits.

    They are computed from the input of its output layer, and from the encoder states that `generate` passes on, one row
    for every hypothesis.
    """
    seen: list[Tensor] = []

    def keep(_: nn.Module, args: tuple[Tensor, ...]) -> None:
        seen[:] = [args[0]]

    def replace(_: nn.Module, __: Any, inputs: dict[str, Any], result: Any) -> Any:
        memory, exists = inputs["encoder_outputs"][0], inputs["attention_mask"].bool()
        result.logits = log_probs(seen.pop(), memory, exists)
        return result

    handles = [
        model.get_output_embeddings().register_forward_pre_hook(keep),
        model.register_forward_hook(replace, with_kwargs=True),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
