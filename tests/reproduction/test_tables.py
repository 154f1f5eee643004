"""Tables say what the results say, and claims are judged by the evidence."""

import json

import numpy as np
import pytest
import sacrebleu

from latentalign.errors import InputError
from latentalign.reproduction import plots
from latentalign.reproduction.claims import (
    Claim,
    corpus_evidence,
    judge_claims,
    ratio_evidence,
    sum_groups,
)
from latentalign.reproduction.experiment import Row
from latentalign.reproduction.plan import choose_rows
from latentalign.reproduction.tables import Column, FigureTable, claims_table, figure_table, markdown
from latentalign.tasks.nmt import paper as nmt_paper
from latentalign.tasks.nmt.experiment import corpus_bleu
from latentalign.tasks.vqa import paper as vqa_paper


def record(row, seed=0, **figures):
    return {"row": row, "objective": row, "seed": seed, **figures}


def test_a_table_shows_means_spreads_and_what_the_paper_says():
    results = [record("soft", 0, ppl=7.0), record("soft", 1, ppl=8.0), record("marginal", ppl=None)]
    columns = [Column("ppl", "ppl", 2), Column("paper", "ppl", 2, paper=True), Column("none", "gap")]
    table = figure_table("T", "n", columns, results, paper=nmt_paper.FIGURES)
    assert table.headings == ["row", "ppl", "paper"]  # a column without figures is left out
    assert [[c.text for c in row] for row in table.rows] == [
        ["soft", "7.50 ± 0.71", "7.17"],
        ["marginal", "-", "6.34"],
    ]
    assert table.rows[0][1].value == 7.5
    assert "| soft | 7.50 ± 0.71 | 7.17 |" in markdown([table])
    counts = [record("soft", 0, epochs=3, n=1), record("soft", 1, epochs=3, n=2)]
    counted = figure_table("T", "n", [Column("epochs", "epochs", 0), Column("n", "n", 0)], counts, paper={})
    assert [c.text for c in counted.rows[0]] == ["soft", "3", "2 ± 1"]


def test_a_declared_table_selects_its_rows_and_computes_its_columns():
    results = [record("soft", n=None, seconds=60), record("marginal", n=2, seconds=120), record("rws", n=3)]
    half = Column("half", "h", 1, value=lambda r: r["n"] / 2 if r["n"] != 3 else None)
    minutes = Column("minutes", "seconds", 0, scale=1 / 60)
    table = FigureTable("T", "n", (half, minutes), only_rows=("marginal", "soft"), required_figure="n")
    built = table.build(results, {})
    assert [[c.text for c in row] for row in built.rows] == [["marginal", "1.0", "2"]]
    firsts = [{**record("a"), "warm_start": "3 epochs of soft"}, record("b")]
    noted = FigureTable("T", "n.", (), names_warm_starts=True).build(firsts, {})
    assert noted.note == "n. Rows that start from 3 epochs of soft, which `epochs` does not count: a."


def test_rows_are_chosen_by_name():
    known = [Row("soft", "soft"), Row("marginal", "marginal")]
    assert choose_rows(["marginal"], known) == [known[1]]
    with pytest.raises(InputError, match="unknown row 'sfot'; choose from soft, marginal"):
        choose_rows(["sfot"], known)


def written(folder, name, **details):
    (folder / f"{name}-0.json").write_text(json.dumps(details))


@pytest.mark.parametrize(("gain", "verdict"), [(0.5, "seen"), (-0.5, "not seen"), (0.0, "undecided")])
def test_a_claim_is_judged_by_resampling_sentences(gain, verdict, tmp_path):
    noise = np.random.default_rng(0).normal(size=200)
    written(tmp_path, "marginal", tokens=[10.0] * 200, scores={"ppl": (noise + 10 * gain).tolist()})
    written(tmp_path, "soft", tokens=[10.0] * 200, scores={"ppl": (noise - noise[::-1] * 0.1).tolist()})
    results = [record("marginal", ppl=2.0), record("soft", ppl=3.0)]
    claim = Claim("lower", "ppl", "marginal", "soft")
    (found,) = judge_claims([claim], results, lambda row, seed: tmp_path / f"{row}-{seed}.json")
    assert found.verdict == verdict
    assert found.interval[0] < gain + 0.1
    assert found.interval[1] > gain - 0.1
    assert claims_table([found]).rows[0][1].text == verdict


def test_claims_without_sentences_are_judged_by_the_seeds(tmp_path):
    claim = Claim("sharper", "entropy_prior", "marginal", "soft")
    results = [
        record("marginal", 0, entropy_prior=0.5),
        record("marginal", 1, entropy_prior=1.5),
        record("soft", entropy_prior=1.0),
    ]
    (found,) = judge_claims([claim], results, lambda row, seed: tmp_path / "absent")
    assert (found.verdict, found.interval) == ("undecided", None)
    (found,) = judge_claims([claim], [results[0], results[2]], lambda row, seed: tmp_path / "absent")
    assert found.verdict == "seen"
    assert judge_claims([claim], results[:1], lambda row, seed: tmp_path / "absent") == []


