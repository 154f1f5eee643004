"""Beam search is compared with all outputs written down, on steps that know their whole history."""

import itertools
import math
from dataclasses import dataclass, field

import pytest
import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentalign.core.numerics import BLOCK
from latentalign.errors import DivergedError, InputError
from latentalign.search import BeamSearch, Hypothesis, _top
from support.static_shapes import compute_as_on_a_gpu

PAD, BOS, EOS, A, B, C = range(6)


@pytest.fixture(params=["cpu", "gpu"], autouse=True)
def device_kind(request, monkeypatch):
    """Every test runs with both searches: the one of CPUs, and the one of devices whose values are not read."""
    if request.param == "gpu":
        compute_as_on_a_gpu(monkeypatch)
    return request.param


WORDS = (A, B, C)
SPECIAL = {"bos": BOS, "eos": EOS, "pad": PAD}


@dataclass
class HistoryStep:
    """log p(. | sentence, all earlier tokens): drawn from a hash of the history, which only the state holds."""

    seeds: list[int]
    vocabulary: int = 6
    dtype: torch.dtype = torch.float64
    sharpness: float = 2.0
    rows: list[int] = field(default_factory=list)

    def start(self) -> dict[str, Tensor]:
        n = len(self.seeds)
        return {"sentence": torch.arange(n), "history": torch.zeros(n, 0, dtype=torch.long)}

    def row(self, sentence: int, history: tuple[int, ...]) -> Float[Tensor, " V"]:
        generator = torch.Generator().manual_seed(hash((self.seeds[sentence], history)) % 2**31)
        logits = torch.randn(self.vocabulary, generator=generator, dtype=torch.float64) * self.sharpness
        return logits.log_softmax(-1).to(self.dtype)

    def __call__(self, tokens: Int[Tensor, " n"], state: dict[str, Tensor]):
        self.rows.append(len(tokens))
        history = torch.cat([state["history"], tokens[:, None]], dim=1)
        keys = zip(state["sentence"].tolist(), history.tolist(), strict=True)
        log_probs = torch.stack([self.row(sentence, tuple(h)) for sentence, h in keys])
        return log_probs, {"sentence": state["sentence"], "history": history}

    def log_prob(self, sentence: int, tokens: tuple[int, ...]) -> float:
        steps = [self.row(sentence, (BOS, *tokens[:i]))[t].item() for i, t in enumerate(tokens)]
        return sum(steps)


@dataclass
class TableStep:
    """log p(. | output position) from a table: the same for all sentences."""

    table: Float[Tensor, "positions V"]

    def __call__(self, tokens: Int[Tensor, " n"], state: dict[str, Tensor]):
        log_probs = self.table[state["position"].clamp(max=len(self.table) - 1)]
        return log_probs, {"position": state["position"] + 1}


def lengths(*values: int) -> Int[Tensor, " B"]:
    return torch.tensor(values, dtype=torch.long)


def search(beam_search: BeamSearch, step: HistoryStep, source_lengths: list[int] | None = None):
    source = lengths(*(source_lengths or [1] * len(step.seeds)))
    return beam_search(step, step.start(), source_lengths=source, **SPECIAL)


def everything(step: HistoryStep, limit: int, alpha: float, *, eos_loss: float = 0.0) -> list[tuple]:
    """All outputs of sentence 0 up to a length, eos included: (score, tokens, log-probability), best first."""
    outputs = []
    for n in range(limit):
        for words in itertools.product(WORDS, repeat=n):
            tokens = (*words, EOS)
            log_prob = step.log_prob(0, tokens)
            score = (log_prob - eos_loss / len(tokens)) / ((5 + len(tokens)) / 6) ** alpha
            outputs.append((score, tokens, log_prob))
    return sorted(outputs, reverse=True)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 3.0])
@pytest.mark.parametrize("seed", range(6))
def test_a_wide_beam_finds_the_true_best_outputs(seed, alpha):
    step = HistoryStep([seed])
    exhaustive = BeamSearch(beam=60, length_penalty=alpha, max_length_ratio=0.0, max_length_extra=4, nbest=5)
    found = search(exhaustive, step)[0]
    for hypothesis, (score, tokens, log_prob) in zip(found, everything(step, 4, alpha)[:5], strict=True):
        assert hypothesis.tokens == tokens
        assert hypothesis.log_prob == pytest.approx(log_prob, abs=1e-12)
        assert hypothesis.score == pytest.approx(score, abs=1e-12)
        assert hypothesis.finished


