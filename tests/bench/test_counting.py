"""What is counted is what is computed."""

from dataclasses import replace

import pytest
import torch

from latentalign.bench.counting import count_operations
from latentalign.bench.rows import parse_row
from latentalign.bench.sentences import FixedLength
from latentalign.core.kernels import fused_softmax
from support.bench import TINY

M, K, N, B = 3, 4, 5, 2
ONE = 2 * M * K * N
LOGITS_OF = fused_softmax.logits_of
matrix, other, vector = torch.randn(M, K), torch.randn(K, N), torch.randn(K)
batched, others = torch.randn(B, M, K), torch.randn(B, K, N)


@pytest.mark.parametrize(
    ("work", "operations"),
    [
        (lambda: matrix @ other, ONE),
        (lambda: torch.mm(matrix, other, out=torch.empty(M + 2, N)[:M]), ONE),
        (lambda: torch.addmm(torch.zeros(N), matrix, other, out=torch.empty(M, N)), ONE),
        (lambda: torch.zeros(M, N).addmm_(matrix, other), ONE),
        (lambda: torch.zeros(N, M).t().addmm_(matrix, other), ONE),
        (lambda: torch.zeros(B, M, N).baddbmm_(batched, others), B * ONE),
        (lambda: batched @ others, B * ONE),
        (lambda: batched @ other, B * ONE),
        (lambda: matrix @ vector, 2 * M * K),
        (lambda: torch.matmul(batched, vector, out=torch.empty(B, M)), B * 2 * M * K),
        (lambda: torch.zeros(M).addmv_(matrix, vector), 2 * M * K),
        (lambda: vector @ vector, 2 * K),
        (lambda: torch.nn.functional.linear(batched, other.t()), B * ONE),
    ],
)
def test_every_kind_of_product_is_counted(work, operations):
    with count_operations() as count:
        work()
    assert count.operations == operations


def step(objective, preset):
    """Count one forward and backward pass over a batch; the batch too."""
    data, module = preset.problem(parse_row(objective))
    batch = data.load_batch(data.batch_keys(0)[0])
    with count_operations() as count:
        (-module(batch).surrogate).backward()
    return count, batch


def soft_operations(preset, queries, members, each):
    """Products of soft attention, forward and backward, when no sentence is padded.

    Layers have three: their own, and one each for the gradients of input and weight.
    """
    m, v = preset.model, preset.vocabulary
    memory = 2 * m.encoder_size
    layers = members * 2 * 4 * m.encoder_size * (m.embedding + m.encoder_size)  # encoder, both directions
    layers += queries * 4 * m.decoder_size * (m.embedding + memory + m.decoder_size)  # decoder
    layers += members * memory * m.attention_size + queries * m.decoder_size * m.attention_size
    layers += queries * m.head_size * (memory + m.decoder_size + v)
    contexts = 2 * queries * each * memory  # what is fed back, and what is emitted from
    scores = queries * each * m.attention_size  # w' tanh(...): the gradient of tanh's argument is no product
    return 2 * (3 * (layers + contexts) + 2 * scores)


def test_operations_of_soft_attention_are_those_on_paper():
    preset = replace(TINY, lengths=FixedLength(6))
    count, batch = step("soft", preset)
    expected = soft_operations(preset, batch.target.numel(), batch.source.numel(), 6)
    assert count.operations == pytest.approx(expected, rel=0.02)
    assert count.emissions == batch.queries


def test_emissions_of_enumeration_are_pairs_that_exist():
    count, batch = step("marginal", TINY)
    assert count.emissions == int((batch.source_mask.sum(1) * batch.target_mask.sum(1)).sum())


def test_emissions_formed_again_are_counted_again():
    hidden, weight = torch.randn(7, 3, requires_grad=True), torch.randn(20, 3)
    with count_operations() as count:
        fused_softmax.linear_log_prob(
            hidden, weight, None, torch.zeros(7, dtype=torch.int64), max_logits=50
        ).sum().backward()
    assert count.emissions == 2 * 7


def fail():
    with count_operations():
        raise RuntimeError(f"wrapped: {fused_softmax.logits_of is not LOGITS_OF}")


def test_nothing_is_wrapped_afterwards():
    with pytest.raises(RuntimeError, match="wrapped: True"):
        fail()
    assert fused_softmax.logits_of is LOGITS_OF
