"""q as the prior times learned factors: where it starts, what it learns, padding, and what is refused."""

import pytest
import torch

from latentalign import OBJECTIVES
from latentalign import config as recipes
from latentalign.errors import InputError
from latentalign.tasks.nmt.decode import pair_batch
from latentalign.tasks.nmt.inference_network import InferenceConfig
from latentalign.tasks.nmt.model import ModelConfig, TranslationModel
from latentalign.tasks.nmt.prior import PriorConfig
from latentalign.tasks.nmt.recipe import NMTConfig
from latentalign.tasks.nmt.task import TRANSLATION
from latentalign.training.convert import convert_run
from latentalign.training.run import Run
from support.nmt import tiny

LSTM = ModelConfig(
    embedding=4, encoder_layers=1, encoder_size=3, decoder_layers=1, decoder_size=5, attention_size=4,
    head_size=6, dropout=0.0, init=1.0,
)  # fmt: skip
TRANSFORMER = ModelConfig(
    backbone="transformer", embedding=4, heads=2, encoder_layers=1, decoder_layers=1, dropout=0.0
)
PRIORS = {
    "one look": {},
    "NULL": {"null": True},
    "looks": {"looks": 2},
    "looks, NULL": {"looks": 2, "null": True},
}
PAIRS = ([[4, 5, 6], [6], [5, 4]], [[4, 6], [5], [4, 4, 6]])
PARTS = ("factor.", "look_factors.", "null_factor.")


def build(prior, sizes):
    torch.manual_seed(0)
    inference = InferenceConfig(layers=1, size=3, start_at_prior=True)
    model = TranslationModel(
        sizes, source_size=7, target_size=7, prior=PriorConfig(**PRIORS[prior]), inference=inference
    )
    return model.double().eval()


@pytest.fixture(params=[(name, sizes) for name in PRIORS for sizes in (LSTM, TRANSFORMER)], ids=str)
def model(request):
    return build(*request.param)


@torch.no_grad()
def test_q_is_the_prior_at_first_so_the_elbo_is_the_jensen_bound(model):
    latent = model.latent(pair_batch(*PAIRS))
    torch.testing.assert_close(latent.inferred.mean, latent.prior.mean)
    assert type(latent.inferred) is type(latent.prior)
    elbo, jensen = (OBJECTIVES[name]()(latent).value for name in ("variational-enum", "hard-enum"))
    torch.testing.assert_close(elbo, jensen)


def test_q_learns_from_the_first_update_and_then_its_whole_network(model):
    optimiser = torch.optim.Adam(model.inference.parameters(), lr=0.01)
    bounds = []
    for _ in range(5):
        optimiser.zero_grad()
        estimate = OBJECTIVES["variational-enum"]()(model.latent(pair_batch(*PAIRS)))
        estimate.loss().backward()
        optimiser.step()
        bounds.append(float(estimate.mean().detach()))
    assert bounds[-1] > bounds[0]
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.inference.parameters())


def test_no_gradient_reaches_the_prior_through_q(model):
    for name, parameter in model.inference.named_parameters():
        if name.startswith(PARTS):
            torch.nn.init.normal_(parameter)
    model.latent(pair_batch(*PAIRS)).inferred.entropy.sum().backward()
    assert model.inference.factor.from_memory.weight.grad.abs().sum() > 0
    assert all(p.grad is None for p in model.decoder.parameters())


@torch.no_grad()
def test_padding_never_matters_to_q(model):
    for parameter in model.inference.parameters():
        torch.nn.init.normal_(parameter)
    q = model.latent(pair_batch(*PAIRS)).inferred
    for row, (source, target) in enumerate(zip(*PAIRS, strict=True)):
        alone = model.latent(pair_batch([source], [target])).inferred
        torch.testing.assert_close(alone.entropy[0], q.entropy[row, : len(target) + 1])


@pytest.mark.parametrize(
    "changes",
    [
        ["inference.kind=aligner"],
        ["prior.kind=jump"],
        ["objective.name=relaxed"],
    ],
)
def test_combinations_that_cannot_work_are_refused(changes):
    with pytest.raises(InputError, match="start_at_prior needs"):
        recipes.load("nmt/demo", NMTConfig, ["inference.start_at_prior=true", *changes])


def test_objectives_without_q_ignore_it():
    recipes.load(
        "nmt/demo", NMTConfig, ["inference.start_at_prior=true", "objective.name=soft", "prior.kind=jump"]
    )


@pytest.mark.slow
@pytest.mark.parametrize("backbone", ["lstm", "transformer"])
def test_a_run_trains_and_is_read_again(demo_files, tmp_path, backbone):
    changes = ["inference.start_at_prior=true", "training.epochs=1"]
    config = tiny(demo_files, "variational-sample", *changes, backbone=backbone)
    TRANSLATION.train(config, Run(tmp_path / "run"), resume=False, overwrite=False)
    model = TRANSLATION.load(tmp_path / "run").model
    assert model.inference.start_at_prior
    assert model.inference.factor.from_memory.weight.abs().sum() > 0


@pytest.mark.slow
@pytest.mark.parametrize("trained", [False, True])
def test_a_q_of_the_other_kind_is_never_taken_over(demo_files, tmp_path, trained):
    """A converted run and a warm start begin at the prior, or with a new q."""
    options = ["training.max_steps=3", "training.learning_rate=0.05"]
    first, second = (f"inference.start_at_prior={str(value).lower()}" for value in (trained, not trained))
    config = tiny(demo_files, "variational-sample", *options, first)
    TRANSLATION.train(config, Run(tmp_path / "old"), resume=False, overwrite=False)
    convert_run(
        TRANSLATION,
        Run(tmp_path / "old"),
        Run(tmp_path / "new"),
        objective="variational-sample",
        overrides=[second],
    )
    still = [
        "training.max_steps=1",
        "training.learning_rate=1e-30",
        f"training.warm_start={tmp_path / 'old'}",
    ]
    config = tiny(demo_files, "variational-sample", *still, second)
    TRANSLATION.train(config, Run(tmp_path / "warm"), resume=False, overwrite=False)
    for name in ("new", "warm"):
        model = TRANSLATION.load(tmp_path / name, double=True).model
        with torch.no_grad():
            latent = model.latent(pair_batch(*PAIRS))
        distance = (latent.inferred.mean - latent.prior.mean).abs().max()
        assert (distance < 1e-6) != trained
