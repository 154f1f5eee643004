"""Every objective trains; runs are complete, resumable and never overwritten unasked."""

import dataclasses
import json
import math
import shutil
import sys

import numpy as np
import pytest
import torch

from latentalign import OBJECTIVES, storage
from latentalign.core.kernels import emission, likelihood
from latentalign.errors import CheckpointError, DivergedError, InputError
from latentalign.tasks.nmt.task import TRANSLATION, build_caches
from latentalign.tasks.nmt.tokenizer import Tokenizer
from latentalign.tasks.nmt.training_data import TranslationData
from latentalign.training import checkpoint
from latentalign.training.loop import Trainer
from latentalign.training.loss import LossModule
from latentalign.training.run import Run
from support.nmt import tiny

pytestmark = pytest.mark.slow  # trains a small model first


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", list(OBJECTIVES))
def test_every_objective_lowers_its_own_bound_in_100_steps(name, demo_files, tmp_path):
    config = tiny(
        demo_files, name, "training.max_steps=100", "training.log_steps=10", "training.epochs=100",
        "training.batch_sentences=8",
        "training.learning_rate=6e-3", "training.validate_steps=100",
    )  # fmt: skip
    result = TRANSLATION.train(config, Run(tmp_path / "run"), resume=False, overwrite=False)
    bounds = [r["bound"] for r in Run(tmp_path / "run").history() if r["kind"] == "training"]
    assert all(math.isfinite(b) for b in bounds)
    assert bounds[-1] < 0.5 * bounds[0]
    assert math.isfinite(result["ppl"])


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", ["soft", "marginal", "hard-enum", "variational-enum"])
def test_fused_and_plain_emissions_train_alike_step_by_step(name, demo_files, tmp_path, monkeypatch):
    curves = []
    for fused in (True, False):
        if not fused:
            for module in (emission, likelihood):
                monkeypatch.setattr(module, "is_factored", lambda emit: False)
        config = tiny(
            demo_files, name, "training.max_steps=50", "training.log_steps=1", "training.precision=float64",
            "model.dropout=0.0",
        )  # fmt: skip
        run = Run(tmp_path / f"{fused}")
        TRANSLATION.train(config, run, resume=False, overwrite=False)
        curves.append([r["bound"] for r in run.history() if r["kind"] == "training"])
    assert len(curves[0]) == len(curves[1]) == 50
    assert curves[0] == pytest.approx(curves[1], rel=1e-10)
    assert curves[0][-1] < 0.6 * curves[0][0]


@pytest.mark.parametrize("name", ["soft", "marginal", "hard-enum", "variational-enum"])
@pytest.mark.parametrize("normalize", ["tokens", "sentences"])
def test_gradients_of_small_batches_add_up_to_that_of_a_large_one(name, normalize, demo_files, tmp_path):
    config = tiny(
        demo_files, name, "training.precision=float64", "model.dropout=0.0", f"training.normalize={normalize}"
    )
    tokenizer = Tokenizer.learn(config.tokenizer, config.data.train.source, config.data.train.target)
    found = []
    for sizes in ([8], [4, 4], [2, 2, 2, 2], [7, 1]):
        torch.manual_seed(0)
        data = TranslationData(config, tokenizer, build_caches(config, tokenizer, tmp_path / "cache"))
        module = LossModule(TRANSLATION.build_model(config, tokenizer).double(), config.objective.build())
        trainer = Trainer(data, module, Run(tmp_path / "run"), config=config.training, metadata={})
        sums = trainer.update(np.split(np.arange(8), np.cumsum(sizes)[:-1]))
        found.append({**module.model.state_dict(), "value": torch.tensor(sums.value, dtype=torch.float64)})
    for other in found[1:]:
        for key, expected in found[0].items():
            torch.testing.assert_close(other[key], expected, rtol=1e-10, atol=1e-10)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("tail", ["enumerate", "sample"])
