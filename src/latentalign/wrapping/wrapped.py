"""`wrap`: latent alignment around a model that somebody already has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from latentalign.core.choice import LatentChoice
from latentalign.core.distributions import Categorical
from latentalign.core.latent import Estimate, Latent
from latentalign.core.objectives import OBJECTIVES, Objective, marginal
from latentalign.core.predictives import exact_posterior
from latentalign.errors import CheckpointError, InputError
from latentalign.links.aligned import AlignedText, LinkRule
from latentalign.links.words import WordAlignment
from latentalign.nn.attention import LatentAttention, PosteriorNetwork
from latentalign.wrapping.encoder_decoder import EncoderDecoder, check_parts
from latentalign.wrapping.fitting import (
    FitSettings,
    Fitted,
    evaluating,
    group_pairs,
    in_mode,
    optimise,
    seeded,
)
from latentalign.wrapping.huggingface import HuggingFaceModel, is_huggingface
from latentalign.wrapping.layers import AlignmentLayer, ShiftedHead, States
from latentalign.wrapping.results import Generated, as_rows, cut_output, word_alignment
from latentalign.wrapping.saving import fingerprint, read_layers, write_layers
from latentalign.wrapping.text import Batch, Reader, Sentence, TokenPair, pad_rows

Mode = Literal["align", "translate"]
DEFAULTS = {"align": (8, 5e-3), "translate": (3, 1e-4)}
"""Epochs and learning rate of each mode."""
PRIOR_RATE = 0.4
"""Learning rate of the prior relative to that of the words."""
CACHE = 2_000_000_000
"""Bytes of a frozen model's states that `fit` keeps; if there are more, they are computed in every epoch."""
BATCH = 64
"""Sentence pairs that are aligned at a time."""


def wrap(
    model: nn.Module,
    folder: Path | str | None = None,
    *,
    tokenizer: Any = None,
    hidden: int = 256,
    seed: int = 0,
) -> Wrapped:
    """Latent alignment around a model: p(y_j | x, y_<j) = sum_z p(z | x, y_<j) softmax(W (d_j + B x_z) + b).

    `model` is an encoder-decoder of Hugging Face's transformers, or a module with the parts of an `EncoderDecoder`. Its
    weights are shared, not copied. B starts at zero, so the likelihood is the model's own until `fit` changes it. With
    a `folder`, the layers that `save` wrote there are loaded. `tokenizer` is that of the model; without one, sentences
    are lists of token ids.
    """
    if not isinstance(model, nn.Module):
        raise InputError(f"wrap needs a torch module, got a {type(model).__name__}")
    if is_huggingface(model):
        base: nn.Module = HuggingFaceModel(model)
    else:
        check_parts(model)
        base = model
    if folder is not None:
        tensors, about = read_layers(folder, model)
        wrapped = Wrapped(model, base, tokenizer, hidden=int(about["hidden"]), seed=seed)
        wrapped.restore(tensors, about, folder)
        return wrapped
    return Wrapped(model, base, tokenizer, hidden=hidden, seed=seed)


