"""A lexicon in decoding: a bonus for the known translation of the source word that z points at.

While an entry of the source words C is written, the piece of step j adds weight * p(z_j in C | x, y_<j) to the bonus of
its hypothesis. An entry that is not finished, or that goes on as another word, gives its bonus back. Each
occurrence in the source counts once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latentalign.core.numerics import NEG_INF
from latentalign.search import State
from latentalign.tasks.nmt.constraints import Constraint
from latentalign.tasks.nmt.tokenizer import BOS, EOS, Tokenizer

PREFIX = "lexicon_"
"""What the entries of a search's state that belong to a lexicon begin with."""


@dataclass(frozen=True)
class Progress:
    """What is known about the entries of every hypothesis."""

    progress: Int[Tensor, "n E"]
    """Pieces of each entry that the hypothesis ends with."""
    gained: Float[Tensor, "n E"]
    """Their bonus."""
    done: Bool[Tensor, "n E"]
    """Whether the constraint of an entry is satisfied."""
    mass: Float[Tensor, "n E"]
    """p(z in C) of the step that chose the next token."""
    confirmed: Float[Tensor, "n"]
    """The bonus of satisfied constraints."""
    last: Int[Tensor, "n"]


FIELDS = ("progress", "gained", "done", "mass", "confirmed", "last")


@dataclass(frozen=True)
class LexiconGuide:
    """How strongly a lexicon guides the search, and where words begin and end in the target vocabulary."""

    weight: float
    starts: Bool[Tensor, " V"]
    """Tokens that cannot continue the word before them."""
    ends: Bool[Tensor, " V"]
    """Tokens after which a new word begins."""

    @classmethod
    def of(cls, tokenizer: Tokenizer, weight: float) -> LexiconGuide:
        """The guide for the target vocabulary of a tokenizer."""
        starts, ends = (torch.tensor(flags) for flags in tokenizer.target_boundaries())
        starts[EOS] = ends[BOS] = True
        return cls(weight, starts, ends)

    def bonus(
        self, constraints: Sequence[Sequence[Constraint]], members: int, device: torch.device
    ) -> LexiconBonus | None:
        """The bonus for a batch of sentences; None if no sentence has a constraint."""
        if not any(constraints):
            return None
        return LexiconBonus(self, constraints, members, device)