@pytest.mark.parametrize("seed", range(4))
def test_eos_norm_changes_the_ranking_and_not_the_reported_log_prob(seed):
    step = HistoryStep([seed])
    config = BeamSearch(beam=60, max_length_ratio=0.0, max_length_extra=4, eos_norm=3.0, nbest=40)
    found = search(config, step, [2])[0]
    expected = everything(step, 4, 1.0, eos_loss=3.0 * 2)
    assert [h.tokens for h in found] == [tokens for _, tokens, _ in expected]
    assert [h.score for h in found] == pytest.approx([score for score, _, _ in expected])
    assert [h.log_prob for h in found] == pytest.approx([log_prob for _, _, log_prob in expected])
    assert [h.tokens for h in found] != [tokens for _, tokens, _ in everything(step, 4, 1.0)]


def test_stopping_early_saves_work_and_loses_nothing():
    """n best from a search that may stop early = the first n of one that has to fill its whole beam."""
    settings = {"beam": 8, "max_length_ratio": 0.0, "max_length_extra": 12}
    seeds = list(range(8))
    early, full = HistoryStep(seeds, sharpness=3.0), HistoryStep(seeds, sharpness=3.0)
    best = search(BeamSearch(**settings, nbest=2), early)
    assert best == [hypotheses[:2] for hypotheses in search(BeamSearch(**settings, nbest=8), full)]
    assert sum(early.rows) < sum(full.rows)


def test_a_beam_of_one_is_greedy():
    for seed in range(8):
        step, tokens = HistoryStep([seed]), (BOS,)
        while tokens[-1] != EOS and len(tokens) < 8:
            log_probs = step.row(0, tokens)
            log_probs[[PAD, BOS]] = -math.inf
            tokens = (*tokens, EOS if len(tokens) == 7 else int(log_probs.argmax()))
        found = search(BeamSearch(beam=1, max_length_ratio=0.0, max_length_extra=7), step)[0]
        assert [h.tokens for h in found] == [tokens[1:]]


def test_scores_are_the_steps_own_and_states_follow_their_hypotheses():
    """Were a state reordered wrongly, the sum over the returned tokens would differ."""
    step = HistoryStep(list(range(20)))
    found = search(BeamSearch(beam=4, nbest=4), step, [3] * 20)
    for sentence, hypotheses in enumerate(found):
        for h in hypotheses:
            assert h.log_prob == pytest.approx(step.log_prob(sentence, h.tokens), abs=1e-12)
            assert h.score == pytest.approx(h.log_prob / ((5 + len(h.tokens)) / 6), abs=1e-12)
    assert len({len(h.tokens) for hypotheses in found for h in hypotheses}) > 3


@pytest.mark.parametrize("size", [1, 7, 24])
def test_neighbours_in_the_batch_never_matter(size):
    config = BeamSearch(beam=3, nbest=3, max_length_extra=3)
    seeds, source = list(range(24)), [i % 4 for i in range(24)]
    together = search(config, HistoryStep(seeds), source)
    order = torch.randperm(24).tolist()
    for start in range(0, 24, size):
        part = order[start : start + size]
        found = search(config, HistoryStep([seeds[i] for i in part]), [source[i] for i in part])
        assert found == [together[i] for i in part]


def test_an_empty_batch_gives_an_empty_list():
    assert search(BeamSearch(), HistoryStep([]), []) == []


def test_n_best_are_distinct_sorted_and_a_prefix_of_more():
    step = HistoryStep(list(range(10)))
    five = search(BeamSearch(beam=6, nbest=5), step)
    for hypotheses in five:
        assert len({h.tokens for h in hypotheses}) == len(hypotheses) == 5
        assert [h.score for h in hypotheses] == sorted((h.score for h in hypotheses), reverse=True)
        assert all(h.tokens.count(EOS) == 1 and h.tokens[-1] == EOS for h in hypotheses)
    assert search(BeamSearch(beam=6, nbest=1), step) == [hypotheses[:1] for hypotheses in five]