class Wrapped(nn.Module):
    """A model with two latent alignments around it: `translation` translates with it, `alignment` explains outputs.

    Build it with `wrap`. `fit` trains one of them, `align` and `generate` use the one that was fitted last.
    """

    def __init__(self, model: nn.Module, base: nn.Module, tokenizer: Any, *, hidden: int, seed: int) -> None:
        super().__init__()
        self.model, self.hidden, self.mode = model, hidden, cast(Mode | None, None)
        self.base = cast("EncoderDecoder", base)
        output = self.base.output
        longest = getattr(base, "longest", None)
        self.reader = Reader(tokenizer, output.out_features, self.base.end, longest)
        with evaluating(base):
            token = torch.full((1, 1), self.base.pad, device=output.weight.device)
            memory = self.base.encode(token, exists=torch.ones_like(token, dtype=torch.bool))
            word = self.base.embed(token)
        sizes = (output.in_features, memory.shape[-1])
        with seeded(seed):
            head = ShiftedHead(sizes[1], output)
            self.translation = LatentAttention(
                *sizes, output.out_features, hidden=hidden, score="scaled-dot", head=head
            )
            self.alignment = AlignmentLayer(*sizes, word.shape[-1], output=output, hidden=hidden)
        self.head = head
        like = output.weight
        for layer in (self.translation.prior, head.from_memory, self.alignment):
            layer.to(device=like.device, dtype=like.dtype)

    # --- the model

    def states(self, batch: Batch) -> tuple[Float[Tensor, "B S H"], Float[Tensor, "B T D"]]:
        """Decoder and encoder states of sentence pairs; zeros where there is no source token."""
        start = torch.full_like(batch.target[:, :1], self.base.start)
        memory = self.base.encode(batch.source, exists=batch.source_exists)
        if memory.shape[:2] != batch.source.shape:
            raise InputError(
                f"encode must give one state for every token, {tuple(batch.source.shape)}, got {tuple(memory.shape)}; "
                "torch.nn.TransformerEncoder cuts padding off unless it has enable_nested_tensor=False"
            )
        previous = torch.cat([start, batch.target[:, :-1]], 1)
        query = self.base.decode(previous, memory, exists=batch.source_exists)
        return query, memory.masked_fill(~batch.source_exists.unsqueeze(-1), 0.0)

    def choice(self, batch: Batch) -> LatentChoice:
        """The latent choice of every target token, with softmax(W (d_j + B x_z) + b) as emission."""
        query, memory = self.states(batch)
        return self.choice_of(query, memory, batch.source_exists, ~batch.target_exists)

    def choice_of(
        self,
        query: Float[Tensor, "B S H"],
        memory: Float[Tensor, "B T D"],
        exists: Bool[Tensor, "B T"],
        query_padding: Bool[Tensor, "B S"] | None = None,
    ) -> LatentChoice:
        """The same from states."""
        choice: LatentChoice = self.translation(
            query, memory, key_padding_mask=~exists, query_padding_mask=query_padding
        )
        return choice

    def explain(self, batch: Batch, states: States | None) -> Latent:
        """The alignments of target tokens to source tokens by words alone; special tokens take no part."""
        words = self.base.embed(batch.source).detach().masked_fill(~batch.source_exists.unsqueeze(-1), 0.0)
        mask = batch.source_in_word.unsqueeze(1) & batch.target_in_word.unsqueeze(2)
        weight = self.base.output.weight.detach()
        latent: Latent = self.alignment(words, batch.target, states, mask=mask, weight=weight)
        return latent

    def batches(self, pairs: Sequence[TokenPair]) -> Iterator[tuple[list[int], Batch]]:
        """Pairs of similar length with their numbers; pairs with a blank side are left out."""
        for chosen in group_pairs(pairs, BATCH):
            yield chosen, self.batch([pairs[i] for i in chosen])

    def batch(self, pairs: Sequence[TokenPair]) -> Batch:
        return Batch.of(pairs, pad=self.base.pad, device=self.base.output.weight.device)

    def log_likelihoods(self, pairs: Sequence[tuple[Sentence, Sentence]]) -> list[Float[Tensor, " S"]]:
        """log p(y_j | x, y_<j) of every target token of each pair, the end of the sentence included."""
        tokens = self.reader.pairs(pairs)
        found: list[Tensor] = []
        with evaluating(self):
            for start in range(0, len(tokens), BATCH):
                batch = self.batch(tokens[start : start + BATCH])
                value = marginal(self.choice(batch).observe(batch.target)).value
                found += [row[keep] for row, keep in zip(value, batch.target_exists, strict=True)]
        return found

    # --- training

    def fit(
        self,
        pairs: Sequence[tuple[Sentence, Sentence]],
        mode: Mode = "align",
        *,
        objective: str = "marginal",
        epochs: int | None = None,
        batch_size: int = 64,
        learning_rate: float | None = None,
        seed: int = 0,
        **options: Any,
    ) -> Fitted:
        """Learn from sentence pairs.

        `align` freezes the model, hides its decoder states from the emission and learns alignments. `translate` trains
        everything by an objective of `OBJECTIVES`, with its `options`; by default by the marginal likelihood with a
        certified tolerance of 0.01. Results depend on the seed alone. Calling `fit` again continues.
        """
        if mode not in get_args(Mode):
            raise InputError(f"mode must be one of {', '.join(get_args(Mode))}, got {mode!r}")
        default_epochs, default_rate = DEFAULTS[mode]
        settings = FitSettings(epochs or default_epochs, batch_size, learning_rate or default_rate, seed)
        if mode == "align" and (objective != "marginal" or options):
            raise InputError("mode='align' has an objective of its own; `objective` is for mode='translate'")
        if mode == "translate" and objective == "marginal":
            options = {"tolerance": 0.01, **options}
        goal = OBJECTIVES[objective](**options).to(self.base.output.weight.device)
        tokens = self.reader.pairs(pairs)
        groups = group_pairs(tokens, batch_size)
        if not groups:
            raise InputError("there is no pair to learn from: every one has a blank side")
        batches = [self.batch([tokens[i] for i in chosen]) for chosen in groups]
        with seeded(seed):
            train = self.fit_alignment if mode == "align" else self.fit_translation
            losses = train(batches, goal, settings)
        self.mode = mode
        used = sum(map(len, groups))
        return Fitted(mode, losses, used, len(tokens) - used)

    def fit_alignment(self, batches: list[Batch], goal: Objective, settings: FitSettings) -> list[float]:
        """Train the alignment layer with the model frozen: first by words alone, then the prior that sees states.

        The prior learns to predict the posterior of the first step, which is q in a variational bound.
        """
        layer, bound = self.alignment, OBJECTIVES["variational-enum"]()

        def by_words(batch: Batch) -> Estimate:
            return goal(self.explain(batch, None))

        def by_states(batch: Batch, states: Callable[[], States], q: Categorical) -> Estimate:
            latent = self.explain(batch, states())
            return bound(Latent(latent.prior, latent.log_likelihood, q))

        first = [partial(by_words, batch) for batch in batches]
        losses = optimise(list(layer.parameters()), first, settings, name="words")
        states = [keep_states(self, batch, len(batches)) for batch in batches]
        with evaluating(self):
            inferred = [posterior_of(self.explain(batch, None)) for batch in batches]
        second = [partial(by_states, *each) for each in zip(batches, states, inferred, strict=True)]
        later = replace(
            settings, epochs=-(-settings.epochs // 2), learning_rate=PRIOR_RATE * settings.learning_rate
        )
        return losses + optimise(layer.prior_parameters(), second, later, name="states")

    def fit_translation(self, batches: list[Batch], goal: Objective, settings: FitSettings) -> list[float]:
        """Train the model and its latent layer together."""
        if goal.distribution != "categorical":
            raise InputError(
                f"z is a source token, so objectives over {goal.distribution} alignments do not fit"
            )
        if goal.needs_inferred:
            self.add_inference()

        def estimate(batch: Batch) -> Estimate:
            return goal(self.choice(batch).observe(batch.target))

        modules = nn.ModuleList([self.model, self.translation, goal])
        parameters = [p for p in modules.parameters() if p.requires_grad]
        with in_mode(self, training=True):
            return optimise(parameters, [partial(estimate, b) for b in batches], settings, name="translate")

    def add_inference(self) -> None:
        """Build the network behind q, unless there is one."""
        if self.translation.posterior is None:
            sizes = (self.translation.query_dim, self.translation.memory_dim, self.base.output.out_features)
            network = PosteriorNetwork(*sizes, hidden=self.hidden)
            self.translation.posterior = network.to(self.head.from_memory.weight)

    # --- results

    def align(
        self,
        pairs: Sequence[tuple[Sentence, Sentence]],
        *,
        threshold: float | None = 0.0,
        at_least: float | None = None,
    ) -> AlignedText:
        """Word alignments from the exact posterior p(z | x, y): words, links, and probabilities with that of NULL.

        Each target word is linked to its most probable source word, unless NULL is more probable or the probability is
        below `threshold`. With `at_least`, every link of that probability counts.
        """
        return self.align_tokens(self.reader.pairs(pairs), LinkRule(threshold, at_least))

    def align_tokens(self, pairs: Sequence[TokenPair], rule: LinkRule) -> AlignedText:
        """The same for pairs of tokens."""
        if self.mode is None:
            raise InputError("nothing has learned alignments yet; call fit(pairs, mode='align') first")
        nothing = np.zeros((0, 0))
        found = [word_alignment(pair, nothing) if pair.blank else None for pair in pairs]
        with evaluating(self):
            for chosen, batch in self.batches(pairs):
                matrix = self.posterior(batch).double().cpu().numpy()
                for row, i in enumerate(chosen):
                    found[i] = word_alignment(pairs[i], matrix[row])
        alignments = cast("list[WordAlignment]", found)
        rule = rule.fit(alignments)
        words = [(pair.source.words, pair.target.words) for pair in pairs]
        return AlignedText(words, alignments, [rule.choose(alignment) for alignment in alignments])

    def posterior(self, batch: Batch) -> Float[Tensor, "B S T_1"]:
        """p(z_j = i | x, y) of every source token, and of NULL in the last column."""
        if self.mode == "align":
            return exact_posterior(self.explain(batch, self.states(batch))).mean
        choice = self.choice(batch)
        mean = exact_posterior(choice.observe(batch.target)).mean
        return torch.cat([mean, torch.zeros_like(mean[..., :1])], -1)

    def generate(
        self,
        sources: Sequence[Sentence] | Int[Tensor, "B T"],
        *,
        attention_mask: Tensor | None = None,
        return_alignments: bool = False,
        **options: Any,
    ) -> Generated:
        """Translations by the model's own `generate` under the latent model, with its `options` (num_beams and so on).

        `sources` are lines of text, lists of ids, or a tensor of ids with its `attention_mask`, padded on either side.
        """
        if not isinstance(self.base, HuggingFaceModel):
            raise InputError(
                "generate needs a model of Hugging Face's transformers; for others, `wrapped.choice_of(...).predict()` "
                "gives the log-probabilities that a search needs"
            )
        tokens = self.reader.sentences(as_rows(sources, attention_mask), "source")
        if not tokens:
            return Generated([], [], AlignedText([], [], []) if return_alignments else None)
        source, exists = pad_rows([t.ids for t in tokens], self.base.pad)
        device = self.base.output.weight.device
        latent = bool(self.head.from_memory.weight.any())  # otherwise the mixture is the model itself
        with evaluating(self):
            log_probs = (lambda *states: self.choice_of(*states).predict("exact")) if latent else None
            found = self.base.generate(
                source.to(device), exists=exists.to(device), log_probs=log_probs, **options
            )
        ids = [cut_output(row, self.base.end, self.base.pad) for row in found[:, 1:].tolist()]
        outputs = [self.reader.generated(row) for row in ids]
        texts, per_source = [text for text, _ in outputs], len(ids) // len(tokens)
        alignments = None
        if return_alignments:
            pairs = [TokenPair(tokens[i // per_source], output) for i, (_, output) in enumerate(outputs)]
            alignments = self.align_tokens(pairs, LinkRule())
        return Generated(texts, ids, alignments)

    # --- files

    def tensors(self) -> dict[str, Tensor]:
        """The weights of the latent layers, without those of the model."""
        found = {f"translation.{name}": tensor for name, tensor in self.translation.state_dict().items()}
        found = {n: t for n, t in found.items() if not n.startswith("translation.head.output.")}
        return found | {f"alignment.{name}": tensor for name, tensor in self.alignment.state_dict().items()}

    def save(self, folder: Path | str, *, overwrite: bool = False) -> Path:
        """Write the latent layers into a folder as `latentalign.safetensors`, and return its path.

        `wrap(model, folder)` reads it. The model itself is not saved: if `fit(mode="translate")` changed it, save it
        too.
        """
        about = {"model": type(self.model).__name__, "fingerprint": fingerprint(self.model)}
        about |= {"hidden": str(self.hidden), "mode": self.mode or ""}
        return write_layers(folder, self.tensors(), about, overwrite=overwrite)

    def restore(self, tensors: dict[str, Tensor], about: dict[str, str], folder: Path | str) -> None:
        """Take over the weights of a file."""
        if any(name.startswith("translation.posterior.") for name in tensors):
            self.add_inference()
        own = self.tensors()
        shapes, found = ({n: t.shape for n, t in some.items()} for some in (own, tensors))
        wrong = sorted(n for n in {*own, *tensors} if shapes.get(n) != found.get(n))
        if wrong:
            raise CheckpointError(f"{folder}: {wrong[0]} does not fit this model; save the layers again")
        for name, tensor in tensors.items():
            own[name].copy_(tensor)
        self.mode = cast(Mode | None, about["mode"] or None)


def keep_states(wrapped: Wrapped, batch: Batch, batches: int) -> Callable[[], States]:
    """The states of a frozen model as a function: computed now, or at each call if those of all batches are large."""

    def compute() -> States:
        with evaluating(wrapped):
            return wrapped.states(batch)

    sizes = wrapped.translation.query_dim, wrapped.translation.memory_dim
    numbers = batch.target.numel() * sizes[0] + batch.source.numel() * sizes[1]
    if batches * numbers * wrapped.base.output.weight.element_size() > CACHE:
        return compute
    states = compute()
    return lambda: states


def posterior_of(latent: Latent) -> Categorical:
    """p(z_j | x, y) of each output by itself, over the members of the prior."""
    tiny = torch.finfo(torch.float32).tiny  # a probability may underflow, but the member still exists
    return Categorical.from_scores(
        exact_posterior(latent).mean.clamp_min(tiny).log(), exists=latent.prior.mask
    )
