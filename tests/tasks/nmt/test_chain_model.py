"""Translation models whose alignments form a chain: likelihood, search, padding and q."""

import itertools

import numpy as np
import pytest
import torch

from latentalign import OBJECTIVES, parse_predict
from latentalign import config as recipes
from latentalign.errors import InputError
from latentalign.search import BeamSearch
from latentalign.tasks.nmt.align import BatchAlignments, Pair, pair_links
from latentalign.tasks.nmt.decode import Translator, pair_batch
from latentalign.tasks.nmt.inference_network import InferenceConfig
from latentalign.tasks.nmt.model import ModelConfig, TranslationModel
from latentalign.tasks.nmt.prior import PriorConfig
from latentalign.tasks.nmt.recipe import NMTConfig
from latentalign.tasks.nmt.tokenizer import EOS, Encoded

WORDS = 7
PRIORS = {
    "jump": {"kind": "jump", "widest_jump": 2},
    "jump by query, NULL": {"kind": "jump", "widest_jump": 2, "by_query": True, "null": True},
    "monotone, NULL": {"kind": "monotone", "null": True},
    "monotone, two steps": {"kind": "monotone", "max_step": 2},
    "dense": {"kind": "dense", "hidden": 3},
}
SIZES = ModelConfig(
    embedding=4, encoder_layers=1, encoder_size=4, decoder_layers=1, decoder_size=5, attention_size=4,
    head_size=6, dropout=0.0, init=1.0,
)  # fmt: skip
TRANSFORMER = ModelConfig(
    backbone="transformer", embedding=4, heads=2, encoder_layers=1, decoder_layers=1, dropout=0.0,
    emission_state="lagged", lagged_layers=1,
)  # fmt: skip
SOURCES = [[4, 5, 6], [6], [5, 4]]


def build(prior, inference=None, sizes=SIZES):
    torch.manual_seed(0)
    model = TranslationModel(
        sizes, source_size=WORDS, target_size=WORDS, prior=PriorConfig(**prior), inference=inference
    )
    return model.double().eval()


@pytest.fixture(params=[*PRIORS, "transformer, jump by query, NULL", "transformer, dense"])
def model(request):
    name = request.param.removeprefix("transformer, ")
    return build(PRIORS[name], sizes=SIZES if name == request.param else TRANSFORMER)


def log_prob(model, source, target, how="exact"):
    """log p(target | source) with the outputs known, one number."""
    with torch.no_grad():
        return float(parse_predict(how).log_prob(model.latent(pair_batch([source], [target]))).sum())


@pytest.mark.parametrize("how", ["exact", "soft", "kmax:1", "kmax:99"])
def test_the_score_of_a_translation_is_the_models_own_log_probability(model, how):
    search = BeamSearch(beam=4, length_penalty=0.0, nbest=3, max_length=5)
    found = Translator(model, search, parse_predict(how))(SOURCES)
    for source, hypotheses in zip(SOURCES, found, strict=True):
        for h in hypotheses:
            assert h.log_prob == pytest.approx(log_prob(model, source, list(h.tokens[:-1]), how), abs=1e-9)


@pytest.mark.slow
def test_a_wide_beam_finds_the_most_probable_output_of_all(model):
    search = BeamSearch(beam=400, length_penalty=0.0, max_length=4, nbest=1)
    [[best]] = Translator(model, search, parse_predict("exact"))([SOURCES[0]])
    words = [w for w in range(3, WORDS) if w != EOS]
    outputs = [list(o) for n in range(4) for o in itertools.product(words, repeat=n)]
    scores = {tuple(o): log_prob(model, SOURCES[0], o) for o in outputs}
    assert max(scores, key=scores.get) == tuple(best.tokens[:-1])
    assert best.log_prob == pytest.approx(max(scores.values()), abs=1e-9)


@pytest.mark.slow
def test_the_size_of_a_batch_never_matters(model):
    translate = Translator(model, BeamSearch(beam=3, nbest=2, max_length=6), parse_predict("exact"))
    together = translate(SOURCES)
    for alone, other in zip((translate([source])[0] for source in SOURCES), together, strict=True):
        assert [h.tokens for h in alone] == [h.tokens for h in other]
        assert [h.log_prob for h in alone] == pytest.approx([h.log_prob for h in other], abs=1e-12)