def test_the_certified_marginal_trains(tail, demo_files, tmp_path):
    config = tiny(
        demo_files, "marginal", "training.max_steps=200", "training.log_steps=20", "training.epochs=100",
        "training.learning_rate=3e-3", "training.validate_steps=200", "objective.tolerance=0.5",
        f"objective.tail={tail}",
    )  # fmt: skip
    result = TRANSLATION.train(config, Run(tmp_path / "run"), resume=False, overwrite=False)
    history = [r for r in Run(tmp_path / "run").history() if r["kind"] == "training"]
    assert history[-1]["bound"] < 0.5 * history[0]["bound"]
    if tail == "enumerate":
        assert history[-1]["gap"] <= math.log1p(0.5)
    assert 1 <= history[-1]["visited"] <= (13 if tail == "enumerate" else 3)
    assert math.isfinite(result["ppl"])


def test_a_run_directory_is_complete(trained_run):
    names = {p.name for p in trained_run.iterdir()}
    assert {
        "config.toml",
        "tokenizer.json",
        "model.safetensors",
        "checkpoint",
        "metrics.jsonl",
        "card.json",
    } <= names
    card = json.loads((trained_run / "card.json").read_text())
    assert card["objective"]["name"] == "variational-sample"
    assert len(card["data"]["train"]["source"]) == 64
    assert "tok:13a" in card["bleu"]


def test_a_second_training_into_the_same_directory_is_refused(trained_run, demo_files):
    with pytest.raises(InputError, match="--resume"):
        TRANSLATION.train(tiny(demo_files, "soft"), Run(trained_run), resume=False, overwrite=False)


def test_resuming_as_something_else_is_refused(trained_run, demo_files):
    with pytest.raises(
        InputError, match=r'started with objective.name = "variational-sample", .* now says "soft"'
    ):
        TRANSLATION.train(tiny(demo_files, "soft"), Run(trained_run), resume=True, overwrite=False)
    added = tiny(demo_files, "variational-sample", "objective.n=3")
    with pytest.raises(InputError, match=r"objective\.n = null, the recipe now says 3"):
        TRANSLATION.train(added, Run(trained_run), resume=True, overwrite=False)


def test_a_run_goes_on_with_the_text_that_it_began_with(trained_run, demo_files, tmp_path):
    run = Run(tmp_path / "run")
    shutil.copytree(trained_run, run.folder)
    options = ["training.max_steps=60", "training.learning_rate=1e-2", "data.processes=1"]
    config = tiny(demo_files, "variational-sample", *options)
    text = config.data.train.source
    content = text.read_bytes()
    try:
        text.write_bytes(content.replace(b"e", b"a", 1))
        with pytest.raises(InputError, match=rf"{text}: has changed since this run was started"):
            TRANSLATION.train(config, run, resume=True, overwrite=False)
    finally:
        text.write_bytes(content)
    assert TRANSLATION.train(config, run, resume=True, overwrite=False)["steps"] > 0


def test_how_outputs_are_searched_may_change_when_a_run_goes_on(trained_run, demo_files, tmp_path):
    run = Run(tmp_path / "run")
    shutil.copytree(trained_run, run.folder)
    options = ["training.max_steps=60", "training.learning_rate=1e-2", "search.length_penalty=0.5"]
    changed = tiny(demo_files, "variational-sample", *options)
    TRANSLATION.train(changed, run, resume=True, overwrite=False)
    assert TRANSLATION.load(run.folder).config.search.length_penalty == 0.5


@pytest.mark.parametrize(
    ("name", "backbone"),
    [("variational-sample", "lstm"), ("hard-sample", "lstm"), ("variational-sample", "transformer")],
)
def test_resuming_gives_the_weights_of_an_undisturbed_run(name, backbone, demo_files, tmp_path):
    options = ["training.learning_rate=1e-2"]
    if backbone == "transformer":
        options += ["model.emission_drop=0.2", "training.warmup_steps=7", "training.label_smoothing=0.1"]
    if name == "hard-sample":
        options.append("objective.baseline=learned")
    whole, cut = Run(tmp_path / "whole"), Run(tmp_path / "cut")
    TRANSLATION.train(
        tiny(demo_files, name, "training.max_steps=12", *options, backbone=backbone),
        whole,
        resume=False,
        overwrite=False,
    )
    for steps, resume in ((5, False), (12, True)):
        TRANSLATION.train(
            tiny(demo_files, name, f"training.max_steps={steps}", *options, backbone=backbone),
            cut,
            resume=resume,
            overwrite=False,
        )
    a, b = checkpoint.load(whole.checkpoint), checkpoint.load(cut.checkpoint)
    for group in ("module", "optimizer"):
        assert a.tensors[group].keys() == b.tensors[group].keys()
        for key in a.tensors[group]:
            assert torch.equal(a.tensors[group][key], b.tensors[group][key]), key