def test_every_sentence_has_its_own_length_limit_and_ends_in_eos_there():
    table = torch.full((1, 6), -8.0, dtype=torch.float64)
    table[0, A] = -0.1
    state = {"position": torch.zeros(4, dtype=torch.long)}
    config = BeamSearch(beam=1, max_length_ratio=1.5, max_length_extra=1, max_length=7)
    found = config(TableStep(table), state, source_lengths=lengths(0, 1, 3, 50), **SPECIAL)
    assert [len(h.tokens) for (h,) in found] == [1, 2, 5, 7]  # floor(1.5 |x|) + 1, at most 7
    for (h,) in found:
        assert h.tokens == (A,) * (len(h.tokens) - 1) + (EOS,)
        assert h.log_prob == pytest.approx(-0.1 * (len(h.tokens) - 1) - 8.0)
        assert h.finished


def test_pad_and_bos_are_never_proposed_and_nothing_is_renormalised():
    table = torch.tensor([[-0.1, -0.2, -3.0, -2.0, -9.0, -9.0]], dtype=torch.float64)
    state = {"position": torch.zeros(1, dtype=torch.long)}
    config = BeamSearch(beam=10, nbest=10, max_length_ratio=0.0, max_length_extra=3)
    (found,) = config(TableStep(table), state, source_lengths=lengths(1), **SPECIAL)
    assert all(set(h.tokens) <= {EOS, *WORDS} for h in found)
    assert found[0] == Hypothesis((EOS,), -3.0, -3.0, finished=True)
    assert table[0, PAD] == -0.1, "the step's own table was changed"


@pytest.mark.parametrize("device_kind", ["cpu"], indirect=True)
def test_only_what_is_alive_is_computed():
    """The first step ends one hypothesis of three, the third step ends the other two."""
    table = torch.full((3, 6), -30.0, dtype=torch.float64)
    table[0, [A, B, EOS]] = torch.tensor([-1.0, -1.1, -1.05], dtype=torch.float64)
    table[1, A], table[1, EOS], table[2, EOS] = -0.1, -40.0, -0.1
    rows = []

    def step(tokens, state):
        rows.append(len(tokens))
        return TableStep(table)(tokens, state)

    state = {"position": torch.zeros(2, dtype=torch.long)}
    config = BeamSearch(beam=3, nbest=3)
    found = config(step, state, source_lengths=lengths(5, 5), **SPECIAL)
    assert [len(h.tokens) for h in found[0]] == [3, 3, 1]
    assert rows == [2, 4, 4]


@pytest.mark.parametrize("device_kind", ["cpu"], indirect=True)
def test_a_sentence_that_is_over_leaves_the_batch():
    config = BeamSearch(beam=4, nbest=4, max_length_ratio=1.0, max_length_extra=2)
    alone, together = HistoryStep([5]), HistoryStep([5, 1, 2])
    search(config, alone, [40])
    search(config, together, [40, 0, 1])  # limits 42, 2 and 3
    assert together.rows[1] > alone.rows[1]
    assert len(alone.rows) > 3
    assert together.rows[3:] == alone.rows[3:]


def test_ties_go_to_the_lower_token_and_then_to_the_better_parent():
    values = torch.tensor([[0.0, 2.0, 1.0, 1.0, 1.0, -1.0], [0.0, 0.0, 0.0, 0.0, 0.0, 0.0]])
    top, column = _top(values, 3)
    assert column.tolist() == [[1, 2, 3], [0, 1, 2]]
    assert top.tolist() == [[2.0, 1.0, 1.0], [0.0, 0.0, 0.0]]
    flat = torch.full((1, 6), -2.0, dtype=torch.float64)
    config = BeamSearch(beam=5, nbest=5, max_length_ratio=0.0, max_length_extra=3, length_penalty=0.0)
    (found,) = config(
        TableStep(flat), {"position": torch.zeros(1, dtype=torch.long)}, source_lengths=lengths(1), **SPECIAL
    )
    # Of the second step's nine equal continuations those by eos come first, then those by A.
    assert [h.tokens for h in found] == [(EOS,), (A, EOS), (B, EOS), (C, EOS), (A, A, EOS)]


def test_top_is_a_full_stable_sort_cut_off():
    values = torch.randint(0, 5, (200, 12)).double()
    values[torch.rand_like(values) < 0.2] = -math.inf
    for k in (1, 3, 11, 12):
        full, order = values.sort(dim=1, descending=True, stable=True)
        top, column = _top(values, k)
        assert torch.equal(top, full[:, :k])
        real = top > -math.inf
        assert torch.equal(column[real], order[:, :k][real])


