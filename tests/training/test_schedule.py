"""When the learning rate falls, when a model is the best, and when training ends."""

import dataclasses

import pytest

from latentalign.training.objective import ObjectiveConfig
from latentalign.training.recipe import TaskRecipe, TrainingConfig
from latentalign.training.schedule import Schedule
from latentalign.training.warm_start import warm_start_recipe


def rates(schedule, perplexities):
    """The learning rate after each validation, and whether it was the best."""
    return [(schedule.take(p, p), schedule.learning_rate) for p in perplexities]


def test_the_rate_falls_when_the_bound_rises_and_not_before_its_time():
    assert rates(Schedule(1.0, 0.5, start=3), [5, 6, 4, 4.5, 3]) == [
        (True, 1.0), (False, 1.0), (True, 1.0), (False, 0.5), (True, 0.5),
    ]  # fmt: skip


def test_training_ends_after_the_patience():
    schedule = Schedule(1.0, patience=2)
    for ppl, ended in ((5, False), (6, False), (4, False), (4.1, False), (4.2, True)):
        schedule.take(ppl, ppl)
        assert schedule.ended == ended


def test_a_small_gain_is_kept_but_counts_as_none():
    schedule = Schedule(1.0, 0.5, start=1, patience=2, min_gain=0.02)
    assert rates(schedule, [5, 4.95]) == [(True, 1.0), (True, 0.5)]
    assert schedule.stale == 1
    assert rates(schedule, [4.8, 4.75]) == [(True, 0.5), (True, 0.25)]
    assert schedule.best_score == 4.75
    assert not schedule.ended
    schedule.take(4.74, 4.74)
    assert schedule.ended


def test_resuming_takes_the_state_and_keeps_the_settings():
    before = Schedule(1.0, 0.5, start=1, patience=1)
    rates(before, [5, 6])
    after = Schedule(1.0, 0.5, start=1, patience=3)
    after.resume(dataclasses.asdict(before))
    assert (after.learning_rate, after.best_score, after.stale, after.patience) == (0.5, 5, 1, 3)
    assert before.ended
    assert not after.ended


def test_from_a_planned_validation_on_the_rate_always_falls():
    found = rates(Schedule(1.0, 0.5, start=2, anneal=3), [9, 8, 7, 6, 6.5])
    assert [rate for _, rate in found] == [1.0, 1.0, 0.5, 0.25, 0.125]


def test_the_rate_falls_while_the_bound_is_above_the_best_even_if_it_falls():
    assert rates(Schedule(1.0, 0.5, start=1), [4, 6, 5, 4, 3]) == [
        (True, 1.0), (False, 0.5), (False, 0.25), (False, 0.25), (True, 0.25),
    ]  # fmt: skip


def test_the_bound_moves_the_rate_and_the_score_chooses_the_model():
    schedule = Schedule(1.0, 0.5, start=1, patience=2)
    assert [schedule.take(bound, score) for bound, score in ((4, 9), (6, 8), (3, 8.5))] == [True, True, False]
    assert (schedule.learning_rate, schedule.best_bound, schedule.best_score) == (0.5, 3, 8)
    assert not schedule.ended
    schedule.take(2, 8.5)
    assert schedule.ended


def test_a_resumed_schedule_remembers_the_best_bound():
    before, after = Schedule(1.0, 0.5, start=1), Schedule(1.0, 0.5, start=1)
    rates(before, [4, 6])
    after.resume(dataclasses.asdict(before))
    assert rates(before, [5]) == rates(after, [5]) == [(False, 0.25)]


def test_a_recipe_sets_every_part_of_the_schedule():
    config = TrainingConfig(
        learning_rate=0.25, decay=0.125, decay_start=7, patience=9, min_gain=0.5, decay_always=11
    )
    expected = Schedule(learning_rate=0.25, decay=0.125, start=7, patience=9, min_gain=0.5, anneal=11)
    assert Schedule.from_config(config) == expected


def test_the_defaults_are_those_of_a_recipe():
    assert Schedule.from_config(TrainingConfig()) == Schedule(TrainingConfig().learning_rate)
    assert not Schedule(1.0, patience=1).ended


def test_the_rate_may_fall_at_the_first_validation_that_counts():
    assert rates(Schedule(1.0, 0.5, start=2), [5, 6]) == [(True, 1.0), (False, 0.5)]


def test_a_gain_of_exactly_the_least_counts():
    schedule = Schedule(1.0, min_gain=0.5)
    assert rates(schedule, [8, 4]) == [(True, 1.0), (True, 1.0)]
    assert schedule.stale == 0


def test_a_schedule_of_the_first_version_is_resumed():
    state = dataclasses.asdict(Schedule(0.5, validations=3, best_bound=7.0, best_score=6.0, stale=2))
    state["best_ppl"] = state.pop("best_score")
    schedule = Schedule(1.0)
    schedule.resume(state)
    assert schedule == Schedule(0.5, validations=3, best_bound=7.0, best_score=6.0, stale=2)


def test_a_rate_without_warm_up_is_the_rate_itself():
    schedule = Schedule(0.1)
    assert {schedule.rate(step) for step in (1, 7, 10**6)} == {0.1}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("plateau", {1: 0.25, 3: 0.75, 4: 1.0, 16: 1.0, 104: 1.0}),
        ("inverse-sqrt", {1: 0.25, 3: 0.75, 4: 1.0, 16: 0.5, 100: 0.2}),
        ("linear", {2: 0.5, 4: 1.0, 54: 0.505, 104: 0.01, 200: 0.01}),
        ("cosine", {2: 0.5, 4: 1.0, 29: 0.01 + 0.99 * (1 + 0.5**0.5) / 2, 54: 0.505, 104: 0.01, 200: 0.01}),
    ],
)
def test_the_rate_grows_then_falls_as_its_kind_says(kind, expected):
    schedule = Schedule(1.0, kind=kind, warmup=4, decay_steps=104)
    assert {step: schedule.rate(step) for step in expected} == pytest.approx(expected)


def test_validations_leave_a_planned_decay_alone():
    schedule = Schedule(1.0, 0.5, start=1, kind="inverse-sqrt", warmup=4)
    assert rates(schedule, [4, 6, 7]) == [(True, 1.0), (False, 1.0), (False, 1.0)]


def test_a_warm_start_has_the_warm_up_but_not_the_planned_decay():
    config = TrainingConfig(schedule="cosine", warmup_steps=3, decay_steps=9, warm_start_epochs=1)
    schedule = Schedule.from_config(config)
    assert (schedule.kind, schedule.warmup, schedule.decay_steps) == ("cosine", 3, 9)
    recipe = TaskRecipe(
        objective=ObjectiveConfig(name="marginal"),
        training=config.model_copy(update={"warm_start_objective": "soft"}),
    )
    first = warm_start_recipe(recipe)
    assert (first.training.schedule, first.training.warmup_steps, first.training.decay_steps) == (
        "plateau", 3, None,
    )  # fmt: skip
