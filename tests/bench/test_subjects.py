"""What a process measures is a real training step, and always the same one."""

import pytest
import torch

from latentalign import parse_predict
from latentalign.bench.rows import parse_row
from latentalign.bench.subjects import Decoding, Gemm, Training
from latentalign.bench.trained import TrainedRun
from latentalign.tasks.nmt.decode import Translator
from latentalign.tasks.nmt.tokenizer import EOS
from latentalign.training.loop import Trainer
from support.bench import TINY


def training(row, workload=TINY, batches=2):
    return Training(workload, parse_row(row), threads=1, batches=batches)


def recorded(monkeypatch):
    """The positions of every batch that is trained on."""
    seen, update = [], Trainer.update
    monkeypatch.setattr(Trainer, "update", lambda self, group: seen.append(group) or update(self, group))
    return seen


@pytest.mark.slow
def test_every_row_is_measured_on_the_same_batches(monkeypatch):
    made = [training(row) for row in ("soft", "relaxed")]
    seen = recorded(monkeypatch)
    for one in made:
        one.turn(0.0)
    soft, relaxed = seen[:2], seen[2:]
    assert [key.tolist() for (key,) in soft] == [key.tolist() for (key,) in relaxed]
    assert len({tuple(key) for (key,) in soft}) == 2


@pytest.mark.slow
def test_a_turn_is_whole_passes_and_lasts_as_long_as_asked(monkeypatch):
    one = training("soft")
    seen = recorded(monkeypatch)
    tokens = sum(one.trainer.data.load_batch(key).queries for key in one.keys)
    speed = one.turn(0.05)
    assert len(seen) % 2 == 0
    assert speed * 0.05 <= tokens * len(seen) / 2  # whatever the speed, no less than the time asked for


@pytest.mark.slow
def test_tokens_are_those_of_the_target_without_padding():
    one = training("soft", batches=20)
    batches = [one.trainer.data.load_batch(key) for key in one.keys]
    assert any((~b.target_mask).any() for b in batches)
    lengths = one.trainer.data.train.lengths("target")
    expected = sum(int((lengths[key] + 1).sum()) for key in one.keys)
    assert sum(one.trainer.update([key]).queries for key in one.keys) == expected


@pytest.mark.slow
def test_batches_are_spread_over_the_lengths():
    one = training("soft", batches=4)
    lengths = one.trainer.data.train.lengths("source")
    means = [lengths[key].mean() for key in one.keys]
    assert means == sorted(means)
    assert means[0] < lengths.mean() < means[-1]


@pytest.mark.slow
def test_updates_do_not_move_the_model():
    one = training("variational-sample")
    before = [p.detach().clone() for p in one.trainer.module.parameters()]
    one.turn(0.0)
    after = list(one.trainer.module.parameters())
    assert all(p.grad is not None for p in after)
    assert all(torch.allclose(a, b, atol=1e-7) for a, b in zip(before, after, strict=True))


def test_a_learned_baseline_takes_its_shape():
    assert training("hard-sample:baseline=learned").turn(0.0) > 0


def test_matrix_products_are_counted_right(monkeypatch):
    monkeypatch.setattr("latentalign.bench.subjects.seconds_of", lambda work: 2.0)
    assert Gemm(1, ((10, 20, 30), (2, 3, 4))).rate() == pytest.approx(2 * 10 * 20 * 30 / 2e9)


def test_outputs_of_a_random_model_are_bounded_by_their_source():
    decoding = Decoding(TINY, threads=1, sentences=5)
    assert len(decoding.sources) == 5
    sources = decoding.sources
    with torch.no_grad():
        decoding.model.head.output.bias[EOS] = -1e3  # never ends by itself
    found = Translator(decoding.model, TINY.search(2), parse_predict("exact"))(sources)
    assert [len(best.tokens) for best, *_ in found] == [len(source) + 1 for source in sources]


def test_every_sentence_is_translated_once_in_batches(monkeypatch):
    decoding = Decoding(TINY, threads=1, sentences=5)
    seen, call = [], Translator.__call__
    monkeypatch.setattr(Translator, "__call__", lambda self, rows: seen.append(rows) or call(self, rows))
    assert decoding.speed("kmax:2", 2, 2) > 0
    _, *timed = seen
    assert [len(rows) for rows in timed] == [2, 2, 1]
    assert [row for rows in timed for row in rows] == decoding.sources


@pytest.mark.slow
def test_a_run_is_measured_with_its_own_model_and_data(toy_run):
    run = TrainedRun(toy_run)
    one = training("variational-sample", run)
    tensors = run.problem(parse_row("soft"))[1].model.state_dict()
    own = one.trainer.module.model.state_dict()
    assert all(torch.equal(own[name], tensor) for name, tensor in tensors.items())
    assert "inference.score.from_memory.weight" in own
    assert {len(key) for key in one.keys} == {16}
    assert {len(key) for key in training("soft", TrainedRun(toy_run, 5)).keys} == {5}
    assert one.turn(0.0) > 0


@pytest.mark.slow
def test_certified_rows_say_how_many_members_they_visit(toy_run):
    one = training("marginal:tolerance=0.01", TrainedRun(toy_run))
    lengths = one.trainer.data.train.lengths("source")
    counts = one.counts()
    assert 1 <= counts["visited"] <= max(lengths[key].max() for key in one.keys)
    assert 0 < counts["certificate_share"] < 1
    assert "visited" not in training("marginal", TrainedRun(toy_run)).counts()


@pytest.mark.slow
def test_a_run_translates_its_test_sentences_with_its_own_search(toy_run):
    run = TrainedRun(toy_run)
    decoding = Decoding(run, threads=1, sentences=100)
    assert len(decoding.sources) == 12
    assert run.search(3).max_length_extra == 10
    assert run.search(3).beam == 3
    assert decoding.speed("exact", 2, 6) > 0
