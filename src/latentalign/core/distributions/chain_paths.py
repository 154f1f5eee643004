"""Paths of a chain: draws, the most probable one, and their expected log-probability under an independent q."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentalign.core.numerics import draw_members, log_sum_exp, masked_log_softmax

if TYPE_CHECKING:
    from latentalign.core.distributions.chain import Chain


@torch.no_grad()
def sample_paths(chain: Chain, n: int) -> Int[Tensor, "B S n"]:
    """n paths for every example, as members; NULL is the last one."""
    found = []
    position = torch.zeros(len(chain.scores), n, dtype=torch.long, device=chain.scores.device)
    for j in range(chain.scores.shape[1]):
        rows = chain.log_rows(j).exp()
        rows = rows.masked_fill(~chain.exists[:, j, None, None], 1.0)
        chosen = rows.gather(1, position.unsqueeze(-1).expand(-1, -1, rows.shape[-1]))
        chosen = chosen.masked_fill(chosen.sum(-1, keepdim=True) == 0, 1.0)
        drawn = draw_members(chosen, 1).squeeze(-1)
        origin = drawn if j == 0 else position
        nothing = torch.rand_like(chosen[..., 0]) < chain.log_null[:, j].exp().gather(1, origin)
        here = chain.exists[:, j, None]
        position = torch.where(here & (~nothing | (j == 0)), drawn, position)
        found.append(torch.where(nothing & here, chain.scores.shape[-1], drawn).masked_fill(~here, 0))
    return torch.stack(found, 1)


@torch.no_grad()
def best_path(chain: Chain) -> tuple[Int[Tensor, "B S"], Float[Tensor, "B"]]:
    """The most probable path and its log-probability (Viterbi); NULL is the last member."""
    batch, steps, width = chain.scores.shape
    came_from = torch.zeros(batch, steps, 2, width, dtype=torch.long, device=chain.scores.device)
    value = torch.zeros(batch, 2, width, dtype=chain.scores.dtype, device=chain.scores.device)
    stay = torch.arange(width, device=chain.scores.device).expand(batch, width)
    copy = torch.zeros(batch, steps, 2, width, dtype=torch.long, device=chain.scores.device)
    for j in range(steps):
        best, which = value.max(1)
        if j == 0:
            start = masked_log_softmax(chain.scores[:, 0], chain.members[:, 0])
            new = torch.stack([start + chain.log_real(0), start + chain.log_null[:, 0]], 1)
            origin = torch.stack([stay, stay], 1)
        else:
            moved, source = (best.unsqueeze(-1) + chain.log_real(j).unsqueeze(-1) + chain.log_rows(j)).max(1)
            new = torch.stack([moved, best + chain.log_null[:, j]], 1)
            origin = torch.stack([source, stay], 1)
        here = chain.exists[:, j, None, None]
        value = torch.where(here, new, value if j else new)
        came_from[:, j] = torch.where(here, origin, stay.unsqueeze(1))
        picked = which.unsqueeze(1).expand(-1, 2, -1).gather(2, origin)
        keep = torch.tensor([0, 1], device=value.device)[:, None].expand(2, width)
        copy[:, j] = torch.where(here, picked, keep)
    log_prob, last = value.flatten(1).max(1)
    path = []
    kind, place = last.div(width, rounding_mode="floor"), last % width
    rows = torch.arange(batch, device=last.device)
    for j in reversed(range(steps)):
        path.append(torch.where(kind == 1, width, place))
        kind, place = copy[rows, j, kind, place], came_from[rows, j, kind, place]
    found = torch.stack(path[::-1], 1).masked_fill(~chain.exists, 0)
    return found, log_prob.masked_fill(~chain.exists.any(1), 0.0)


@torch.no_grad()
def best_paths(chain: Chain, k: int) -> list[list[tuple[list[int], float]]]:
    """Up to k most probable paths of every example with their log-probabilities, best first; NULL is the last member.

    This is Viterbi with k entries for every state. A path that begins with NULL has a position before its first member
    which nobody can see: it is summed out.
    """
    batch, steps, width = chain.scores.shape
    value = chain.scores.new_full((batch, k, 2 * width), float("-inf"))  # selecting members, then NULL copies
    start = masked_log_softmax(chain.scores[:, 0], chain.members[:, 0])
    value[:, 0, :width] = start + chain.log_real(0)
    unseen = start + chain.log_null[:, 0]  # only NULL so far, at a position that nobody has seen
    pointers = []
    for j in range(1, steps):
        at = torch.cat([value[..., :width], value[..., width:]], 1)  # (B, 2k, T): all ways to be at a member
        moves = chain.log_real(j).unsqueeze(-1) + chain.log_rows(j)
        first = log_sum_over(unseen.unsqueeze(-1) + moves, 1).unsqueeze(1)
        moved = torch.cat([(at.unsqueeze(-1) + moves.unsqueeze(1)).flatten(1, 2), first], 1)
        best, which = moved.topk(min(k, moved.shape[1]), 1)
        stay, origin = (at + chain.log_null[:, j].unsqueeze(1)).topk(k, 1)
        place = torch.arange(width, device=at.device)
        came = torch.cat([pad_rows(which, k), origin * width + place], -1)
        here = chain.exists[:, j, None]
        new = torch.cat([pad_rows(best, k, float("-inf")), stay], -1)
        value = torch.where(here.unsqueeze(-1), new, value)
        unseen = torch.where(here, unseen + chain.log_null[:, j], unseen)
        pointers.append(came)
    only_null = log_sum_over(unseen, 1)
    return [
        collect_paths(
            value[row], [p[row] for p in pointers], chain.exists[row].tolist(), float(only_null[row])
        )
        for row in range(batch)
    ]


def pad_rows(found: Tensor, k: int, value: float = 0) -> Tensor:
    """The same with k rows."""
    return torch.nn.functional.pad(found, (0, 0, 0, k - found.shape[1]), value=value)


def collect_paths(
    value: Float[Tensor, "k states"], pointers: list[Tensor], exists: list[bool], only_null: float
) -> list[tuple[list[int], float]]:
    """Follow the pointers of one example back from its best ends. `only_null` is the log-probability of NULL alone."""
    k, states = value.shape
    width, length = states // 2, sum(exists)
    if length == 0:
        return [([], 0.0)]
    steps = [pointer for pointer, here in zip(pointers, exists[1:], strict=True) if here]
    found = [([width] * length, only_null)]
    scores, ends = value.flatten().topk(min(k, value.numel()))
    for score, end in zip(scores.tolist(), ends.tolist(), strict=True):
        rank, state = divmod(end, states)
        path = [state]
        for pointer in reversed(steps):
            entry, place = divmod(int(pointer[rank, state]), width)  # entry: which of the 2k ways to be there
            if entry == 2 * k:  # the first member
                break
            copy, rank = divmod(entry, k)
            state = place + copy * width
            path.append(state)
        before = [width] * (length - len(path))
        found.append((before + [min(state, width) for state in reversed(path)], score))
    found.sort(key=lambda entry: -entry[1])
    return [(path, score) for path, score in found[:k] if score > float("-inf")]


def expected_log_prob(chain: Chain, q: Float[Tensor, "B S T"]) -> Float[Tensor, "B S"]:
    """E_q[log p(z_j | z_<j)] for alignments that are independent under q, query by query.

    Under q the position before step j is the last member selected: P_j(i) = q_{j-1}(i) + q_{j-1}(NULL) P_{j-1}(i).
    As long as q has selected NULL only, the position is that of the start, which nobody has seen: it is summed out.
    """
    width = chain.scores.shape[-1]
    seen = torch.zeros_like(chain.scores[:, 0])  # P_j
    unseen = torch.ones_like(seen[:, :1])  # the chance that no member has been selected yet
    start = masked_log_softmax(chain.scores[:, 0], chain.members[:, 0])
    found = []
    for j in range(chain.scores.shape[1]):
        member = q[:, j, :width]
        nothing = q[:, j, width:] if chain.null else torch.zeros_like(unseen)
        moves = chain.log_rows(j) + chain.log_real(j).unsqueeze(-1)
        null = chain.log_null[:, j]
        from_seen = weighted_product(member.unsqueeze(1), moves).sum(-1) + weighted_product(nothing, null)
        first = start + chain.log_real(0) if j == 0 else log_sum_over(start.unsqueeze(-1) + moves, 1)
        log_null = log_sum_over(start + null, -1)
        from_start = weighted_product(member, first).sum(-1, keepdim=True) + weighted_product(
            nothing, log_null.unsqueeze(-1)
        )
        value = weighted_product(seen, from_seen).sum(-1) + weighted_product(unseen, from_start).squeeze(-1)
        found.append(value)
        here = chain.exists[:, j, None]
        start = torch.where(here, start + null - log_null.unsqueeze(-1), start) if chain.null else start
        seen = torch.where(here, member + nothing * seen, seen)
        unseen = torch.where(here, nothing * unseen, unseen)
    return torch.stack(found, 1).masked_fill(~chain.exists, 0.0)


def log_sum_over(value: Tensor, axis: int) -> Tensor:
    """log sum exp along an axis."""
    return log_sum_exp(value.movedim(axis, -1))


def weighted_product(weight: Tensor, value: Tensor) -> Tensor:
    """weight * value, and 0 where the weight is 0."""
    absent = weight == 0
    return weight * value.masked_fill(absent, 0.0)
