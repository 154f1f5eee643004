"""When the learning rate falls, when a model is the best, and when training ends."""

import dataclasses

from latentalign.training.schedule import Schedule


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
