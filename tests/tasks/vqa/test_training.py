"""Training, evaluation and answering of questions on a few generated scenes."""

import dataclasses
import json
import math
import subprocess
import sys

import numpy as np
import pytest
import torch

from latentalign import OBJECTIVES
from latentalign.errors import CheckpointError, InputError
from latentalign.reproduction.experiment import PageContext
from latentalign.tasks.vqa.answer import answer_questions
from latentalign.tasks.vqa.data import Corpus, answered_batches
from latentalign.tasks.vqa.details import details, example_regions
from latentalign.tasks.vqa.evaluate import evaluate, intersection_over_union, overlaps
from latentalign.tasks.vqa.experiment import viewers
from latentalign.tasks.vqa.figures import draw_looks, find_pictures
from latentalign.tasks.vqa.recipe import open_corpus, open_split
from latentalign.tasks.vqa.task import ANSWERING
from latentalign.tasks.vqa.tokenizer import Vocabulary
from latentalign.tasks.vqa.training_data import AnsweringData
from latentalign.tasks.vqa.vectors import read_vectors
from latentalign.training import checkpoint
from latentalign.training.loss import LossModule
from latentalign.training.run import Run

pytestmark = pytest.mark.slow

CATEGORICAL = [name for name in OBJECTIVES if OBJECTIVES[name]().distribution == "categorical"]


@pytest.mark.parametrize("name", CATEGORICAL)
def test_every_objective_lowers_its_bound(name, tiny, tmp_path):
    config = tiny(name, "training.learning_rate=1e-2", "training.epochs=6", "model.dropout=0.1")
    ANSWERING.train(config, Run(tmp_path), resume=False, overwrite=False)
    bounds = [r["bound"] for r in Run(tmp_path).history() if r["kind"] == "validation"]
    assert all(math.isfinite(b) for b in bounds)
    assert min(bounds[1:]) < bounds[0]


def test_relaxed_objectives_are_refused_with_the_reason(tiny, tmp_path):
    with pytest.raises(InputError, match="a mixture of regions is not a region"):
        ANSWERING.train(tiny("relaxed"), Run(tmp_path / "run"), resume=False, overwrite=False)


def test_resuming_is_exact(tiny, tmp_path):
    whole, cut = Run(tmp_path / "whole"), Run(tmp_path / "cut")
    ANSWERING.train(tiny("variational-sample", "training.max_steps=7"), whole, resume=False, overwrite=False)
    for steps, resume in ((3, False), (7, True)):
        config = tiny("variational-sample", f"training.max_steps={steps}")
        ANSWERING.train(config, cut, resume=resume, overwrite=False)
    a, b = checkpoint.load(whole.checkpoint), checkpoint.load(cut.checkpoint)
    for key, tensor in a.tensors["module"].items():
        assert torch.equal(tensor, b.tensors["module"][key]), key


def test_answers_are_drawn_in_proportion_to_votes_and_anew_each_epoch(tiny, trained):
    corpus = open_corpus(trained.config, trained.vocabulary, trained.config.data.train)
    draws = np.stack([corpus.draw_answers(0, epoch) for epoch in range(2000)])
    i = max(corpus.answerable, key=lambda k: len(corpus.votes[k]))
    votes = corpus.votes[i]
    assert len(votes) > 1
    for answer, count in votes.items():
        share = count / votes.total()
        error = 5 * math.sqrt(share * (1 - share) / len(draws))
        assert abs((draws[:, i] == answer).mean() - share) < error
    assert (draws[3] == corpus.draw_answers(0, 3)).all()


def test_two_processes_see_every_question_once(tiny, trained):
    class World:
        def __init__(self, rank):
            self.rank, self.size = rank, 2

    shares = [AnsweringData(trained.config, trained.vocabulary, world=World(r)) for r in (0, 1)]
    epochs = [share.batch_keys(4) for share in shares]
    assert len(epochs[0]) == len(epochs[1])
    seen = np.concatenate([key[:, 0] for epoch in epochs for key in epoch])
    assert sorted(seen.tolist()) == shares[0].train.answerable.tolist()


def test_an_empty_share_has_no_loss_but_reaches_every_parameter(trained):
    data = AnsweringData(trained.config, trained.vocabulary)
    module = LossModule(trained.model.double(), trained.objective)
    sums = module(data.load_batch(np.zeros((0, 2), np.int64)))
    assert (sums.queries, sums.examples, sums.value.item()) == (0, 0, 0.0)
    sums.surrogate.backward()
    assert all(p.grad is not None for n, p in trained.model.named_parameters() if "embedding" not in n)
    trained.model.zero_grad()


