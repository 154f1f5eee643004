"""Links and records of sentence pairs that stream through an aligner."""

import numpy as np
import pytest

from latentalign.aligner import model
from latentalign.aligner.text import AlignedStream, LinkOptions
from latentalign.errors import InputError
from latentalign.tasks.alignment.schema import AlignerRecord
from support.aligners import demo_text, small_aligner

TEXT = [*demo_text()[:5], ("", ""), ("das Haus", ""), *demo_text()[5:8]]


def stream(text=TEXT, **options):
    return AlignedStream(small_aligner(), text, LinkOptions(**options))


@pytest.mark.parametrize("read", ["pharaoh", "records", "linked_pairs"])
def test_no_more_than_a_group_is_read_ahead(monkeypatch, read):
    monkeypatch.setattr(model, "GROUP", 4)
    taken = 0

    def text():
        nonlocal taken
        for pair in demo_text()[:50]:
            taken += 1
            yield pair

    for done, _ in enumerate(getattr(stream(text()), read)(), start=1):
        assert done <= taken <= done + 4
    assert done == taken == 50


def test_as_many_lines_come_out_as_went_in_and_in_order(monkeypatch):
    expected = list(stream().pharaoh())
    monkeypatch.setattr(model, "GROUP", 3)
    assert list(stream().pharaoh()) == expected
    assert len(expected) == len(TEXT)
    assert expected[5] == expected[6] == ""
    assert all(expected[:5])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("using", "symmetrize"),
    [
        ("posterior", "mean"),
        ("posterior", "product"),
        ("posterior", "grow-diag-final-and"),
        ("path", "forward"),
    ],
)
def test_records_have_the_documented_form(using, symmetrize):
    options = {"using": using, "symmetrize": symmetrize, "nbest": 3, "phrases": 3}
    found = stream(**options)
    for number, (record, pair) in enumerate(zip(found.records(), TEXT, strict=True)):
        checked = AlignerRecord.model_validate(record, strict=False)
        assert checked.line == number
        for words, spans, line in (
            (checked.source, checked.source_spans, pair[0]),
            (checked.target, checked.target_spans, pair[1]),
        ):
            assert [line[a:b] for a, b in spans] == words == line.split()
        assert len(checked.entropy) == len(checked.target) == len(checked.target_null)
        assert len(checked.source_entropy) == len(checked.source) == len(checked.source_null)
        for link in checked.links:
            shown = checked.posteriors[link.target][link.source]
            assert link.probability == pytest.approx(shown, abs=1e-4)
        both = bool(checked.source and checked.target)
        for paths, length in (
            (checked.paths.forward, checked.target),
            (checked.paths.backward, checked.source),
        ):
            assert len(paths) <= 3
            assert bool(paths) == both
            assert all(len(path.path) == len(length) for path in paths)
            scores = [path.log_prob for path in paths]
            assert scores == sorted(scores, reverse=True)
            assert all(score <= 1e-9 for score in scores)
        links = {(link.source, link.target) for link in checked.links}
        for phrase in checked.phrases:
            assert any(
                phrase.source_start <= s < phrase.source_end and phrase.target_start <= t < phrase.target_end
                for s, t in links
            )


def test_the_best_path_comes_first_in_the_list():
    for pair, record in zip(stream(TEXT[:4]), stream(TEXT[:4], nbest=1).records(), strict=True):
        aligner = small_aligner()
        for side, name in enumerate(("forward", "backward")):
            sides = [aligner.config.normalise(words) for words in (pair.source, pair.target)]
            chain, log_f = aligner.chain(*sides, side)
            mode = chain.posterior(log_f).mode[0, :-1].tolist()
            expected = [None if place > log_f.shape[-1] - 2 else place for place in mode]
            assert record["paths"][name][0]["path"] == expected


def test_a_threshold_leaves_out_less_probable_links():
    for pair, strict, loose in zip(stream(), stream(at_least=0.9), stream(at_least=0.2), strict=True):
        assert strict.links <= pair.links <= loose.links
        for kept, least in ((strict, 0.9), (loose, 0.2), (pair, small_aligner().threshold)):
            expected = {(int(s), int(t)) for t, s in np.argwhere(pair.posterior.mean >= least)}
            assert kept.links == expected


@pytest.mark.slow
@pytest.mark.parametrize("symmetrize", ["intersection", "union", "grow-diag"])
@pytest.mark.parametrize("using", ["posterior", "path"])
def test_sets_of_links_are_combined(using, symmetrize):
    several = zip(
        stream(using=using, symmetrize=symmetrize),
        stream(using=using, symmetrize="intersection"),
        stream(using=using, symmetrize="union"),
        strict=True,
    )
    for found, both, either in several:
        assert both.links <= found.links <= either.links
        assert either.links or not (found.source and found.target)


def test_the_summary_counts_what_was_written():
    found = stream()
    lines = list(found.pharaoh())
    totals = found.totals
    assert totals.pairs == len(TEXT)
    assert totals.source_words == sum(len(a.split()) for a, _ in TEXT)
    assert totals.links == sum(len(line.split()) for line in lines)
    linked = sum(len({link.split("-")[1] for link in line.split()}) for line in lines)
    assert totals.unlinked[1] == pytest.approx(1 - linked / totals.target_words)
    assert 0 < totals.expected_f1 <= 1
    nothing = stream([("", "")])
    assert list(nothing.pharaoh()) == [""]
    assert nothing.totals.describe() == "1 pairs, 0 + 0 words: nothing to link"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"using": "prior"}, "--using must be one of posterior, path"),
        ({"symmetrize": "both"}, "--symmetrize must be one of mean, product"),
        ({"at_least": 1.5}, "--at-least must be a probability"),
        ({"at_least": float("nan")}, "--at-least must be a probability"),
    ],
)
def test_unknown_options_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        LinkOptions(**options)