class LexiconBonus:
    """The bonus of every continuation of every hypothesis. Its memory is in the state of the search."""

    def __init__(
        self,
        guide: LexiconGuide,
        constraints: Sequence[Sequence[Constraint]],
        members: int,
        device: torch.device,
    ) -> None:
        self.starts, self.ends = guide.starts.to(device), guide.ends.to(device)
        rows = [
            [(n, c, e, ids) for n, c in enumerate(here) for e, ids in zip(c.entries, c.targets, strict=True)]
            for here in constraints
        ]
        shape = (len(rows), max(map(len, rows)))
        longest = max(len(ids) for row in rows for *_, ids in row)
        self.tokens = torch.full((*shape, longest + 1), -1)  # the last column stays -1: nothing follows
        self.length, self.owner = torch.zeros(shape, dtype=torch.long), torch.full(shape, -1)
        self.gain = torch.zeros(shape, dtype=torch.float64)
        self.points_at = torch.zeros(*shape, members, dtype=torch.float64)
        for b, row in enumerate(rows):
            for e, (number, constraint, entry, ids) in enumerate(row):
                self.tokens[b, e, : len(ids)] = torch.tensor(ids)
                self.length[b, e], self.owner[b, e] = len(ids), number
                self.gain[b, e] = guide.weight * entry.weight
                self.points_at[b, e, list(constraint.pieces)] = 1.0
        for name in ("tokens", "length", "owner", "gain", "points_at"):
            setattr(self, name, getattr(self, name).to(device))

    @cached_property
    def cap(self) -> Float[Tensor, "B E"]:
        """The largest bonus of each constraint, at one of its entries; 0 at the others."""
        most = self.gain * self.length
        same = (self.owner.unsqueeze(-1) == self.owner.unsqueeze(-2)) & (self.owner >= 0).unsqueeze(-1)
        better = most.unsqueeze(-2) > most.unsqueeze(-1)
        earlier = torch.ones_like(same[0]).tril(-1) & (most.unsqueeze(-2) == most.unsqueeze(-1))
        return most.masked_fill((same & (better | earlier)).any(-1), 0.0)

    def start(self, sentences: int) -> State:
        """The state before the first token."""
        shape, device = (sentences, self.owner.shape[1]), self.owner.device
        values = {
            "progress": torch.zeros(shape, dtype=torch.long, device=device),
            "gained": torch.zeros(shape, dtype=torch.float64, device=device),
            "done": torch.zeros(shape, dtype=torch.bool, device=device),
            "mass": torch.zeros(shape, dtype=torch.float64, device=device),
            "confirmed": torch.zeros(sentences, dtype=torch.float64, device=device),
            "last": torch.full((sentences,), BOS, device=device),
        }
        return {PREFIX + name: value for name, value in values.items()}

    def __call__(self, tokens: Int[Tensor, "n"], state: State, mean: Float[Tensor, "n M"]) -> State:
        """The state after the last tokens, with `bonus` and `bonus_limit` of what follows under the prior's mean."""
        sentence = state["sentence"]
        memory = Progress(*(state[PREFIX + name] for name in FIELDS))
        memory = memory if bool((tokens == BOS).all()) else self.advance(tokens, memory, sentence)
        mass = torch.einsum("nem,nm->ne", self.points_at[sentence], mean.double())
        after = Progress(memory.progress, memory.gained, memory.done, mass, memory.confirmed, tokens)
        limit = memory.confirmed + self.cap[sentence].masked_fill(memory.done, 0.0).sum(-1)
        found = {"bonus": self.changes(after, sentence).to(mean.dtype), "bonus_limit": limit}
        return found | {PREFIX + name: getattr(after, name) for name in FIELDS}

    def close(self, memory: Progress, sentence: Int[Tensor, "n"]) -> tuple[Tensor, Tensor]:
        """What is confirmed and done if a new word begins: the best of the finished entries."""
        finished = (memory.progress == self.length[sentence]) & (memory.progress > 0) & ~memory.done
        gained, best = memory.gained.masked_fill(~finished, NEG_INF).max(-1)
        any_finished = finished.any(-1)
        owner = self.owner[sentence]
        same = owner == owner.gather(1, best.unsqueeze(-1))
        confirmed = memory.confirmed + gained.masked_fill(~any_finished, 0.0)
        return confirmed, memory.done | (same & any_finished.unsqueeze(-1))

    def following(self, memory: Progress, sentence: Int[Tensor, "n"]) -> tuple[Tensor, Tensor]:
        """For every entry, the token that continues it (-1 if none does) and the one that begins it."""
        tokens = self.tokens[sentence]
        after = tokens.gather(-1, memory.progress.unsqueeze(-1)).squeeze(-1)
        return after.masked_fill(memory.progress == 0, -1), tokens[..., 0]

    def advance(self, token: Int[Tensor, "n"], memory: Progress, sentence: Int[Tensor, "n"]) -> Progress:
        """The memory after one more token of every hypothesis."""
        boundary = self.starts[token] & self.ends[memory.last]
        confirmed, done = self.close(memory, sentence)
        confirmed = torch.where(boundary, confirmed, memory.confirmed)
        done = torch.where(boundary.unsqueeze(-1), done, memory.done)
        after, first = self.following(memory, sentence)
        continues = (after == token.unsqueeze(-1)) & ~done
        begins = (first == token.unsqueeze(-1)) & boundary.unsqueeze(-1) & ~done & ~continues
        progress = (memory.progress + 1).masked_fill(begins, 1).masked_fill(~(continues | begins), 0)
        gained = memory.gained.masked_fill(~continues, 0.0) + self.gain[sentence] * memory.mass
        gained = gained.masked_fill(~(continues | begins), 0.0)
        return Progress(progress, gained, done, memory.mass, confirmed, token)

    def changes(self, memory: Progress, sentence: Int[Tensor, "n"]) -> Float[Tensor, "n V"]:
        """By how much every next token changes the bonus of its hypothesis."""
        confirmed, done = self.close(memory, sentence)
        ends = self.ends[memory.last].unsqueeze(-1)
        boundary = self.starts.unsqueeze(0) & ends
        base = torch.where(boundary, confirmed.unsqueeze(-1), memory.confirmed.unsqueeze(-1))
        after, first = self.following(memory, sentence)
        worth = self.gain[sentence] * memory.mass
        inside = self.starts[after.clamp_min(0)] & ends  # a continuation may begin the next word of the entry
        continues = (after >= 0) & ~torch.where(inside, done, memory.done)
        begins = (first >= 0) & self.starts[first.clamp_min(0)] & ends & ~done
        token = torch.cat([after, first], 1).clamp_min(0)
        value = torch.cat(
            [(memory.gained + worth).masked_fill(~continues, 0.0), worth.masked_fill(~begins, 0.0)], 1
        )
        open_now = memory.gained.masked_fill(memory.done, 0.0).amax(-1)
        added = torch.zeros_like(base).scatter_reduce(1, token, value, "amax")
        return base + added - (memory.confirmed + open_now).unsqueeze(-1)
