"""The recipe's `[model]`: the networks around the latent alignment, LSTMs as in the paper or a transformer."""

from __future__ import annotations

from typing import Any, Literal, cast

from pydantic import Field, field_validator, model_validator
from torch import nn

from latentalign.config import Section
from latentalign.core.kernels.likelihood import MAX_LOGITS
from latentalign.core.registry import SCORES
from latentalign.core.scores import Score, resolve_score
from latentalign.nn.attention_decoder import AttentionDecoder
from latentalign.nn.heads import MLPHead, ResidualHead
from latentalign.nn.recurrent import LSTMStack
from latentalign.nn.transformer import LayerSizes, TransformerEncoder, initialise
from latentalign.nn.transformer_decoder import TransformerDecoder

ONLY = {
    "lstm": ("encoder_size", "decoder_size", "attention_size", "head_size", "init"),
    "transformer": (
        "heads",
        "feedforward",
        "positions",
        "max_positions",
        "cross_layers",
        "emission_state",
        "lagged_layers",
        "feed_expected",
        "emission_bottleneck",
        "emission_drop",
    ),
}
"""The keys that apply to one backbone alone."""
SCORE_OF = {"lstm": "mlp", "transformer": "scaled-dot"}
"""The attention score that a backbone has unless a recipe says otherwise."""


