"""The fast recurrence equals the plain one, forward and backward."""

import pytest
import torch

from latentalign.core.scores import BilinearScore, MLPScore
from latentalign.nn.attention_decoder import AttentionDecoder

MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]]).bool()
LENGTHS = {"even": [6, 6, 6], "ragged": [2, 6, 3], "one without words": [4, 0, 6], "no words": [0, 0, 0]}


def words_of(lengths):
    return torch.tensor(lengths).unsqueeze(1) > torch.arange(6)


EVERY = words_of(LENGTHS["even"])


def decoder(layers, dropout=0.0):
    return AttentionDecoder(3, 5, layers, memory_dim=4, score=MLPScore(5, 4, 6), dropout=dropout).double()


def inputs():
    words = torch.randn(3, 6, 3, dtype=torch.float64, requires_grad=True)
    memory = torch.randn(3, 4, 4, dtype=torch.float64, requires_grad=True)
    return words, memory


def plain(d, words, memory):
    return d.plain_loop(d.from_word(words).transpose(0, 1), memory, d.score.project(memory), MASK)


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_fast_loop_equals_the_plain_one_where_there_are_words(layers, lengths):
    d, (words, memory) = decoder(layers), inputs()
    exists, results = words_of(lengths).unsqueeze(-1), []
    for queries, scores in (
        d(words, exists.squeeze(-1), memory, mask=MASK),
        plain(d, words, memory),
    ):
        queries = queries.masked_fill(~exists, 0.0)
        scores = scores.masked_fill(~(exists & MASK.unsqueeze(1)), 0.0)
        g = torch.Generator().manual_seed(0)
        loss = sum(
            (x * torch.randn(x.shape, generator=g, dtype=torch.float64)).sum() for x in (queries, scores)
        )
        grads = torch.autograd.grad(loss, [words, memory, *d.parameters()])
        results.append([queries, scores, *grads])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def test_dropout_between_layers_has_the_gradient_of_its_own_mask():
    d, (words, memory) = decoder(2, dropout=0.5), inputs()

    def run(words):
        torch.manual_seed(5)
        queries, scores = d(words, EVERY, memory, mask=MASK)
        return queries.sum() + scores[:, :, 0].sum()

    assert torch.autograd.gradcheck(run, (words,))


def test_step_by_step_equals_all_at_once():
    d, (words, memory) = decoder(2), inputs()
    queries, scores = d(words, EVERY, memory, mask=MASK)
    state, projected = d.start(3, memory), d.score.project(memory)
    for t in range(6):
        query, score, state = d.step(words[:, t], state, memory, projected, mask=MASK)
        torch.testing.assert_close(query, queries[:, t])
        torch.testing.assert_close(score, scores[:, t])


def test_other_scores_take_the_plain_loop():
    d = AttentionDecoder(3, 5, 1, memory_dim=4, score=BilinearScore(5, 4)).double()
    words, memory = inputs()
    queries, scores = d(words, EVERY, memory, mask=MASK)
    assert queries.shape == (3, 6, 5)
    assert scores.shape == (3, 6, 4)


@pytest.mark.parametrize("score", [MLPScore(5, 4, 6), BilinearScore(5, 4)])
def test_words_that_do_not_exist_are_never_read(score):
    d, (words, memory) = AttentionDecoder(3, 5, 2, memory_dim=4, score=score).double(), inputs()
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