def test_where_eos_is_impossible_the_output_is_marked_unfinished():
    table = torch.full((1, 6), -1.0, dtype=torch.float64)
    table[0, EOS] = -math.inf
    state = {"position": torch.zeros(2, dtype=torch.long)}
    config = BeamSearch(beam=2, max_length_ratio=0.0, max_length_extra=3)
    for (h,) in config(TableStep(table), state, source_lengths=lengths(1, 1), **SPECIAL):
        assert h == Hypothesis((A, A), -2.0, -2.0 / (7 / 6), finished=False)


def test_a_sentence_with_an_output_gets_no_unfinished_ones():
    table = torch.full((2, 6), -math.inf, dtype=torch.float64)
    table[0, [EOS, A]] = torch.tensor([0.4, 0.6], dtype=torch.float64).log()
    table[1, A] = 0.0  # the second token has to be eos, which is impossible
    config = BeamSearch(beam=2, nbest=2, max_length_ratio=0.0, max_length_extra=2)
    state = {"position": torch.zeros(1, dtype=torch.long)}
    (found,) = config(TableStep(table), state, source_lengths=lengths(1), **SPECIAL)
    assert [(h.tokens, h.finished) for h in found] == [((EOS,), True)]


def test_unfinished_outputs_are_sorted_too():
    table = torch.tensor([[-9.0, -9.0, -math.inf, -1.0, -2.0, -3.0]], dtype=torch.float64)
    state = {"position": torch.zeros(1, dtype=torch.long)}
    config = BeamSearch(beam=3, nbest=3, max_length_ratio=0.0, max_length_extra=2)
    (found,) = config(TableStep(table), state, source_lengths=lengths(1), **SPECIAL)
    assert [(h.tokens, h.log_prob) for h in found] == [((A,), -1.0), ((B,), -2.0), ((C,), -3.0)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_single_precision_and_half_precision_steps_are_summed_in_double(dtype):
    step = HistoryStep([1, 2, 3], dtype=dtype)
    for sentence, (h,) in enumerate(search(BeamSearch(beam=4), step)):
        assert h.log_prob == pytest.approx(step.log_prob(sentence, h.tokens), abs=1e-12)


def test_no_gradient_graph_is_kept():
    table = torch.zeros(1, 6, requires_grad=True)
    seen = []

    def step(tokens, state):
        log_probs = table.log_softmax(-1).expand(len(tokens), -1)
        seen.append(log_probs.requires_grad)
        return log_probs, state

    BeamSearch(beam=2)(step, {}, source_lengths=lengths(1), **SPECIAL)
    assert seen
    assert not any(seen)


def test_a_model_that_gives_nan_is_named():
    table = torch.full((1, 6), math.nan)
    state = {"position": torch.zeros(1, dtype=torch.long)}
    with pytest.raises(DivergedError, match="position 1"):
        BeamSearch()(TableStep(table), state, source_lengths=lengths(1), **SPECIAL)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"beam": 0}, "beam"),
        ({"nbest": 11}, "nbest"),
        ({"nbest": 0}, "nbest"),
        ({"length_penalty": -0.5}, "length_penalty"),
        ({"eos_norm": math.nan}, "eos_norm"),
        ({"max_length": 0}, "max_length"),
        ({"length_penalty": math.inf}, "length_penalty"),
    ],
)
def test_impossible_settings_are_refused_by_name(settings, named):
    with pytest.raises(InputError, match=named):
        BeamSearch(**settings)


@pytest.mark.parametrize("levels", [5, 40, 10**6])
@pytest.mark.parametrize("width", [BLOCK * 30, BLOCK * 30 + 17, BLOCK * 9])
def test_the_best_of_long_rows_are_those_of_a_sort_of_equals_the_first(width, levels):
    values = torch.randint(levels, (20, width), generator=torch.Generator().manual_seed(0)).double()
    values[:, -1] = levels  # in the last, shorter block
    for k in (1, 4, 11):
        value, column = _top(values, k)
        expected = values.sort(dim=1, descending=True, stable=True)
        assert torch.equal(column, expected.indices[:, :k])
        assert torch.equal(value, expected.values[:, :k])


