"""q from word links: those of another aligner, read from files, or those of our own aligner, made for a run."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from latentalign.errors import InputError
from latentalign.links.sets import LinkProbabilities, format_probabilities
from latentalign.storage import write_json, write_text
from latentalign.tasks.nmt.data import Batch, Corpus
from latentalign.tasks.nmt.inference_network import external_scores
from latentalign.tasks.nmt.recipe import NMTConfig
from latentalign.tasks.nmt.splits import SplitConfig, read_split_links
from latentalign.tasks.nmt.tokenizer import Tokenizer

LEAST_PROBABILITY = 0.005
"""Less probable links of the aligner are not stored."""


class ExternalLinks:
    """The word links of a corpus, ready to become scores of a batch."""

    def __init__(
        self, corpus: Corpus, tokenizer: Tokenizer, split: SplitConfig, *, path: Path, config: NMTConfig
    ) -> None:
        lines = list(split.read())
        links = read_split_links(path, split, len(lines))
        kept = [corpus.line(i) - 1 for i in range(len(corpus))]
        self.links: list[LinkProbabilities] = [links[i] for i in kept]
        self.source = [e.words for e in tokenizer.encode_source_batch([lines[i][0] for i in kept])]
        self.target = [e.words for e in tokenizer.encode_target_batch([lines[i][1] for i in kept])]
        self.smoothing, self.null = config.inference.smoothing, config.prior.null

    def scores(self, batch: Batch) -> Tensor:
        """log q of every alignment of a batch: (B, S, T). If the prior has NULL, it is the last member."""
        shape = (*batch.target.shape, batch.source.shape[1] + self.null)
        rows = batch.index.tolist()
        if not rows:
            return torch.zeros(shape)
        return external_scores(
            [self.links[i] for i in rows],
            [self.source[i] for i in rows],
            [self.target[i] for i in rows],
            smoothing=self.smoothing,
            shape=shape,
            null=self.null,
        )

    def attach(self, batch: Batch) -> Batch:
        """The same batch with the scores of q."""
        return dataclasses.replace(batch, external=self.scores(batch))


def obtain_links(config: NMTConfig, tokenizer: Tokenizer, cache: Path) -> dict[str, Path]:
    """The file of links of each split, if the objective needs a q and the recipe takes it from links."""
    kind = config.inference.kind
    if kind == "network" or not config.objective.prototype.needs_inferred:
        return {}
    if kind == "aligner":
        return align_splits(config, tokenizer, cache / "aligner")
    found = {}
    for key, split in (("train", config.data.train), ("valid", config.data.valid)):
        if split.links is None:
            raise InputError(f'inference.kind = "external" needs data.{key}.links, a Pharaoh file')
        found[key] = split.links
    return found


def known_links(config: NMTConfig, cache: Path, key: str, split: SplitConfig) -> Path | None:
    """The file of links of a split of a trained run, if there is one."""
    if config.inference.kind == "network" or not config.objective.prototype.needs_inferred:
        return None
    own = cache / "aligner" / f"{key}.links"
    return split.links if config.inference.kind == "external" else own if own.is_file() else None


def align_splits(config: NMTConfig, tokenizer: Tokenizer, folder: Path) -> dict[str, Path]:
    """Links of the training and validation text with the posterior probabilities of an aligner.

    The aligner is trained on the training text, unless that was done before.
    """
    splits = {"train": config.data.train, "valid": config.data.valid}
    files = {key: folder / f"{key}.links" for key in splits}
    texts = {key: split.fingerprints() for key, split in splits.items()}
    identity = {"version": 1, "texts": texts, "tokenizer": tokenizer.fingerprint()}
    if read_identity(folder / "identity.json") != identity or not all(f.is_file() for f in files.values()):
        folder.mkdir(parents=True, exist_ok=True)
        for key, links in link_words(config, tokenizer, folder).items():
            write_text(files[key], "".join(f"{line}\n" for line in links))
        write_json(folder / "identity.json", identity)
    return files


def read_identity(path: Path) -> Any:
    """What the links of a folder were made from; None if that is unknown."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None


def link_words(config: NMTConfig, tokenizer: Tokenizer, folder: Path) -> dict[str, Iterator[str]]:
    """Links with probabilities for each pair of the training and validation text, as lines.

    `folder` holds the temporary files of the aligner.
    """
    from latentalign.aligner import train_aligner

    splits = {"train": config.data.train, "valid": config.data.valid}
    aligner = train_aligner(word_lines(splits["train"], tokenizer), folder=folder, name="aligner for q")
    return {
        key: (
            format_probabilities(likely_links(posterior.mean))
            for posterior in aligner.align_lines(word_lines(split, tokenizer))
        )
        for key, split in splits.items()
    }


def word_lines(split: SplitConfig, tokenizer: Tokenizer) -> Iterator[tuple[str, str]]:
    """The pairs of a split with a space between the words, as the tokenizer defines them."""
    for pair in split.read():
        source, target = tokenizer.find_pair_words(*pair)
        yield " ".join(word.text for word in source), " ".join(word.text for word in target)


def likely_links(probability: Float[np.ndarray, "W V"]) -> LinkProbabilities:
    """The links whose probability is worth storing."""
    found = np.argwhere(probability >= LEAST_PROBABILITY)
    return {(int(v), int(w)): min(1.0, float(probability[w, v])) for w, v in found}
