"""Translation models with several looks: search, padding, alignments over positions, q, and what is refused."""

import json

import pytest
import torch

from latentalign import OBJECTIVES, parse_predict
from latentalign import config as recipes
from latentalign.errors import InputError
from latentalign.search import BeamSearch
from latentalign.tasks.base import EvaluationOptions
from latentalign.tasks.nmt.align import BatchAlignments
from latentalign.tasks.nmt.decode import Translator, pair_batch
from latentalign.tasks.nmt.inference_network import InferenceConfig
from latentalign.tasks.nmt.model import ModelConfig, TranslationModel
from latentalign.tasks.nmt.prior import PriorConfig
from latentalign.tasks.nmt.recipe import NMTConfig
from latentalign.tasks.nmt.schema import TranslationDetails
from latentalign.tasks.nmt.task import TRANSLATION
from latentalign.training.run import Run
from support.nmt import tiny

LSTM = ModelConfig(
    embedding=4, encoder_layers=1, encoder_size=3, decoder_layers=1, decoder_size=5, attention_size=4,
    head_size=6, dropout=0.0, init=1.0,
)  # fmt: skip
TRANSFORMER = ModelConfig(
    backbone="transformer", embedding=4, heads=2, encoder_layers=1, decoder_layers=1, dropout=0.0,
    emission_state="lagged", lagged_layers=1, emission="word+state",
)  # fmt: skip
PRIORS = {
    "two looks": {"looks": 2},
    "three looks, NULL": {"looks": 3, "null": True},
    "shared views, NULL": {"looks": 2, "views": "shared", "null": True},
    "dependent looks": {"looks": "dependent"},
}
PAIRS = ([[4, 5, 6], [6], [5, 4]], [[4, 6], [5], [4, 4, 6]])


def build(prior, sizes=LSTM, inference=None):
    torch.manual_seed(0)
    options = {"source_size": 7, "target_size": 7, "inference": inference}
    return TranslationModel(sizes, prior=PriorConfig(**PRIORS[prior]), **options).double().eval()


@pytest.fixture(params=[(name, sizes) for name in PRIORS for sizes in (LSTM, TRANSFORMER)], ids=str)
def model(request):
    return build(*request.param)


@pytest.mark.parametrize("how", ["exact", "soft", "kmax:2", "certified:1e-12"])
@torch.no_grad()
def test_the_score_of_a_translation_is_the_models_own_log_probability(model, how):
    search = BeamSearch(beam=4, length_penalty=0.0, nbest=3, max_length=5)
    found = Translator(model, search, parse_predict(how))(PAIRS[0])
    for source, hypotheses in zip(PAIRS[0], found, strict=True):
        for h in hypotheses:
            latent = model.latent(pair_batch([source], [list(h.tokens[:-1])]))
            expected = float(parse_predict(how).log_prob(latent).sum())
            assert h.log_prob == pytest.approx(expected, abs=1e-8)


@torch.no_grad()
def test_padding_never_matters_and_alignments_are_over_positions(model):
    together = model.latent(pair_batch(*PAIRS))
    shown = BatchAlignments(together)
    value = OBJECTIVES["marginal"]()(together).value
    for row, (source, target) in enumerate(zip(*PAIRS, strict=True)):
        alone = model.latent(pair_batch([source], [target]))
        length, width = len(target) + 1, len(source)
        torch.testing.assert_close(OBJECTIVES["marginal"]()(alone).value[0], value[row, :length])
        for using in ("prior", "posterior", "path"):
            matrix, whole = BatchAlignments(alone).matrix(using)[0], shown.matrix(using)[row, :length]
            assert matrix.shape == (length, width + model.has_null)
            torch.testing.assert_close(matrix[:, :width], whole[:, :width])
            if using != "path":
                torch.testing.assert_close(matrix.sum(-1), torch.ones(length).double())


@pytest.mark.parametrize("name", ["marginal", "soft", "hard-enum", "hard-sample"])
def test_every_parameter_of_the_looks_is_trained(model, name):
    OBJECTIVES[name]()(model.latent(pair_batch(*PAIRS))).loss().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.looks.parameters())


@pytest.mark.parametrize("prior", list(PRIORS)[:3])
def test_q_tells_looks_apart(prior):
    model = build(prior, inference=InferenceConfig(layers=1, size=3))
    latent = model.latent(pair_batch(*PAIRS))
    OBJECTIVES["variational-enum"]()(latent).loss().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.inference.parameters())
    assert BatchAlignments(latent).matrix("inferred").shape == (3, 4, 3 + model.has_null)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            ["prior.looks=2", "prior.kind=jump", "objective.name=marginal"],
            "several looks have no single position",
        ),
        (["prior.looks=0"], "prior.looks"),
        (["prior.looks=pairs"], "prior.looks"),
        (["prior.views=shared"], "a single look has no view"),
        (
            ["prior.looks=dependent", "prior.null=true", "objective.name=marginal"],
            "prior.null is not defined",
        ),
        (["prior.looks=dependent"], "no inference network for pairs"),
        (["prior.looks=2", "objective.name=relaxed"], "several looks add nothing"),
        (["prior.looks=2", "inference.kind=aligner"], "not which look found it"),
    ],
)
def test_combinations_that_cannot_work_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        recipes.load("nmt/demo", NMTConfig, changes)


@pytest.mark.slow
@pytest.mark.parametrize(("looks", "objective"), [("2", "variational-sample"), ("dependent", "marginal")])
def test_a_run_with_several_looks_trains_and_is_evaluated(demo_files, tmp_path, looks, objective):
    config = tiny(demo_files, objective, f"prior.looks={looks}", "training.epochs=1")
    TRANSLATION.train(config, Run(tmp_path / "run"), resume=False, overwrite=False)
    trained = TRANSLATION.load(tmp_path / "run")
    figures, details = TRANSLATION.evaluate(trained, "test", EvaluationOptions(details=3, beam=2))
    assert figures["ppl_exact"] <= figures["ppl_kmax5"] * 1.5
    assert 0 <= figures["aer_posterior"] <= 1
    checked = TranslationDetails.model_validate(json.loads(json.dumps(details)))
    for record in checked.alignments:
        assert set(record.matrices) >= {"prior", "posterior"}