def test_a_search_is_ended_by_its_check():
    step, calls = HistoryStep([1, 2]), []

    def check():
        calls.append(len(step.rows))
        if len(calls) == 3:
            raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        BeamSearch(beam=2)(step, step.start(), source_lengths=lengths(9, 9), **SPECIAL, check=check)
    assert calls == [0, 1, 2]  # before every step


def plain_beam(step: HistoryStep, config: BeamSearch, limit: int, source_length: int) -> list[tuple]:
    """The outputs that a beam finds, with loops over hypotheses and words: (score, tokens, log-probability)."""
    live, found, places = [((), 0.0)], [], config.beam
    for length in range(1, limit + 1):
        loss, options = config.eos_norm * source_length / length, []
        for tokens, log_prob in live:
            row = step.row(0, (BOS, *tokens)).tolist()
            for token in (*WORDS, EOS) if length < limit else (EOS,):
                total = log_prob + row[token]
                options.append((total - loss * (token == EOS), (*tokens, token), total))
        kept = sorted(options, reverse=True)[:places]
        ended = [
            (value / ((5 + length) / 6) ** config.length_penalty, *rest)
            for value, *rest in kept
            if rest[0][-1] == EOS
        ]
        live = [(tokens, total) for _, tokens, total in kept if tokens[-1] != EOS]
        found, places = found + ended, places - len(ended)
    return sorted(found, reverse=True)


@pytest.mark.parametrize("eos_norm", [0.0, 2.0])
@pytest.mark.parametrize("beam", [1, 2, 3])
@pytest.mark.parametrize("seed", range(6))
def test_a_narrow_beam_keeps_what_a_plain_loop_keeps(seed, beam, eos_norm):
    step = HistoryStep([seed])
    config = BeamSearch(beam=beam, max_length_ratio=0.0, max_length_extra=6, eos_norm=eos_norm, nbest=beam)
    found, expected = search(config, step, [3])[0], plain_beam(step, config, 6, 3)[:beam]
    assert [h.tokens for h in found] == [tokens for _, tokens, _ in expected]
    assert [h.score for h in found] == pytest.approx([score for score, *_ in expected])


class InformedStep(HistoryStep):
    """Remembers what the search says about every hypothesis."""

    def __call__(self, tokens, state):
        log_probs, after = super().__call__(tokens, state)
        known = {name: state[name] for name in ("log_prob", "places", "last")}
        self.seen.append((state["sentence"].tolist(), after["history"].tolist(), known))
        return log_probs, {**after, **known}


def test_a_step_that_asks_is_told_probabilities_places_and_the_end(device_kind):
    step, beam, limit = InformedStep([0, 1, 2], sharpness=1.0), 3, 4
    step.seen = []
    start = step.start() | {"log_prob": torch.zeros(3, dtype=torch.float64)}
    config = BeamSearch(beam=beam, nbest=beam, max_length_ratio=0.0, max_length_extra=limit)
    found = config(step, start, source_lengths=lengths(1, 1, 1), **SPECIAL)
    assert len(step.seen) == limit
    for sentences, histories, known in step.seen:
        for row, (sentence, history) in enumerate(zip(sentences, histories, strict=True)):
            expected = step.log_prob(sentence, tuple(history[1:]))
            if known["log_prob"][row] == -math.inf and device_kind == "gpu":
                continue  # a place without a hypothesis
            assert known["log_prob"][row].item() == pytest.approx(expected)
            assert known["last"][row].item() == (len(history) == limit)
            ended = sum(len(h.tokens) < len(history) for h in found[sentence])
            assert known["places"][row].item() == beam - ended


def test_outputs_are_at_most_twice_the_source_and_ten_more_and_never_above_250_by_default():
    table = torch.tensor([[-9.0, -9.0, -99.0, 0.0, -1.0, -2.0]]).log_softmax(-1).double()
    state = {"position": torch.zeros(2, dtype=torch.long)}
    found = BeamSearch(beam=1, length_penalty=0.0)(
        TableStep(table), state, source_lengths=lengths(3, 200), **SPECIAL
    )
    assert [len(h.tokens) for (h,) in found] == [16, 250]


def test_one_token_may_be_the_limit():
    (h,) = search(BeamSearch(max_length=1), HistoryStep([0]))[0]
    assert h.tokens == (EOS,)