def test_the_log_says_the_rate_of_each_update(demo_files, tmp_path):
    options = ["training.learning_rate=1e-2", "training.max_steps=8", "training.log_steps=1"]
    TRANSLATION.train(
        tiny(demo_files, "soft", *options, backbone="transformer"),
        Run(tmp_path),
        resume=False,
        overwrite=False,
    )
    rates = [r["learning_rate"] for r in Run(tmp_path).history() if r["kind"] == "training"]
    assert rates == pytest.approx([1e-2 * min(n / 4, (4 / n) ** 0.5) for n in range(1, 9)])


def test_relaxed_starts_from_the_jensen_bound(demo_files, tmp_path):
    config = tiny(
        demo_files, "relaxed", "training.max_steps=3", "training.warm_start_epochs=1", "training.epochs=1"
    )
    TRANSLATION.train(config, Run(tmp_path / "run"), resume=False, overwrite=False)
    warm = TRANSLATION.load(tmp_path / "run" / "warm-start")
    assert warm.config.objective.name == "relaxed-hard"


def test_any_objective_may_start_from_an_easier_one(demo_files, tmp_path):
    options = ("training.max_steps=3", "training.warm_start_epochs=1", "training.epochs=1")
    # An objective of another family has nothing to start from in a model of soft attention.
    TRANSLATION.train(
        tiny(demo_files, "relaxed-hard", *options), Run(tmp_path / "cold"), resume=False, overwrite=False
    )
    assert not (tmp_path / "cold" / "warm-start").exists()
    config = tiny(demo_files, "variational-sample", *options, "training.warm_start_objective=soft")
    TRANSLATION.train(config, Run(tmp_path / "run"), resume=False, overwrite=False)
    assert TRANSLATION.load(tmp_path / "run" / "warm-start").config.objective.name == "soft"


def test_text_is_encoded_and_hashed_once_even_with_a_warm_start(demo_files, tmp_path, monkeypatch):
    encoded, hashed = [], []
    encode = Tokenizer.id_arrays
    monkeypatch.setattr(
        Tokenizer,
        "id_arrays",
        lambda self, lines, side: encoded.append(len(lines)) or encode(self, lines, side),
    )
    for module in ("nmt.data", "splits"):
        name = f"latentalign.tasks.{module}.fingerprint"
        monkeypatch.setattr(name, lambda path: hashed.append(str(path)) or storage.fingerprint(path))
    options = ("training.max_steps=2", "training.warm_start_epochs=1", "training.warm_start_objective=soft")
    run = Run(tmp_path / "run")
    TRANSLATION.train(tiny(demo_files, "marginal", *options), run, resume=False, overwrite=False)
    assert run.warm_start.is_dir()
    assert not Run(run.warm_start).cache.exists()
    assert encoded == [400, 400, 40, 40]
    texts = [path for path in hashed if path.endswith((".de", ".en"))]
    assert len(texts) == len(set(texts)) == 6


def test_external_q_trains_from_a_pharaoh_file(demo_files, tmp_path):
    for split in ("train", "valid"):
        lines = (demo_files / f"{split}.gold").read_text().split("\n")[:-1]
        plain = [" ".join(t for t in line.split() if "?" not in t) for line in lines]
        (tmp_path / f"{split}.links").write_text("".join(f"{line}\n" for line in plain))
    links = [f"data.{s}.links={tmp_path / f'{s}.links'}" for s in ("train", "valid")]
    config = tiny(demo_files, "variational-enum", "inference.kind=external", "training.max_steps=5", *links)
    TRANSLATION.train(config, Run(tmp_path / "run"), resume=False, overwrite=False)
    assert TRANSLATION.load(tmp_path / "run").model.inference is None
    broken = tiny(demo_files, "variational-enum", "inference.kind=external")
    with pytest.raises(InputError, match=r"needs data\.train\.links"):
        TRANSLATION.train(broken, Run(tmp_path / "other"), resume=False, overwrite=False)