def test_bleu_of_summed_statistics_is_bleu_and_its_interval_holds_the_difference():
    outputs = ["the cat sat on the mat now", "a b c d e", "ich sehe den hund ."]
    references = ["the cat sat on a mat", "a b c d e f", "ich sehe den hund ."]
    metric = sacrebleu.BLEU(force=True)
    statistics = np.array(metric._extract_corpus_statistics(outputs, [references]))
    assert corpus_bleu(statistics.sum(0)) == pytest.approx(metric.corpus_score(outputs, [references]).score)
    worse = np.array(metric._extract_corpus_statistics(["x y", "a b", "ich"], [references]))
    found = corpus_evidence([statistics], [worse], score=corpus_bleu)
    lead = corpus_bleu(statistics.sum(0)) - corpus_bleu(worse.sum(0))
    assert found.lead == pytest.approx(lead)
    assert 0 < found.interval[0] < lead < found.interval[1], "the lead depends on which sentences are drawn"
    assert corpus_evidence([statistics], [statistics], score=corpus_bleu).interval == (0.0, 0.0)
    ones = np.ones((1, 5))
    found = ratio_evidence(ones, 0 * ones, np.full(5, 2.0))
    assert (found.lead, found.interval, found.examples) == (0.5, (0.5, 0.5), 5)


def test_seeds_that_disagree_widen_the_interval_and_groups_are_drawn_together():
    steady, shaky = np.ones((2, 50)), np.stack([np.full(50, 0.0), np.full(50, 2.0)])
    weights, nothing = np.ones(50), np.zeros((1, 50))
    assert ratio_evidence(steady, nothing, weights).interval == (1.0, 1.0)
    assert ratio_evidence(shaky, nothing, weights).interval == (0.0, 2.0)
    # Two measurements of the same runs differ by the same in every seed, however much the seeds differ.
    assert ratio_evidence(shaky + 1, shaky, weights, paired=True).interval == (1.0, 1.0)
    assert ratio_evidence(shaky + 1, shaky, weights).interval == (-1.0, 3.0)
    assert sum_groups(np.array([[1.0, 2.0, 4.0]]), [7, 9, 7]).tolist() == [[5.0, 2.0]]
    assert sum_groups(np.array([1.0, 1.0, 1.0]), [7, 9, 7]).tolist() == [2.0, 1.0]


def test_one_row_measured_in_two_ways_is_compared_seed_by_seed(tmp_path):
    claim = Claim("exact beats K-max", "ppl_exact", "marginal", "marginal", "ppl_kmax5")
    results = [record("marginal", s, ppl_exact=x, ppl_kmax5=x + 0.2) for s, x in enumerate((6.0, 6.3, 6.1))]
    (found,) = judge_claims([claim], results, lambda row, seed: tmp_path / "absent")
    assert found.verdict == "seen"


@pytest.mark.parametrize(("figure", "verdict"), [("entropy_prior", "seen"), ("ppl", "undecided")])
def test_entropies_have_intervals_and_few_examples_decide_nothing(figure, verdict, tmp_path):
    count = 200 if figure == "entropy_prior" else 20
    low = 1 + np.random.default_rng(0).random(count)
    sharp, blunt = (low, low + 0.5) if figure == "entropy_prior" else (low + 0.5, low)
    for name, values in (("marginal", sharp), ("soft", blunt)):
        written(tmp_path, name, tokens=[1.0] * count, scores={figure: values.tolist()})
    results = [record("marginal", **{figure: 1.5}), record("soft", **{figure: 2.0})]
    claim = Claim("better", figure, "marginal", "soft", lower_scores_win=figure == "entropy_prior")
    (found,) = judge_claims([claim], results, lambda row, seed: tmp_path / f"{row}-{seed}.json")
    assert found.lead == pytest.approx(0.5)
    assert (found.verdict, found.examples) == (verdict, count)


def test_every_claim_is_true_of_the_paper_itself():
    compared = 0
    for claims, figures in ((nmt_paper.CLAIMS, nmt_paper.FIGURES), (vqa_paper.CLAIMS, vqa_paper.FIGURES)):
        for claim in claims:
            first = figures.get(claim.better, {}).get("ppl" if claim.figure == "ppl_exact" else claim.figure)
            second = figures.get(claim.worse, {}).get(claim.other or claim.figure)
            if first is not None and second is not None:
                compared += 1
                assert (first > second) if claim.higher_is_better else (first < second), claim.text
    assert compared == 36, (
        "all but SVI, K = 1 and soft attention's K-max, for which the paper gives no figures"
    )


def test_marks_of_logarithmic_axes_are_numbers_as_people_write_them():
    figure, (left, right) = plots.new_figure(panels=2)
    left.plot([1, 60], [4.3, 7.4])
    right.plot([100, 250], [0.02, 5])
    for axes in (left, right):
        plots.use_log_scale(axes)
    figure.canvas.draw()
    seen = {
        text.get_text()
        for axes in (left, right)
        for axis in (axes.xaxis, axes.yaxis)
        for text in axis.get_ticklabels()
    }
    assert {"1", "2", "5", "10", "20", "50", "6", "0.05", "200"} <= seen
    assert not any("times" in text or "^" in text for text in seen)
