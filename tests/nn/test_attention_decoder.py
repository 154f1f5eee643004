"""The packed recurrence equals one step after the other, forward and backward, for every score."""

import pytest
import torch
from torch import nn

from latentalign.core.score_steps import AutogradSteps
from latentalign.core.scores import (
    BilinearScore,
    DotScore,
    MLPScore,
    ProjectedScore,
    ScaledDotScore,
    score_steps,
)
from latentalign.nn.attention_decoder import AttentionDecoder

MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]]).bool()
LENGTHS = {"even": [6, 6, 6], "ragged": [2, 6, 3], "one without words": [4, 0, 6], "no words": [0, 0, 0]}


class CosineScore(ProjectedScore):
    """A user's score: a learned scale times the cosine of query and projected member."""

    def __init__(self, query_dim, memory_dim):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(3.0))
        self.from_memory = nn.Linear(memory_dim, query_dim)

    def project(self, memory):
        return nn.functional.normalize(self.from_memory(memory), dim=-1)

    def scores(self, query, projected):
        unit = nn.functional.normalize(query, dim=-1)
        return self.scale * (projected @ unit.unsqueeze(-1)).squeeze(-1)


class PositionScore(ProjectedScore):
    """A score that looks at neither query nor source."""

    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(4))

    def project(self, memory):
        return memory[..., :1]

    def scores(self, query, projected):
        return self.table.expand(*query.shape[:-1], -1)


SCORES = {
    "mlp": lambda: MLPScore(5, 4, 6),
    "bilinear": lambda: BilinearScore(5, 4),
    "dot": DotScore,
    "scaled-dot": lambda: ScaledDotScore(5, 4, 6),
    "a user's": lambda: CosineScore(5, 4),
    "without a query": PositionScore,
}


def words_of(lengths):
    return torch.tensor(lengths).unsqueeze(1) > torch.arange(6)


EVERY = words_of(LENGTHS["even"])


def decoder(layers, dropout=0.0, score="mlp"):
    size = 4 if score == "dot" else 5  # queries and members differ in size wherever the score allows it
    return AttentionDecoder(3, size, layers, memory_dim=4, score=SCORES[score](), dropout=dropout).double()


def inputs():
    words = torch.randn(3, 6, 3, dtype=torch.float64, requires_grad=True)
    memory = torch.randn(3, 4, 4, dtype=torch.float64, requires_grad=True)
    return words, memory


def step_by_step(d, words, memory):
    """Queries and scores by autograd through a loop of single steps."""
    state, projected = d.start(3, memory), d.score.project(memory)
    steps = []
    for t in range(words.shape[1]):
        query, score, state = d.step(words[:, t], state, memory, projected, mask=MASK)
        steps.append((query, score))
    return [torch.stack(each, 1) for each in zip(*steps, strict=True)]


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_packed_loop_equals_single_steps_where_there_are_words(score, layers, lengths):
    d, (words, memory) = decoder(layers, score=score), inputs()
    exists, results = words_of(lengths).unsqueeze(-1), []
    for queries, scores in (
        d(words, exists.squeeze(-1), memory, mask=MASK),
        step_by_step(d, words, memory),
    ):
        queries = queries.masked_fill(~exists, 0.0)
        scores = scores.masked_fill(~(exists & MASK.unsqueeze(1)), 0.0)
        g = torch.Generator().manual_seed(0)
        loss = sum(
            (x * torch.randn(x.shape, generator=g, dtype=torch.float64)).sum() for x in (queries, scores)
        )
        inputs_and_weights = [words, memory, *d.parameters()]
        grads = torch.autograd.grad(loss, inputs_and_weights, allow_unused=True)
        zeros = [torch.zeros_like(x) for x in inputs_and_weights]
        results.append([queries, scores, *(z if g is None else g for g, z in zip(grads, zeros, strict=True))])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("score", SCORES)
def test_gradients_of_all_weights_are_right(score):
    d, (words, memory) = decoder(2, score=score), inputs()
    exists, names = words_of(LENGTHS["ragged"]), [n for n, _ in d.named_parameters()]

    def run(words, memory, *weights):
        replaced = dict(zip(names, weights, strict=True))
        queries, scores = torch.func.functional_call(
            d, replaced, (words, exists, memory), kwargs={"mask": MASK}
        )
        return queries[exists], scores[exists.unsqueeze(-1) & MASK.unsqueeze(1)]

    weights = [p.detach().requires_grad_() for p in d.parameters()]
    assert torch.autograd.gradcheck(run, (words, memory, *weights), fast_mode=True)


@pytest.mark.parametrize("score", ["mlp", "a user's"])
def test_a_second_backward_pass_gives_the_same_gradient(score):
    d, (words, memory) = decoder(2, score=score), inputs()
    loss = sum(x.sum() for x in d(words, EVERY, memory, mask=MASK))
    first, second = (torch.autograd.grad(loss, memory, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.slow
def test_dropout_between_layers_has_the_gradient_of_its_own_mask():
    d, (words, memory) = decoder(2, dropout=0.5), inputs()

    def run(words):
        torch.manual_seed(5)
        queries, scores = d(words, EVERY, memory, mask=MASK)
        return queries.sum() + scores[:, :, 0].sum()

    assert torch.autograd.gradcheck(run, (words,))


def test_a_subclass_that_changes_the_formula_is_not_differentiated_as_its_parent():
    class Doubled(MLPScore):
        def scores(self, query, projected):
            return 2 * super().scores(query, projected)

    projected = torch.randn(3, 4, 6)
    assert isinstance(score_steps(Doubled(4, 4, 6), projected, 5), AutogradSteps)
    assert not isinstance(score_steps(MLPScore(4, 4, 6), projected, 5), AutogradSteps)


def test_no_graph_is_kept_where_no_gradient_is_wanted():
    score = CosineScore(4, 4)
    with torch.no_grad():
        steps = score_steps(score, torch.randn(3, 4, 4), 3)
    steps.forward(slice(0, 3), torch.randn(3, 4), torch.empty(3, 4))
    assert steps.graphs == {}


@pytest.mark.parametrize("score", SCORES)
def test_a_model_in_half_precision_stays_near_the_full_one(score):
    torch.manual_seed(0)
    d, (words, memory) = decoder(2, score=score), inputs()
    full = d(words, EVERY, memory, mask=MASK)
    half = d.bfloat16()(words.bfloat16(), EVERY, memory.bfloat16(), mask=MASK)
    sum(x.sum() for x in half).backward()
    for a, b in zip(full, half, strict=True):
        assert b.dtype == torch.bfloat16
        torch.testing.assert_close(a, b.double(), rtol=0.1, atol=0.1)


@pytest.mark.parametrize("score", SCORES)
def test_words_that_do_not_exist_are_never_read(score):
    d, (words, memory) = decoder(2, score=score), inputs()
    exists = words_of(LENGTHS["ragged"])
    clean = d(words, exists, memory, mask=MASK)
    dirty = d(words.masked_fill(~exists.unsqueeze(-1), float("nan")), exists, memory, mask=MASK)
    for a, b in zip(clean, dirty, strict=True):
        assert torch.equal(a, b)


def test_queries_alone_or_scores_alone_may_have_a_gradient():
    d, (words, memory) = decoder(1), inputs()
    whole = torch.autograd.grad(sum(x.sum() for x in d(words, EVERY, memory, mask=MASK)), memory)[0]
    parts = [torch.autograd.grad(d(words, EVERY, memory, mask=MASK)[i].sum(), memory)[0] for i in (0, 1)]
    torch.testing.assert_close(whole, sum(parts))
