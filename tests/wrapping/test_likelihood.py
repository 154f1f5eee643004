"""A wrapped model has its own likelihood at first, and the exact marginal over z afterwards, whatever the padding."""

import itertools
import math

import pytest
import torch

from latentalign import marginal, wrap
from support.wrapping import KINDS, PAIRS, make_model, own_log_probs, shake

EXACT = {"rtol": 1e-10, "atol": 1e-10}


@pytest.fixture(params=KINDS)
def model(request):
    if request.param != "torch":
        pytest.importorskip("transformers", reason="transformers is missing: pip install 'latentalign[hf]'")
    return make_model(request.param)


def test_the_likelihood_is_the_models_own_right_after_wrapping(model):
    found = wrap(model).log_likelihoods(PAIRS)
    for (source, target), log_probs in zip(PAIRS, found, strict=True):
        torch.testing.assert_close(log_probs, own_log_probs(model, source, target), rtol=0, atol=1e-5)


def test_wrapping_leaves_the_model_alone(model):
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.train()
    wrap(model)
    assert all(part.training for part in model.modules())
    torch.testing.assert_close(dict(model.state_dict()), before, rtol=0, atol=0)


def test_the_likelihood_is_the_sum_over_all_source_tokens(model):
    wrapped = shake(wrap(model.double()))
    source, target = PAIRS[1]
    (found,) = wrapped.log_likelihoods([(source, target)])
    batch = wrapped.batch(wrapped.reader.pairs([(source, target)]))
    with torch.no_grad():
        query, memory = (x[0] for x in wrapped.states(batch))
        score, layer = wrapped.translation.prior.score, wrapped.base.output
        keys, queries = score.from_memory(memory), score.from_query(query)
        for j, output in enumerate([*target, wrapped.base.end]):
            prior = torch.softmax(keys @ queries[j] / math.sqrt(keys.shape[1]), 0)
            total = 0.0
            for z in range(len(source)):
                logits = (query[j] + wrapped.head.from_memory.weight @ memory[z]) @ layer.weight.T
                logits = logits if layer.bias is None else logits + layer.bias
                total += prior[z] * torch.softmax(logits, 0)[output]
            torch.testing.assert_close(found[j], total.log(), **EXACT)
    own = own_log_probs(model, source, target)
    assert (found - own).abs().max() > 0.01  # the sum differs from the model, so the test can fail


def test_the_alignment_layer_sums_over_all_paths(model):
    wrapped = shake(wrap(model.double()), 0.3)
    source, target = [5, 6, 7], [9, 10, 11]
    pairs = wrapped.reader.pairs([(source, target)])
    batch = wrapped.batch(pairs)
    with torch.no_grad():
        latent = wrapped.explain(batch, wrapped.states(batch))
        found = marginal(latent).value[0, :3]
        torch.testing.assert_close(found.sum(), sum_over_paths(wrapped, latent, batch), **EXACT)


def sum_over_paths(wrapped, latent, batch):
    """log sum of p(path) f(path) over all paths of positions and NULL, from the layer's weights."""
    layer, total = wrapped.alignment, 0.0
    weight = wrapped.base.output.weight / wrapped.base.output.weight.norm(dim=1).mean()
    words = torch.nn.functional.layer_norm(wrapped.base.embed(batch.source[:, :3]), (16,))[0]
    members = torch.cat([words, layer.chain.null_member[None]])
    hidden = layer.lexicon.second(torch.relu(layer.lexicon.first(members)))
    table = (hidden @ weight.T + layer.lexicon.bias).softmax(-1)[:, batch.target[0, :3]].T
    chain = latent.prior
    jumps, middle = layer.chain.table, len(layer.chain.table) // 2
    for path in itertools.product(itertools.product(range(3), (False, True)), repeat=3):
        p, place = 1.0, None
        for j, (i, is_null) in enumerate(path):
            chance = chain.log_null[0, j, 0].exp()
            if j == 0:
                p = p * chain.scores[0, 0, :3].softmax(-1)[i]
            elif is_null:
                p = p * (i == place)
            else:
                row = [chain.scores[0, j, k] + jumps[middle + k - place] for k in range(3)]
                p = p * torch.stack(row).softmax(-1)[i]
            p = p * (chance * table[j, 3] if is_null else (1 - chance) * table[j, i])
            place = i
        total = total + p
    return total.log()


def test_padding_never_matters(model):
    wrapped = shake(wrap(model.double()))
    alone = [wrapped.log_likelihoods([pair])[0] for pair in PAIRS]
    for found, expected in zip(wrapped.log_likelihoods(PAIRS), alone, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    for mode in ("translate", "align"):
        wrapped.mode = mode
        together = wrapped.align(PAIRS).alignments
        for pair, found in zip(PAIRS, together, strict=True):
            (expected,) = wrapped.align([pair]).alignments
            assert found.probability == pytest.approx(expected.probability, abs=1e-9)
            assert found.null == pytest.approx(expected.null, abs=1e-9)


def test_ids_at_padding_never_matter(model):
    wrapped = shake(wrap(model.double()))
    batch = wrapped.batch(wrapped.reader.pairs(PAIRS))
    other = wrapped.batch(wrapped.reader.pairs(PAIRS))
    other.source[~batch.source_exists] = 20
    other.target[~batch.target_exists] = 21
    with torch.no_grad():
        values = [
            (marginal(wrapped.choice(b).observe(b.target)).value, wrapped.posterior(b))
            for b in (batch, other)
        ]
    torch.testing.assert_close(*values, rtol=1e-12, atol=1e-12)
