"""A soft run becomes the start of a latent one: equal weights, equal soft likelihood, and training goes on."""

import pytest
import torch

from latentalign.data import demo
from latentalign.errors import InputError
from latentalign.tasks.nmt.evaluate import evaluate
from latentalign.tasks.nmt.task import TRANSLATION
from latentalign.training.convert import convert_run
from latentalign.training.run import Run
from support.commands import command
from support.nmt import tiny


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    demo.write(folder, train=100, valid=10, test=10)
    return folder


@pytest.fixture(scope="module", params=["lstm", "transformer"])
def soft(request, files, tmp_path_factory):
    run = Run(tmp_path_factory.mktemp("runs") / request.param)
    config = tiny(
        files, "soft", "training.max_steps=6", "training.learning_rate=1e-2", backbone=request.param
    )
    TRANSLATION.train(config, run, resume=False, overwrite=False)
    return run


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["marginal", "variational-sample"])
def test_the_soft_likelihood_is_that_of_the_old_run(soft, objective, tmp_path):
    out = Run(tmp_path / "new")
    found = convert_run(TRANSLATION, soft, out, objective=objective)
    old, new = (TRANSLATION.load(run.folder, double=True) for run in (soft, out))
    assert new.config.objective.name == objective
    assert (found["new_parameters"] > 0) == (new.model.inference is not None) == (objective != "marginal")
    before, after = evaluate(old, "test"), evaluate(new, "test", predict="soft")
    assert after["ppl"] == pytest.approx(before["ppl"], rel=1e-12)
    assert evaluate(new, "test")["ppl"] == pytest.approx(before["ppl_exact"], rel=1e-12)


@pytest.mark.slow
def test_training_goes_on_from_the_old_weights(soft, tmp_path):
    out = Run(tmp_path / "new")
    changes = ["training.learning_rate=1e-9", "training.max_steps=2", "training.warmup_steps=0"]
    convert_run(TRANSLATION, soft, out, objective="marginal", overrides=changes)
    config = TRANSLATION.load(out.folder).config
    assert TRANSLATION.train(config, out, resume=True, overwrite=False)["steps"] == 2
    old, new = soft.load_model()[0], out.load_model()[0]
    assert old.keys() == new.keys()
    for name in old:
        torch.testing.assert_close(new[name], old[name], rtol=0, atol=1e-7)


@pytest.mark.slow
def test_a_latent_run_that_is_converted_loses_its_inference_network(soft, tmp_path):
    first, second = Run(tmp_path / "first"), Run(tmp_path / "second")
    convert_run(TRANSLATION, soft, first, objective="variational-sample", overrides=["objective.n=3"])
    assert convert_run(TRANSLATION, first, second, objective="soft")["new_parameters"] == 0
    assert TRANSLATION.load(second.folder).model.inference is None


@pytest.mark.slow
def test_what_cannot_be_converted_is_refused_and_leaves_nothing(soft, tmp_path):
    out = tmp_path / "new"
    for options, message in (
        ({"objective": "relaxed"}, "its prior is dirichlet"),
        ({"objective": "marginal", "overrides": ["model.dropout=0.5"]}, "converting keeps the model"),
        ({"objective": "marginl"}, "did you mean 'marginal'"),
        ({"objective": "marginal", "overrides": ["training.epoch=3"]}, "epochs"),
    ):
        with pytest.raises(InputError, match=message):
            convert_run(TRANSLATION, soft, Run(out), **options)
        assert not out.exists()
    out.mkdir()
    (out / "notes").write_text("mine")
    with pytest.raises(InputError, match="is not empty"):
        convert_run(TRANSLATION, soft, Run(out), objective="marginal")


@pytest.mark.slow
def test_the_command_converts_and_says_what_comes_next(soft, tmp_path):
    out = tmp_path / "new"
    done = command("convert", soft.folder, "--objective", "marginal", "--out", out)
    assert done.returncode == 0, done.stderr
    assert b"--resume" in done.stderr
    missing = command("convert", tmp_path / "nothing", "--objective", "marginal", "--out", tmp_path / "x")
    assert missing.returncode == 4
    assert not (tmp_path / "x").exists()
