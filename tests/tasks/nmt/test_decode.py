"""Translation: scores are the model's own, batching never matters, N lines in are N lines out."""

import copy
import math
import random
import threading

import pytest
import torch

from latentalign import parse_predict
from latentalign.core.kernels import fused_softmax
from latentalign.search import BeamSearch
from latentalign.tasks.nmt.decode import Translator, pair_batch
from latentalign.tasks.nmt.model import ModelConfig, TranslationModel
from latentalign.tasks.nmt.tokenizer import EOS
from latentalign.tasks.nmt.translate import TranslationJob, TranslationSettings, translate_lines
from latentalign.textfiles import read_lines

pytestmark = pytest.mark.slow  # trains a small model first


@pytest.fixture
def lines(demo_files):
    return [*read_lines(demo_files / "test.de")][:24]


@pytest.mark.parametrize("how", ["exact", "kmax:2", "soft"])
def test_unpenalised_scores_are_the_models_own_log_probability(trained, lines, how):
    predict = parse_predict(how)
    sources = [e.ids for e in trained.vocabulary.encode_source_batch(lines[:8])]
    found = Translator(trained.model, BeamSearch(beam=4, length_penalty=0.0, nbest=2), predict)(sources)
    for source, hypotheses in zip(sources, found, strict=True):
        for h in hypotheses:
            batch = pair_batch([source], [list(h.tokens[:-1])])
            with torch.no_grad():
                own = predict.log_prob(trained.model.latent(batch)).sum()
            assert h.log_prob == pytest.approx(float(own), abs=1e-5)
            assert h.score == pytest.approx(h.log_prob)


@pytest.mark.parametrize("how", ["exact", "sample:2"])
def test_batches_at_a_time_give_what_one_after_the_other_gives(trained, lines, how, monkeypatch):
    sources = [e.ids for e in trained.vocabulary.encode_source_batch(lines)]
    translate = Translator(trained.model, BeamSearch(beam=3), parse_predict(how))
    batches = [sources[i : i + 5] for i in range(0, len(sources), 5)]
    seen, found, before = set(), [], torch.get_num_threads()
    original = Translator.__call__

    def watched(self, batch):
        seen.add((threading.get_ident(), torch.get_num_threads()))
        return original(self, batch)

    monkeypatch.setattr(Translator, "__call__", watched)
    try:
        for threads in (1, 3):
            seen.clear()
            torch.set_num_threads(threads)
            torch.manual_seed(0)
            found.append([h[0].tokens for batch in translate.batches(batches) for h in batch])
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    if how == "exact":
        assert {n for _, n in seen} == {1}
        assert threading.get_ident() not in {ident for ident, _ in seen}
    else:
        assert seen == {(threading.get_ident(), 3)}
    assert found[0] == found[1]


def test_a_batch_that_fails_says_so_and_leaves_the_threads_as_they_were(trained, lines):
    sources = [e.ids for e in trained.vocabulary.encode_source_batch(lines[:4])]
    translate = Translator(trained.model, BeamSearch(beam=2), parse_predict("exact"))
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        with pytest.raises(IndexError):
            list(translate.batches([sources[:2], [[10**6]], sources[2:]]))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("beam", [1, 4])
def test_certified_decoding_is_exact_decoding_to_the_tolerance(trained, lines, beam, monkeypatch):
    """The same outputs but for near ties, each with the exact probability to 1 + tolerance a token."""
    rows = []
    original = fused_softmax.logits_of
    monkeypatch.setattr(fused_softmax, "logits_of", lambda h, *a: rows.append(len(h)) or original(h, *a))
    model = copy.deepcopy(trained.model)
    with torch.no_grad():
        model.decoder.score.to_score.weight.mul_(5000)  # a prior as sharp as after a long training
    sources = [e.ids for e in trained.vocabulary.encode_source_batch(lines)]
    search = BeamSearch(beam=beam, length_penalty=0.0)
    found, used = {}, {}
    for how in ("exact", "certified:1e-9", "certified:0.01"):
        rows.clear()
        found[how] = [h[0] for h in Translator(model, search, parse_predict(how))(sources)]
        used[how] = sum(rows)
    assert [h.tokens for h in found["certified:1e-9"]] == [h.tokens for h in found["exact"]]
    assert used["certified:0.01"] < used["certified:1e-9"] <= used["exact"]
    for source, h in zip(sources, found["certified:0.01"], strict=True):
        batch = pair_batch([source], [list(h.tokens[:-1])])
        with torch.no_grad():
            own = float(parse_predict("exact").log_prob(model.latent(batch)).sum())
        assert own - len(h.tokens) * math.log(1.01) - 1e-4 <= h.log_prob <= own + 1e-4


def test_certified_decoding_gives_the_end_of_sentence_no_place_that_eos_norm_takes_away():
    """Likely members end the sentence, which `eos_norm` makes worthless; words come from unlikely ones."""
    torch.manual_seed(2)
    sizes = ModelConfig(
        embedding=8, encoder_size=6, decoder_size=10, attention_size=7, head_size=9, dropout=0.0, init=1.0
    )
    model = TranslationModel(sizes, source_size=20, target_size=15).double()
    with torch.no_grad():
        model.head.output.weight[EOS] *= 40  # some members surely end, others surely do not
        model.decoder.score.to_score.weight.mul_(20)
    search = BeamSearch(beam=2, nbest=2, eos_norm=50.0, max_length=4)
    sources = [[5, 6, 7, 8, 12, 13], [9, 4, 10, 11], [4, 5, 6, 7, 8, 9, 10]]
    exact, certified = (
        [h for found in Translator(model, search, parse_predict(how))(sources) for h in found]
        for how in ("exact", "certified:0.01")
    )
    for a, b in zip(exact, certified, strict=True):
        assert a.tokens == b.tokens
        assert a.log_prob - len(a.tokens) * math.log(1.01) <= b.log_prob <= a.log_prob + 1e-9


def test_batch_size_and_order_give_the_same_text(trained, lines):
    lines = [*lines[:10], "", *lines[10:], "   "]
    expected = [out[0].text for out in translate_lines(trained, lines, TranslationSettings(beam=3))]
    assert len(expected) == len(lines)
    assert expected[10] == expected[-1] == ""
    for size in (1, 60, 100_000):
        again = [
            out[0].text
            for out in translate_lines(trained, lines, TranslationSettings(beam=3, batch_tokens=size))
        ]
        assert again == expected
    order = list(range(len(lines)))
    random.Random(0).shuffle(order)
    shuffled = [
        out[0].text
        for out in translate_lines(trained, [lines[i] for i in order], TranslationSettings(beam=3))
    ]
    assert shuffled == [expected[i] for i in order]


def test_alignments_of_outputs_are_distributions_over_source_words(trained, lines):
    job = TranslationJob(trained, lines[:5], TranslationSettings(beam=2, nbest=2))
    outputs = list(job.translate())
    assert {len(best) for best in outputs} == {2}
    for line, best, aligned in zip(lines[:5], outputs, job.align(outputs), strict=True):
        for output, found in zip(best, aligned, strict=True):
            assert found.probability.shape == (len(output.text.split()), len(line.split()))
            assert found.probability.sum(1) == pytest.approx(1.0)
