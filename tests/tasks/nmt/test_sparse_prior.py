"""Translation models with entmax and sparsemax priors: likelihood, search, padding and recipes."""

import pytest
import torch

from latentalign import OBJECTIVES, parse_predict
from latentalign import config as recipes
from latentalign.core.distributions import DISTRIBUTIONS
from latentalign.errors import InputError
from latentalign.search import BeamSearch
from latentalign.tasks.nmt.decode import Translator, pair_batch
from latentalign.tasks.nmt.model import ModelConfig, TranslationModel
from latentalign.tasks.nmt.prior import PriorConfig
from latentalign.tasks.nmt.recipe import NMTConfig

WORDS = 7
SIZES = ModelConfig(
    embedding=4, encoder_layers=1, encoder_size=4, decoder_layers=1, decoder_size=5, attention_size=4,
    head_size=6, dropout=0.0, init=2.0,
)  # fmt: skip
TRANSFORMER = ModelConfig(
    backbone="transformer", embedding=4, heads=2, encoder_layers=1, decoder_layers=1, dropout=0.0
)
SOURCES, TARGETS = [[4, 5, 6, 5, 4], [6], [5, 4]], [[4, 6, 5], [4], [5, 5]]


@pytest.fixture(params=["entmax", "sparsemax", "entmax, NULL", "entmax, transformer"])
def model(request):
    kind, _, variant = request.param.partition(", ")
    torch.manual_seed(0)
    sizes = TRANSFORMER if variant == "transformer" else SIZES
    prior = PriorConfig(kind=kind, null=variant == "NULL")
    model = TranslationModel(sizes, source_size=WORDS, target_size=WORDS, prior=prior).double().eval()
    for parameter in model.decoder.score.parameters():
        parameter.data *= 4  # sharp enough for a sparse prior
    return model


def log_prob(model, source, target, how):
    with torch.no_grad():
        return float(parse_predict(how).log_prob(model.latent(pair_batch([source], [target]))).sum())


def test_some_source_positions_are_impossible(model):
    prior = model.latent(pair_batch(SOURCES, TARGETS)).prior
    assert type(prior) is model.distribution
    assert ((prior.mean[0] == 0) & (prior.mean[0].sum(-1, keepdim=True) > 0)).any()


@pytest.mark.parametrize("how", ["exact", "soft", "kmax:1", "kmax:99", "certified:1e-9"])
def test_the_score_of_a_translation_is_the_models_own_log_probability(model, how):
    search = BeamSearch(beam=4, length_penalty=0.0, nbest=3, max_length=5)
    found = Translator(model, search, parse_predict(how))(SOURCES)
    for source, hypotheses in zip(SOURCES, found, strict=True):
        for h in hypotheses:
            wanted = log_prob(model, source, list(h.tokens[:-1]), "exact" if "certified" in how else how)
            assert h.log_prob == pytest.approx(wanted, abs=1e-6)


def test_padding_never_matters(model):
    alone = [log_prob(model, source, [4, 6], "exact") for source in SOURCES]
    with torch.no_grad():
        latent = model.latent(pair_batch(SOURCES, [[4, 6]] * 3))
        together = OBJECTIVES["marginal"]()(latent).value.sum(1)
    assert together.tolist() == pytest.approx(alone, abs=1e-12)


@pytest.mark.parametrize("name", ["soft", "marginal", "hard-enum", "hard-sample"])
def test_every_parameter_is_trained(model, name):
    latent = model.train().latent(pair_batch(SOURCES, TARGETS))
    OBJECTIVES[name]()(latent).surrogate.sum().backward()
    for parameter in model.parameters():
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()


def test_the_decoder_gives_a_gradient_to_scores_outside_of_the_support():
    """It is fed the softmax of the scores, which brings members back that the likelihood has lost."""
    torch.manual_seed(0)
    model = TranslationModel(SIZES, source_size=WORDS, target_size=WORDS, prior=PriorConfig(kind="sparsemax"))
    model.decoder.score.to_score.weight.data *= 100
    project, seen = model.decoder.score.project, []

    def keep(memory):
        seen.append(project(memory))
        return seen[-1]

    model.decoder.score.project = keep
    latent = model.latent(pair_batch(SOURCES[:1], TARGETS[:1]))
    never = ~latent.prior.mask[0].any(0)  # source positions that no target word can select
    assert never.any()
    (gradient,) = torch.autograd.grad(OBJECTIVES["marginal"]()(latent).value.sum(), seen)
    assert gradient[0, never].abs().sum(-1).gt(0).all()


@pytest.mark.parametrize("kind", ["entmax", "sparsemax"])
def test_an_objective_with_q_is_refused_with_the_reason(kind):
    with pytest.raises(
        InputError, match=r"variational-sample needs KL\[q, p\], which is infinite.*use marginal"
    ):
        recipes.load("nmt/demo", NMTConfig, ["objective.name=variational-sample", f"prior.kind={kind}"])


def test_a_recipe_chooses_the_distribution_with_the_prior():
    changes = ["objective.name=hard-enum", "prior.kind=sparsemax", "prior.null=true"]
    config = recipes.load("nmt/demo", NMTConfig, changes)
    model = TranslationModel(SIZES, source_size=WORDS, target_size=WORDS, prior=config.prior)
    assert model.distribution is DISTRIBUTIONS["sparsemax"]
    assert model.chain is None
    assert model.has_null


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["objective.name=relaxed-hard", "prior.kind=entmax"], "the objective needs a dirichlet prior"),
        (
            ["objective.name=marginal", "objective.distribution=sparsemax", "prior.kind=entmax"],
            "the objective needs a sparsemax prior",
        ),
        (
            ["objective.name=marginal", "prior.kind=entmax", "prior.widest_jump=3"],
            "widest_jump has no effect",
        ),
        (
            ["objective.name=marginal", "prior.kind=entmax", "inference.chain=true"],
            "needs a prior that is a chain",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        recipes.load("nmt/demo", NMTConfig, changes)
