"""The protocol of the measurement: rounds, medians, and figures relative within a round."""

from dataclasses import replace
from functools import partial

import pytest

from latentalign.bench.measure import FULL, PREDICT_TRAINED, QUICK, Plan, measure, measure_rows
from latentalign.bench.rows import parse_rows
from latentalign.bench.trained import TrainedRun
from latentalign.bench.worker import ChildFailed
from latentalign.core.objectives import OBJECTIVES
from support.bench import SHORT, TINY, Broken, InProcess

SPEEDS = {"soft": [100.0, 50.0, 90.0], "marginal": [25.0, 10.0, 45.0]}
RATES = [10.0, 5.0, 20.0]


class Scripted:
    """Answers from a script, and writes down who was asked what."""

    def __init__(self, name, make, *, log, failing):
        self.name, self.log, self.failing = name, log, failing
        self.turns, self.rates = iter(SPEEDS.get(name, [])), iter(RATES)

    def ready(self):
        pass

    def close(self):
        pass

    def ask(self, method, *arguments):
        self.log.append((self.name, method))
        if self.name in self.failing:
            raise ChildFailed(f"{self.name}: broken")
        answers = {
            "turn": lambda: next(self.turns),
            "rate": lambda: next(self.rates),
            "peak": lambda: 12.34,
            "counts": lambda: {"emissions_per_token": 2.0, "gflop_per_token": 0.02},
            "warm_up": lambda: None,
        }
        return answers[method]()


def scripted(*failing):
    """What is found of soft and marginal, what failed, and who was asked what."""
    failures, log = {}, []
    plan = Plan(TINY, parse_rows("soft,marginal", trained=False), replace(FULL, rounds=3))
    start = partial(Scripted, log=log, failing=failing)
    return measure_rows(plan, lambda what: None, start=start, failures=failures), failures, log


def test_all_rows_have_their_turn_in_every_round():
    *_, log = scripted()
    asked = [name for name, method in log if method in ("turn", "rate")]
    assert asked == ["matrix products", "soft", "marginal"] * 3
    assert [m for name, m in log if name == "soft"] == ["warm_up", *["turn"] * 3, "peak", "counts"]


def test_figures_are_medians_and_relative_ones_are_so_within_a_round():
    found, failures, _ = scripted()
    assert not failures
    assert found["gemm_gflops"] == 10.0
    soft, marginal = found["rows"]
    assert soft["cost_vs_soft"] == 1.0
    assert marginal["tokens_per_second"] == 25.0
    assert marginal["cost_vs_soft"] == 4.0  # of 4, 5 and 2; of the medians it would be 3.6
    assert marginal["gemm_share"] == pytest.approx(0.045)  # 25 / 10, 10 / 5 and 45 / 20, times 0.02
    assert marginal["peak_memory_mb"] == 12.3
    assert marginal["emissions_per_token"] == 2.0


def test_a_failed_row_does_not_lose_the_others():
    found, failures, _ = scripted("marginal")
    assert [row["objective"] for row in found["rows"]] == ["soft"]
    assert failures == {"marginal": "marginal: broken"}


def test_without_soft_there_is_no_cost_against_it():
    (row,) = scripted("soft")[0]["rows"]
    assert row["cost_vs_soft"] is None
    assert row["tokens_per_second"] == 25.0


def test_without_matrix_products_there_is_no_result():
    with pytest.raises(ChildFailed, match="matrix products: broken"):
        scripted("matrix products")


@pytest.mark.slow
def test_a_whole_result_has_every_figure_and_tells_every_step(monkeypatch):
    monkeypatch.setitem(OBJECTIVES, "broken", Broken)
    rows = parse_rows("soft,marginal,rws:n=2,broken", trained=False)
    plan = Plan(TINY, rows, SHORT, ("soft", "exact", "nonsense"), threads=1)
    told = []
    result = measure(plan, told.append, start=InProcess)
    assert len(told) == plan.steps
    assert [(r["objective"], r["options"]) for r in result["rows"]] == [
        ("soft", {}),
        ("marginal", {}),
        ("rws", {"n": 2}),
    ]
    assert all(r["tokens_per_second"] > 0 and r["gemm_share"] >= 0 for r in result["rows"])
    assert [(p["axis"], p["size"], p["objective"]) for p in result["growth"]] == [
        ("T", 3, "soft"),
        ("T", 3, "marginal"),
        ("V", 20, "soft"),
        ("V", 20, "marginal"),
    ]
    ways = [(d["predict"], d["beam"], d["batch"]) for d in result["decode"]]
    assert ways == [("soft", 1, 2), ("soft", 2, 2), ("exact", 1, 2), ("exact", 2, 2)]
    assert set(result["failures"]) == {"broken", "decoding nonsense"}
    assert result["threads"] == 1


@pytest.mark.slow
def test_a_run_is_measured_with_certified_rows_and_predictions(toy_run):
    rows, effort = parse_rows("marginal:tolerance=0.01", trained=True), replace(SHORT, rounds=1, beams=(1,))
    plan = Plan(TrainedRun(toy_run), rows, effort, PREDICT_TRAINED, 1)
    result = measure(plan, lambda what: None, start=InProcess)
    assert not result["failures"]
    assert [r.get("visited") is not None for r in result["rows"]] == [False, True]
    assert [d["predict"] for d in result["decode"]] == ["certified:0.01"]
    assert result["workload"]["run"] == str(toy_run)
    assert result["workload"]["batch"] == 16


def test_the_grids_are_those_that_are_promised():
    assert FULL.lengths == (10, 20, 40, 80, 160)
    assert FULL.vocabularies == (2000, 8000, 32000)
    assert FULL.beams == QUICK.beams == (1, 5, 10)
    assert FULL.decode_batches == (2, 32, 64)
    assert QUICK.decode_batches == (2, 32)
    assert max(FULL.decode_batches) <= FULL.sentences
    assert max(QUICK.decode_batches) <= QUICK.sentences