def test_likelihoods_are_means_over_all_human_answers(trained):
    found = evaluate(trained, "test")
    corpus = open_split(trained, "test")
    total, count = 0.0, 0
    with torch.no_grad():
        for i in corpus.answerable:
            votes = corpus.votes[i]
            count += 1
            for answer, n in votes.items():
                latent = trained.model.latent(corpus.batch(np.array([i]), np.array([answer])))
                each = latent.log_likelihood(latent.prior.enumerate())[0]
                total += n / votes.total() * float((latent.prior.mean[0] * each.exp()).sum().log())
    assert found["nll_exact"] == pytest.approx(-total / count, rel=1e-9)
    assert found["nll"] == found["nll_exact"]
    assert found["nll_exact"] <= found["nll_elbo"]
    assert found["elbo_gap"] == pytest.approx(found["nll_elbo"] - found["nll_exact"], rel=1e-6)
    assert found["nll_soft"] != found["nll_exact"]
    assert 0 <= found["grounding_posterior"] <= 1
    assert 0 <= found["accuracy"] <= 100
    assert found["accuracy_official"] is not None
    assert found["by_question_type"]


def test_weights_of_a_questions_answers_sum_to_one(trained):
    corpus = open_split(trained, "test")
    total = sum(float(j.weight.sum()) for j in answered_batches(corpus, 7))
    assert total == pytest.approx(len(corpus.answerable))
    assert sum(int(j.is_top.sum()) for j in answered_batches(corpus, 7)) == len(corpus.answerable)


def test_details_hold_every_question_and_some_looks(trained, pictures):
    found = details(trained, "test", questions=5)
    result = evaluate(trained, "test")
    assert -np.mean(found["scores"]["nll"]) == pytest.approx(result["nll"], rel=1e-9)
    assert np.mean(found["scores"]["entropy_prior"]) == pytest.approx(result["entropy_prior"], rel=1e-6)
    assert np.mean(found["scores"]["accuracy"]) == pytest.approx(result["accuracy"])
    assert len(found["looks"]) == 5
    for record in found["looks"]:
        for shares in record["looks"].values():
            assert sum(shares) == pytest.approx(1)
            assert len(shares) == len(record["boxes"])
    assert draw_looks(found["looks"], find_pictures(pictures / "images")).axes


def test_boxes_overlap():
    assert intersection_over_union([0, 0, 2, 2], [1, 0, 3, 2]) == pytest.approx(1 / 3)
    assert intersection_over_union([0, 0, 1, 1], [2, 2, 3, 3]) == 0
    assert overlaps([0, 0, 2, 2], [[5, 5, 6, 6], [0, 0, 2, 1.5]])
    assert not overlaps([0, 0, 2, 2], [[1, 0, 3, 2]])
    assert overlaps([0, 0, 2, 2], [[0, 0, 2, 1]])  # exactly one half


def test_evaluation_compares_the_model_with_baselines(trained, tmp_path, capsys):
    found = evaluate(trained, "test")
    assert list(found["comparison"]) == ["model", "question_only", "majority"]
    for name, value in found["comparison"]["model"].items():
        assert found[name] == value
    assert 0 < found["comparison"]["majority"]["accuracy_paper"] < 100
    gone = trained.config.data.train.model_copy(update={"questions": tmp_path / "gone.json"})
    data = trained.config.data.model_copy(update={"train": gone})
    moved = dataclasses.replace(trained, config=trained.config.model_copy(update={"data": data}))
    assert evaluate(moved, "test")["comparison"] is None
    assert "no baselines" in capsys.readouterr().err


def test_a_page_without_pictures_says_why(trained, tmp_path):
    def reason(images):
        split = trained.config.data.test.model_copy(update={"images": images})
        data = trained.config.data.model_copy(update={"test": split})
        config = trained.config.model_copy(update={"data": data})
        (viewer,) = viewers(
            PageContext(config, "test", {}, {"marginal": example_regions(trained, "test", 2)}, [])
        )
        assert viewer.data["pictures"] == {}
        assert len(viewer.data["models"]["marginal"]) == 2
        return viewer.data["missing"]

    assert reason(None) == "The recipe does not name the folder of the pictures; set data.test.images."
    assert reason(tmp_path / "none").endswith(
        "which is not a folder; put the pictures there, or a link to them."
    )
    assert reason(tmp_path).endswith("(data.test.images), no file name ends in this number.")