def test_padding_never_matters(model):
    alone = [log_prob(model, source, [4, 6]) for source in SOURCES]
    with torch.no_grad():
        latent = model.latent(pair_batch(SOURCES, [[4, 6]] * 3))
        together = OBJECTIVES["marginal"]()(latent).value.sum(1)
    assert together.tolist() == pytest.approx(alone, abs=1e-12)


@pytest.mark.parametrize("name", ["soft", "marginal", "hard-enum", "hard-sample"])
def test_every_parameter_of_the_prior_is_trained(model, name):
    latent = model.train().latent(pair_batch(SOURCES, [[4, 6, 5], [4], [5, 5]]))
    OBJECTIVES[name]()(latent).surrogate.sum().backward()
    for parameter in model.chain.parameters():
        assert parameter.grad is not None
        assert parameter.grad.abs().sum() > 0


@pytest.mark.parametrize("name", ["variational-enum", "variational-sample"])
@pytest.mark.parametrize(("prior", "chain"), [(p, c) for p in PRIORS for c in (False, True)])
def test_q_may_be_independent_or_a_chain(name, prior, chain):
    if "monotone" in prior and not chain:
        pytest.skip("an independent q would allow moves that a monotone prior forbids")
    model = build(PRIORS[prior], InferenceConfig(layers=1, size=3, chain=chain))
    latent = model.latent(pair_batch(SOURCES, [[4, 6, 5], [4], [5, 5]]))
    estimate = OBJECTIVES[name]()(latent)
    estimate.surrogate.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.inference.parameters())
    if name == "variational-enum":
        evidence = OBJECTIVES["marginal"]()(latent).value.sum(1)
        assert (estimate.value.sum(1) <= evidence + 1e-12).all()


def test_the_best_path_is_linked_with_its_posterior_probability():
    model = build(PRIORS["jump by query, NULL"])
    with torch.no_grad():
        latent = model.latent(pair_batch([[4, 5, 6]], [[4, 6]]))
    posterior = latent.prior.exact_posterior(latent)
    matrix = BatchAlignments(latent).matrix("path")
    path, _ = posterior.best()
    assert torch.equal((matrix > 0).long().argmax(-1), path)
    assert torch.equal(matrix.sum(-1), posterior.mean.gather(-1, path.unsqueeze(-1)).squeeze(-1))


def test_a_word_whose_best_source_is_null_has_no_link():
    pair = Pair(Encoded([4, 5], [0, 1]), Encoded([4, 6], [0, 1]))
    matrix = np.array(
        [[0.2, 0.3, 0.0, 0.5], [0.5, 0.1, 0.0, 0.4], [0.0, 0.0, 0.0, 1.0]]
    )  # NULL is the last column
    alignment = pair_links(pair, matrix, null=True)
    assert alignment.null.tolist() == [0.5, 0.4]
    assert alignment.best() == {(0, 1)}
    assert pair_links(pair, matrix, null=False).best() == {(1, 0), (0, 1)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["objective.name=rws", "prior.kind=jump"], "rws is not defined for prior.kind"),
        (
            ["objective.name=marginal", "objective.tolerance=0.1", "prior.kind=jump"],
            "is not defined for prior.kind",
        ),
        (["inference.chain=true"], "inference.chain needs a prior that is a chain"),
        (
            ["objective.name=variational-sample", "prior.kind=monotone", "inference.chain=false"],
            "never goes back",
        ),
        (["prior.kind=jump", "prior.max_step=2"], "prior.max_step has no effect"),
    ],
)
def test_combinations_that_cannot_work_are_refused_by_name(changes, message):
    with pytest.raises(InputError, match=message):
        recipes.load("nmt/demo", NMTConfig, changes)


def test_q_follows_a_monotone_prior_unless_it_is_set():
    load = lambda *changes: recipes.load("nmt/demo", NMTConfig, list(changes)).inference.chain  # noqa: E731
    assert load("prior.kind=monotone") is True
    assert load("prior.kind=jump") is False
    assert load("prior.kind=jump", "inference.chain=true") is True
