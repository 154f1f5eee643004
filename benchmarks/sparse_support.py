"""How sparse the prior of a translation run is, and how often it excludes the word that is needed.

    python benchmarks/sparse_support.py RUN... [--reference RUN] [--split valid]

For every run, over the words of a split:

- members: source positions of a word, and those with a positive probability; their ratio is the share of the emission
  that `marginal` computes;
- outside: share of linked words none of whose source positions has a positive probability. The links are the gold
  links of the split, if it has any, or those of `--reference`: the most probable position given the word, under the
  exact posterior of that run. Its tokenizer must be that of the runs.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path

import torch

from latentalign.links.formats import read_gold
from latentalign.links.sets import Links
from latentalign.tasks.nmt.align import align_pairs, encode_pairs
from latentalign.tasks.nmt.evaluate import observed_batches, open_split
from latentalign.tasks.nmt.recipe import TrainedTranslator, find_split
from latentalign.tasks.nmt.task import TRANSLATION


@torch.no_grad()
def count_members(trained: TrainedTranslator, split: str) -> tuple[float, float]:
    """Mean number of source positions of a word, and of those with a positive probability."""
    words = existing = possible = 0
    for part, latent in observed_batches(trained, open_split(trained, split), split):
        exists = part.batch.target_mask.unsqueeze(2) & part.batch.source_mask.unsqueeze(1)
        words += int(part.batch.target_mask.sum())
        existing += int(exists.sum())
        possible += int((latent.prior.mean[..., : exists.shape[-1]] > 0).sum())
    return existing / words, possible / words


def find_links(trained: TrainedTranslator, split: str, reference: TrainedTranslator | None) -> list[Links]:
    """The links of every sentence: gold, or those of the reference run."""
    found = find_split(trained, split)
    pairs = encode_pairs(trained, *map(list, zip(*found.read(), strict=True)))
    if reference is None:
        if found.gold is None:
            raise SystemExit(f"the {split} split has no gold links; name a run with --reference")
        gold = read_gold(found.gold, one_based=found.gold_one_based, sentences=len(pairs))
        return [one.sure for one in gold]
    links: list[Links] = [frozenset()] * len(pairs)
    for i, by_name in align_pairs(reference, pairs, ["posterior"]):
        links[i] = by_name["posterior"].best()
    return links


def share_outside(trained: TrainedTranslator, split: str, links: list[Links]) -> tuple[float, int]:
    """Share of linked words whose sources all have probability zero, and the number of linked words."""
    found = find_split(trained, split)
    pairs = encode_pairs(trained, *map(list, zip(*found.read(), strict=True)))
    outside = linked = 0
    for i, by_name in align_pairs(trained, pairs, ["prior"]):
        sources = defaultdict(list)
        for source, target in links[i]:
            sources[target].append(source)
        linked += len(sources)
        prior = by_name["prior"].probability
        outside += sum(all(prior[target, s] == 0 for s in several) for target, several in sources.items())
    return outside / max(linked, 1), linked


def main() -> None:
    parser = argparse.ArgumentParser(description="How sparse the prior of a run is.")
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--reference", type=Path)
    parser.add_argument("--split", default="valid")
    options = parser.parse_args()
    reference = None if options.reference is None else TRANSLATION.load(options.reference)
    print(f"{'run':>20}  {'positions':>9}  {'possible':>8}  {'share':>6}  {'outside':>8}  {'of words':>8}")
    for path in options.runs:
        trained = TRANSLATION.load(path)
        existing, possible = count_members(trained, options.split)
        lost, words = share_outside(trained, options.split, find_links(trained, options.split, reference))
        row = f"{existing:9.2f}  {possible:8.2f}  {100 * possible / existing:5.1f}%  {100 * lost:7.2f}%  {words:8d}"
        print(f"{path.name:>20}  {row}")


if __name__ == "__main__":
    main()