def test_divergence_stops_before_the_update_and_names_the_lines(demo_files, tmp_path, monkeypatch):
    calls = []
    forward = LossModule.forward

    def poisoned(self, batch):
        sums = forward(self, batch)
        calls.append(self.model.head.output.weight.detach().clone())
        bad = dataclasses.replace(sums, surrogate=sums.surrogate * float("nan"))
        return bad if len(calls) == 4 else sums

    monkeypatch.setattr(LossModule, "forward", poisoned)
    config = tiny(demo_files, "soft", "training.checkpoint_steps=1", "training.max_steps=40")
    with pytest.raises(DivergedError, match=r"step 4: .*train\.de lines \d+"):
        TRANSLATION.train(config, Run(tmp_path / "run"), resume=False, overwrite=False)
    kept = checkpoint.load(Run(tmp_path / "run").checkpoint).tensors["module"]["model.head.output.weight"]
    assert torch.equal(kept, calls[-1])


def test_a_tokenizer_that_does_not_belong_is_refused(trained_run, demo_files, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(trained_run, copy)
    config = tiny(demo_files, "soft", "training.max_steps=1", "tokenizer.min_count=3")
    TRANSLATION.train(config, Run(tmp_path / "other"), resume=False, overwrite=False)
    shutil.copy(tmp_path / "other" / "tokenizer.json", copy / "tokenizer.json")
    with pytest.raises(CheckpointError, match="tokenizer"):
        TRANSLATION.load(copy)


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("backbone", ["lstm", "transformer"])
def test_reduced_precision_stays_near_full_precision(backbone, demo_files, tmp_path):
    bounds = {}
    for precision in ("float32", "bf16"):
        config = tiny(
            demo_files, "variational-enum", "training.max_steps=200", "training.log_steps=10",
            "training.batch_sentences=4", "training.epochs=3",
            "model.dropout=0.0", f"training.precision={precision}", backbone=backbone,
        )  # fmt: skip
        TRANSLATION.train(config, Run(tmp_path / precision), resume=False, overwrite=False)
        records = [r for r in Run(tmp_path / precision).history() if r["kind"] == "training"]
        bounds[precision] = [math.log(r["bound"]) for r in records]
    assert bounds["bf16"] == pytest.approx(bounds["float32"], rel=0.01)


def test_tensorboard_is_asked_for_by_name(demo_files, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    config = tiny(demo_files, "soft", "training.max_steps=1", "training.tensorboard=true")
    with pytest.raises(InputError, match=r"pip install \"latentalign\[tensorboard\]\""):
        TRANSLATION.train(config, Run(tmp_path / "run"), resume=False, overwrite=False)


def test_two_trainings_never_share_a_directory(demo_files, tmp_path, monkeypatch):
    monkeypatch.setattr("latentalign.training.run.LOCK_PATIENCE", 0.3)
    config = tiny(demo_files, "soft", "training.max_steps=1")
    folder = tmp_path / "run"
    with Run(folder).lock(wait=False), pytest.raises(InputError, match="another process is training here"):
        TRANSLATION.train(config, Run(folder), resume=True, overwrite=False)
    TRANSLATION.train(config, Run(folder), resume=True, overwrite=False)


def test_the_time_of_a_training_can_be_bounded(demo_files, tmp_path):
    config = tiny(demo_files, "soft", "training.max_minutes=1e-6")
    assert TRANSLATION.train(config, Run(tmp_path), resume=False, overwrite=False)["steps"] == 2
    assert (
        TRANSLATION.train(config, Run(tmp_path), resume=True, overwrite=False)["steps"] == 2
    )  # it has ended