def test_accuracy_and_evaluate_agree(trained_run, trained, pictures, tmp_path):
    from support.commands import command

    out, split = tmp_path / "answers.json", trained.config.data.test
    answered = command(
        "answer",
        trained_run,
        f"--questions={split.questions}",
        f"--features={split.features}",
        f"--out={out}",
    )
    assert answered.returncode == 0, answered.stderr
    scored = command("accuracy", f"--annotations={split.annotations}", f"--predicted={out}", "--json")
    evaluated = command("evaluate", trained_run, "--json")
    one, other = json.loads(scored.stdout), json.loads(evaluated.stdout)
    shared = one.keys() & other.keys()
    assert {
        "accuracy_paper",
        "accuracy_official",
        "exact_match",
        "by_question_type",
        "by_answer_type",
    } <= shared
    for name in shared:
        assert one[name] == other[name], name
    printed = command("evaluate", trained_run).stdout.decode()
    assert "{" not in printed  # breakdowns are tables
    assert "question_only" in printed


def test_answers_come_in_the_official_format_and_in_order(trained_run, trained, pictures, tmp_path):
    asked, features = pictures / "questions.test.json", pictures / "features.test.safetensors"
    found = answer_questions(trained, asked, features)
    ids = [q["question_id"] for q in json.loads(asked.read_text())["questions"]]
    assert list(found) == ids
    assert set(found.values()) <= set(trained.vocabulary.answers)
    command = [sys.executable, "-m", "latentalign", "answer", str(trained_run), f"--questions={asked}"]
    out = tmp_path / "answers.json"
    subprocess.run([*command, f"--features={features}", f"--out={out}"], check=True, capture_output=True)
    assert [r["question_id"] for r in json.loads(out.read_text())] == ids
    again = subprocess.run([*command, f"--features={features}", f"--out={out}"], capture_output=True)
    assert again.returncode == 2
    assert b"--overwrite" in again.stderr


def test_a_question_about_a_picture_without_features_is_named(trained, pictures):
    other = pictures / "features.valid.safetensors"
    with pytest.raises(InputError, match=r"question \d+ is about image \d+, which has no features"):
        answer_questions(trained, pictures / "questions.test.json", other)


def test_a_damaged_vocabulary_is_refused(trained, tmp_path):
    path = tmp_path / "tokenizer.json"
    trained.vocabulary.save(path)
    assert Vocabulary.load(path) == trained.vocabulary
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    with pytest.raises(CheckpointError, match="checksum mismatch"):
        Vocabulary.load(path)


def test_half_of_the_pictures_by_a_hash(tiny):
    parts = []
    for part in ("first", "second", "all"):
        config = tiny("soft", f"data.train.part={part}")
        corpus = open_corpus(config, Vocabulary(("<pad>", "<unk>"), ("yes",), 266), config.data.train)
        parts.append({e.question.image_id for e in corpus.examples})
    assert parts[0] | parts[1] == parts[2]
    assert not parts[0] & parts[1]
    assert isinstance(corpus, Corpus)


def test_text_vectors_start_the_embeddings(tiny, tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("color " + " ".join(str(k) for k in range(8)) + "\nnowhere " + " ".join("0" * 8) + "\n")
    words = ("<pad>", "<unk>", "what", "color")
    vectors, found = read_vectors(path, words, 8)
    assert found.tolist() == [False, False, False, True]
    assert vectors[3].tolist() == list(range(8))
    config = tiny("soft", f"model.vectors={path}", "training.max_steps=1", "training.learning_rate=1e-9")
    ANSWERING.train(config, Run(tmp_path / "run"), resume=False, overwrite=False)
    model = ANSWERING.load(tmp_path / "run")
    row = model.model.embedding.weight[model.vocabulary.words.index("color")]
    assert row.tolist() == pytest.approx(list(range(8)), abs=1e-6)
    path.write_text("color 1 2\n")
    with pytest.raises(InputError, match="line 1 has 2 numbers"):
        read_vectors(path.with_name("vectors.txt"), words, 8)


def test_a_run_is_diagnosed_and_reported_and_translates_nothing(trained_run, tmp_path):
    base = [sys.executable, "-m", "latentalign"]
    out = tmp_path / "diagnosis"
    options = [f"--out={out}", "--sentences=10", "--batch=4", "--draws=3"]
    subprocess.run([*base, "diagnose", str(trained_run), *options], check=True, capture_output=True)
    found = json.loads((out / "diagnose.json").read_text())
    assert found["bounds"]["elbo_gap"] >= 0
    assert 0 < found["proposition_1"]["within_bound"] <= 1.0, "kinks of ReLU have no Hessian, so not always 1"
    assert 0 <= found["proposition_1"]["mean_tighter_bound"] <= found["proposition_1"]["mean_bound"]
    assert (out / "diagnose.html").is_file()
    page = tmp_path / "report.html"
    subprocess.run([*base, "report", str(trained_run), f"--out={page}"], check=True, capture_output=True)
    assert "Where variational-sample looks" in page.read_text()
    done = subprocess.run([*base, "translate", str(trained_run)], capture_output=True, input=b"")
    assert done.returncode == 2
    assert b"this is question answering; use `latentalign answer`" in done.stderr
