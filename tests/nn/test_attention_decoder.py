"""The fast recurrence equals the plain one, forward and backward."""

import pytest
import torch

from latentalign.core.scores import BilinearScore, MLPScore
from latentalign.nn.attention_decoder import AttentionDecoder

MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]]).bool()


def decoder(layers, dropout=0.0):
    return AttentionDecoder(3, 5, layers, memory_dim=4, score=MLPScore(5, 4, 6), dropout=dropout).double()


def inputs():
    words = torch.randn(3, 6, 3, dtype=torch.float64, requires_grad=True)
    memory = torch.randn(3, 4, 4, dtype=torch.float64, requires_grad=True)
    return words, memory


def plain(d, words, memory):
    return d.plain_loop(d.from_word(words).transpose(0, 1), memory, d.score.project(memory), MASK)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_fast_loop_equals_the_plain_one(layers):
    d, (words, memory) = decoder(layers), inputs()
    results = []
    for queries, scores in (d(words, memory, MASK), plain(d, words, memory)):
        scores = scores.masked_fill(~MASK.unsqueeze(1), 0.0)
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
        queries, scores = d(words, memory, MASK)
        return queries.sum() + scores[:, :, 0].sum()

    assert torch.autograd.gradcheck(run, (words,))


def test_step_by_step_equals_all_at_once():
    d, (words, memory) = decoder(2), inputs()
    queries, scores = d(words, memory, MASK)
    state, projected = d.start(3, memory), d.score.project(memory)
    for t in range(6):
        query, score, state = d.step(words[:, t], state, memory, projected, mask=MASK)
        torch.testing.assert_close(query, queries[:, t])
        torch.testing.assert_close(score, scores[:, t])


def test_other_scores_take_the_plain_loop():
    d = AttentionDecoder(3, 5, 1, memory_dim=4, score=BilinearScore(5, 4)).double()
    queries, scores = d(*inputs(), MASK)
    assert queries.shape == (3, 6, 5)
    assert scores.shape == (3, 6, 4)
