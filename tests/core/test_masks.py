"""One rule for masks: `exists` is True where something exists, a padding mask is True at padding."""

import pytest
import torch

from latentalign import (
    DISTRIBUTIONS,
    Chain,
    Jump,
    LatentAttention,
    LatentChoice,
    Mixed,
    MLPHead,
    softmax_curvature,
)

PADDING = torch.tensor([[False, False, True]])


@pytest.mark.parametrize("name", list(DISTRIBUTIONS))
def test_a_positional_mask_is_refused_with_the_rule(name):
    build = DISTRIBUTIONS[name].from_scores
    for mask in (PADDING, ~PADDING):
        with pytest.raises(
            TypeError, match=r"by name.*exists= is True where a member exists.*~key_padding_mask"
        ):
            build(torch.zeros(1, 3), mask)
    kept = build(torch.zeros(1, 3), exists=~PADDING)
    assert kept.mean[0, 2] == 0
    assert kept.mean[0, :2].tolist() == pytest.approx([0.5, 0.5])


def test_a_positional_mask_of_a_chain_is_refused_with_the_rule():
    with pytest.raises(TypeError, match="exists= is True where a member exists"):
        Chain.from_scores(torch.zeros(1, 1, 3), ~PADDING, transition=Jump(torch.zeros(3)))


@pytest.mark.parametrize("masks", [(PADDING,), (PADDING, PADDING)])
def test_latent_attention_refuses_positional_masks_with_the_rule(masks):
    attention = LatentAttention(2, 2, 4, hidden=4)
    with pytest.raises(TypeError, match=r"by name.*True at padding"):
        attention(torch.zeros(1, 3, 2), torch.zeros(1, 3, 2), *masks)


def test_both_conventions_give_the_same_prior():
    attention = LatentAttention(2, 2, 4, hidden=4)
    query, memory = torch.randn(1, 2), torch.randn(1, 3, 2)
    prior = attention(query, memory, key_padding_mask=PADDING).prior
    ours = DISTRIBUTIONS["categorical"].from_scores(attention.prior.score(query, memory), exists=~PADDING)
    torch.testing.assert_close(prior.mean, ours.mean)
    assert prior.mean[0, 2] == 0


def test_no_boolean_tensor_can_be_passed_by_position():
    prior = DISTRIBUTIONS["categorical"].from_scores(torch.zeros(1, 3))
    memory = torch.zeros(1, 3, 2)
    with pytest.raises(TypeError):
        LatentChoice(prior, MLPHead(2, 2, 4), torch.zeros(1, 2), memory, torch.ones(1).bool())
    with pytest.raises(TypeError):
        Mixed.point(prior.mean, prior.mask)
    with pytest.raises(TypeError):
        softmax_curvature(torch.zeros(4, 2), memory, prior.mask)
    with pytest.raises(TypeError):
        type(prior)(prior.log_probs, prior.mask)
