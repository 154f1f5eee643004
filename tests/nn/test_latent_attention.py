"""Latent attention inside a model of your own: parameters, q, targets."""

import pytest
import torch

from latentalign import DISTRIBUTIONS, OBJECTIVES, LatentAttention, TargetError, set_value_checks

SIZES = {"query_dim": 6, "memory_dim": 5, "outputs": 7, "hidden": 4}


def batch():
    return torch.randn(3, 2, 6), torch.randn(3, 4, 5), torch.randint(7, (3, 2))


def attention_for(objective, **options):
    return LatentAttention(
        **SIZES, distribution=objective.distribution, inference=objective.needs_inferred, **options
    )


def built_in(name):
    """Whether the built-in posterior network is enough for an objective."""
    objective = OBJECTIVES[name]()
    return not (objective.needs_inferred and DISTRIBUTIONS[objective.distribution].extra_scores)


@pytest.mark.parametrize("name", [name for name in OBJECTIVES if built_in(name)])
def test_every_parameter_gets_a_gradient(name):
    """So that DistributedDataParallel needs no find_unused_parameters."""
    query, memory, target = batch()
    objective = OBJECTIVES[name]()
    attention = attention_for(objective)
    objective(attention(query, memory).observe(target)).loss().backward()
    assert all(p.grad is not None for p in attention.parameters())


def test_there_is_no_posterior_network_unless_it_is_asked_for():
    plain, inferring = LatentAttention(**SIZES), LatentAttention(**SIZES, inference=True)
    assert plain.posterior is None
    extra = set(dict(inferring.named_parameters())) - set(dict(plain.named_parameters()))
    assert extra
    assert all(name.startswith("posterior.") for name in extra)


def test_the_sizes_of_the_posterior_network_follow_hidden():
    network = LatentAttention(**SIZES, inference=True).posterior
    assert network.embed.embedding_dim == network.from_memory.out_features == SIZES["hidden"]


@pytest.mark.parametrize("name", [name for name in OBJECTIVES if OBJECTIVES[name].needs_inferred])
def test_without_q_the_error_says_how_to_get_it(name):
    query, memory, target = batch()
    objective = OBJECTIVES[name]()
    attention = LatentAttention(**SIZES, distribution=objective.distribution)
    with pytest.raises(ValueError, match="inference=True"):
        objective(attention(query, memory).observe(target))


@pytest.mark.parametrize("inference", [True, False])
@pytest.mark.parametrize("wrong", [-100, -1, 7])
def test_a_target_that_is_no_output_is_named(wrong, inference):
    query, memory, target = batch()
    target[1, 1] = wrong
    attention = LatentAttention(**SIZES, inference=inference)
    objective = OBJECTIVES["variational-enum" if inference else "marginal"]()
    with pytest.raises(TargetError, match=rf"0\.\.6 .*got {wrong}.*query_padding_mask") as error:
        objective(attention(query, memory).observe(target))
    assert ("ignore_index" in str(error.value)) == (wrong == -100)


@pytest.mark.parametrize("name", ["marginal", "variational-sample", "soft", "rws"])
def test_the_target_of_a_query_that_does_not_exist_may_be_anything(name):
    query, memory, target = batch()
    objective = OBJECTIVES[name]()
    attention, found = attention_for(objective), []
    padding = torch.tensor([[False, True], [False, False], [True, True]])
    for filling in (0, -100):
        torch.manual_seed(0)
        filled = target.masked_fill(padding, filling)
        choice = attention(query, memory, query_padding_mask=padding)
        found.append(objective(choice.observe(filled)).loss())
    assert found[0] == found[1]


def test_checks_of_values_have_one_switch(monkeypatch):
    query, memory, target = batch()
    attention = LatentAttention(**SIZES)
    looked = []
    monkeypatch.setattr(torch, "aminmax", lambda *a, plain=torch.aminmax: looked.append(1) or plain(*a))
    nan = torch.full((3, 2, 6), float("nan"))
    try:
        set_value_checks(False)
        OBJECTIVES["marginal"]()(attention(query, memory).observe(target))
        assert attention(nan, memory).prior.mean.isnan().all()
        assert not looked
    finally:
        set_value_checks(True)
    OBJECTIVES["marginal"]()(attention(query, memory).observe(target))
    assert looked
    with pytest.raises(ValueError, match="nan at"):
        attention(nan, memory)


@pytest.mark.parametrize("name", ["variational-sample", "hard-sample", "sum-and-sample"])
def test_a_learned_baseline_is_trained_by_an_optimizer_made_before_the_first_batch(name):
    query, memory, target = batch()
    objective = OBJECTIVES[name](baseline="learned")
    attention = attention_for(objective)
    optimizer = torch.optim.Adam([*attention.parameters(), *objective.parameters()], lr=0.05)
    known = {id(p) for group in optimizer.param_groups for p in group["params"]}
    history, errors = [], []
    for _ in range(60):
        torch.manual_seed(0)
        estimate = objective(attention(query, memory).observe(target))
        errors.append(estimate.terms["advantage"].mean().item())
        history.append([p.detach().clone() for p in objective.parameters()])
        optimizer.zero_grad()
        estimate.loss().backward()
        optimizer.step()
    assert len(history[0]) == 4
    assert all(id(p) in known for p in objective.parameters())
    assert all(not torch.equal(a, b) for a, b in zip(history[0], history[-1], strict=True))
    assert errors[-1] < errors[0] / 2  # it learns the rewards