class ModelConfig(Section):
    """Sizes of the generative model."""

    alternatives = tuple(frozenset(keys) for keys in ONLY.values())

    backbone: Literal["lstm", "transformer"] = "lstm"
    """`lstm`: the paper's encoder and decoder. `transformer`: a pre-norm transformer with a latent alignment on top."""
    embedding: int = Field(512, ge=1)
    """Size of word embeddings. In a transformer, every layer has this size."""
    joint_embedding: bool = False
    """Share word embeddings between both languages. Needs `tokenizer.joint`. A transformer's output layer always
    shares the target embedding."""
    encoder_layers: int = Field(2, ge=1)
    """Layers of the encoder."""
    encoder_size: int = Field(512, ge=1)
    """`lstm`: units of the encoder in each direction."""
    decoder_layers: int = Field(2, ge=1)
    """Layers of the decoder."""
    decoder_size: int = Field(768, ge=1)
    """`lstm`: units of the decoder."""
    attention: str = "mlp"
    """How a decoder state scores a source position: mlp, bilinear, dot, scaled-dot or another registered score. If a
    recipe does not set it, a transformer has scaled-dot."""
    attention_size: int = Field(768, ge=1)
    """`lstm`: hidden units of MLP attention scores."""
    head_size: int = Field(768, ge=1)
    """`lstm`: hidden units of the head, which predicts a word from decoder state and source position."""
    emission: Literal["state", "word+state", "word"] = "state"
    """What the head sees of a source position: the encoder's state, which also knows the neighbouring words; the
    embedding of the word itself; or both."""
    dropout: float = Field(0.3, ge=0, lt=1)
    """Dropout rate."""
    init: float = Field(0.1, gt=0)
    """`lstm`: parameters start uniformly distributed between -init and init."""
    heads: int = Field(4, ge=1)
    """`transformer`: heads of each attention inside the layers. They divide `embedding`."""
    feedforward: int | None = Field(None, ge=1)
    """`transformer`: hidden units of feed-forward layers. If unset, four times `embedding`."""
    positions: Literal["rotary", "learned"] = "rotary"
    """`transformer`: how layers know the order of words."""
    max_positions: int = Field(1024, ge=1)
    """`transformer`: number of learned positions. Tokens beyond share the last one."""
    cross_layers: int | None = Field(None, ge=1)
    """`transformer`: how many decoder layers, the lowest ones, attend to the source. If unset, all."""
    emission_state: Literal["full", "lagged"] = "full"
    """`transformer`: what the head sees besides the selected source position. `full`: the last decoder state, which
    may have looked at the right position already. `lagged`: a state that knows only what attention found one target
    position earlier, so that the selected position has more to explain."""
    lagged_layers: int = Field(2, ge=1)
    """`transformer`: layers of self-attention that compute the lagged state."""
    feed_expected: bool = False
    """`transformer`: let the head see E_p[x], the mean of the encoder's states under the attention scores, as the
    paper's LSTM decoder does. The prior then also learns as in soft attention. A full state sees the mean of its own
    target position; a lagged state sees that of the one before, in place of what attention found there."""
    emission_bottleneck: int | None = Field(None, ge=1)
    """`transformer`: how many numbers of the state reach the head. If unset, all."""
    emission_drop: float = Field(0.0, ge=0, lt=1)
    """`transformer`: share of target positions at which the head does not see the state in training."""
    max_logits: int = Field(MAX_LOGITS, ge=1)
    """Largest number of logits in memory at once. It limits memory and never changes results."""

    @model_validator(mode="before")
    @classmethod
    def _choose_score(cls, values: Any) -> Any:
        """Let a complete recipe state the score that its backbone has by default."""
        if not isinstance(values, dict) or "attention" in values:
            return values
        name = SCORE_OF.get(str(values.get("backbone", "lstm")))
        return values if name is None else {**values, "attention": name}

    @field_validator("attention")
    @classmethod
    def _is_registered(cls, name: str) -> str:
        SCORES[name]  # an unknown name raises an error that suggests the nearest one
        return name

    @model_validator(mode="after")
    def _check_keys(self) -> ModelConfig:
        """Refuse keys that this backbone would ignore, and sizes that do not fit."""
        fields, other = type(self).model_fields, {"lstm": "transformer", "transformer": "lstm"}[self.backbone]
        for name in ONLY[other]:
            if getattr(self, name) != fields[name].default:
                raise ValueError(
                    f'model.{name} has no effect if model.backbone is "{self.backbone}"; remove it, or set '
                    f'model.backbone = "{other}"'
                )
        if self.backbone == "transformer":
            lagged, default = self.emission_state == "lagged", fields["lagged_layers"].default
            if not lagged and self.lagged_layers != default:
                raise ValueError('model.lagged_layers needs model.emission_state = "lagged"')
            if self.cross_layers is not None and self.cross_layers > self.decoder_layers:
                raise ValueError(
                    f"model.cross_layers is larger than model.decoder_layers ({self.decoder_layers})"
                )
            try:
                _ = self.layer_sizes
            except ValueError as error:
                raise ValueError(f"model.heads: {error}") from None
        return self

    @property
    def memory_dim(self) -> int:
        """Size of the encoder's members."""
        return self.embedding if self.backbone == "transformer" else 2 * self.encoder_size

    @property
    def member_dim(self) -> int:
        """Size of what the head sees of a source position."""
        state = self.memory_dim
        return {"state": state, "word": self.embedding, "word+state": self.embedding + state}[self.emission]

    @property
    def word_scale(self) -> float:
        """The factor that brings embedded words to the scale of states, for a head that sees both."""
        return self.embedding**0.5 if self.backbone == "transformer" else 1.0

    @property
    def query_dim(self) -> int:
        """Size of the decoder's queries."""
        return self.embedding if self.backbone == "transformer" else self.decoder_size

    @property
    def inference_size(self) -> int:
        """Units, in each direction, of an inference network that is as wide as the encoder."""
        return max(1, self.embedding // 2) if self.backbone == "transformer" else self.encoder_size

    @property
    def layer_sizes(self) -> LayerSizes:
        """Sizes of a transformer's layers."""
        inner = 4 * self.embedding if self.feedforward is None else self.feedforward
        return LayerSizes(self.embedding, self.heads, inner, self.dropout, self.positions, self.max_positions)

    def build_score(self) -> Score:
        """A new score of source positions."""
        hidden = self.embedding if self.backbone == "transformer" else self.attention_size
        return resolve_score(
            self.attention, query_dim=self.query_dim, memory_dim=self.memory_dim, hidden=hidden
        )

    def build_encoder(self) -> LSTMStack | TransformerEncoder:
        """The network that turns embedded source words into members."""
        if self.backbone == "transformer":
            return TransformerEncoder(self.layer_sizes, self.encoder_layers)
        return LSTMStack(self.embedding, self.encoder_size, self.encoder_layers, dropout=self.dropout)

    def build_decoder(self) -> AttentionDecoder | TransformerDecoder:
        """The network that gives the query and the scores of every target position."""
        score = cast(nn.Module, self.build_score())
        if self.backbone == "transformer":
            lagged = self.lagged_layers if self.emission_state == "lagged" else 0
            return TransformerDecoder(
                self.layer_sizes,
                self.decoder_layers,
                score=score,
                lagged_layers=lagged,
                cross_layers=self.cross_layers,
                feed_expected=self.feed_expected,
            )
        return AttentionDecoder(
            self.embedding,
            self.decoder_size,
            self.decoder_layers,
            memory_dim=self.memory_dim,
            score=score,
            dropout=self.dropout,
        )

    @property
    def head_dim(self) -> int:
        """Hidden units of the head."""
        return self.embedding if self.backbone == "transformer" else self.head_size

    def build_head(self, target: nn.Embedding, member_dim: int) -> MLPHead | ResidualHead:
        """The head, which sees members of this size. A transformer's output layer is the target embedding."""
        sizes = (self.query_dim, member_dim, target.num_embeddings)
        if self.backbone == "lstm":
            return MLPHead(*sizes, hidden=self.head_size, dropout=self.dropout)
        head = ResidualHead(
            *sizes,
            hidden=self.embedding,
            dropout=self.dropout,
            bottleneck=self.emission_bottleneck,
            query_drop=self.emission_drop,
        )
        initialise(head, 1)
        head.output.weight = target.weight
        return head

    def initialise(self, model: nn.Module) -> None:
        """The random weights of a new model; the layers of a transformer have theirs already."""
        if self.backbone == "lstm":
            for parameter in model.parameters():
                nn.init.uniform_(parameter, -self.init, self.init)
            return
        for name, part in model.named_children():
            if isinstance(part, nn.Embedding):
                nn.init.normal_(part.weight, std=self.embedding**-0.5)
            elif name == "inference":
                for parameter in part.parameters():
                    nn.init.uniform_(parameter, -self.init, self.init)
