"""A lexicon in beam search: its bonus against brute force, and the best output of all outputs."""

import itertools
import json
import random

import pytest
import torch

from latentalign import parse_predict
from latentalign.search import BeamSearch
from latentalign.tasks.nmt.constraints import Constraint
from latentalign.tasks.nmt.decode import DecodeStep, Translator, padded, pair_batch
from latentalign.tasks.nmt.guidance import LexiconGuide
from latentalign.tasks.nmt.lexicon import Entry
from latentalign.tasks.nmt.model import ModelConfig, TranslationModel
from latentalign.tasks.nmt.prior import PriorConfig
from latentalign.tasks.nmt.schema import AlignedTranslation
from latentalign.tasks.nmt.tokenizer import BOS, EOS, UNK, Tokenizer, TokenizerConfig
from latentalign.tasks.nmt.translate import TranslationJob, TranslationSettings
from support.commands import command

WORDS = 8
FREE = [UNK, 4, 5, 6, 7]
STARTS = torch.tensor([True, True, True, True, True, True, False, True])  # 6 continues the word before it
ENDS = torch.tensor([True, True, True, True, True, True, True, False])  # after 7 the word goes on
SOURCES = [[4, 5, 6], [6], [5, 4]]
LSTM = {
    "embedding": 4, "encoder_layers": 1, "encoder_size": 4, "decoder_layers": 1, "decoder_size": 5,
    "attention_size": 4, "head_size": 6, "dropout": 0.0, "init": 1.0,
}  # fmt: skip
TRANSFORMER = {
    "backbone": "transformer", "embedding": 4, "heads": 2, "encoder_layers": 1, "decoder_layers": 1,
    "dropout": 0.0,
}  # fmt: skip
PRIORS = {
    "independent": {},
    "NULL": {"null": True},
    "jump, NULL": {"kind": "jump", "widest_jump": 2, "null": True},
    "monotone": {"kind": "monotone"},
}


def constrain(pieces, *targets):
    """A constraint on some source pieces; each target is (ids, weight)."""
    entries = tuple(
        Entry((str(pieces),), tuple(map(str, ids)), str(ids), weight, i)
        for i, (ids, weight) in enumerate(targets)
    )
    return Constraint(pieces[0], pieces[-1] + 1, pieces, entries, tuple(ids for ids, _ in targets))


CONSTRAINTS = [
    [constrain((0,), ((4, 6), 1.0), ((4,), 0.5)), constrain((1, 2), ((5, 4), 2.0), ((7, 5), 1.0))],
    [],
    [constrain((0,), ((5,), 1.0)), constrain((1,), ((5,), 1.0))],
]


@pytest.fixture(
    params=[(p, s) for p in PRIORS for s in (LSTM, TRANSFORMER)],
    ids=lambda v: f"{v[0]} {v[1].get('backbone', 'lstm')}",
)
def model(request):
    torch.manual_seed(1)
    prior, sizes = request.param
    built = TranslationModel(
        ModelConfig(**sizes), source_size=WORDS, target_size=WORDS, prior=PriorConfig(**PRIORS[prior])
    )
    return built.double().eval()


def potential(tokens, masses, constraints, weight):
    """The bonus of an unfinished or finished output, by its definition, without any state.

    Walks over the words. A finished entry counts when the next word begins; the best of the entries that are being
    written counts as long as they go on.
    """
    done, confirmed, open_entries, last = set(), 0.0, [], BOS
    for token, mass in zip(tokens, masses, strict=True):
        boundary = bool(STARTS[token] and ENDS[last])
        if boundary:
            finished = [e for e in open_entries if e["at"] == len(e["ids"])]
            if finished:
                best = max(finished, key=lambda e: e["gained"])
                confirmed += best["gained"]
                done.add(best["owner"])
        still = []
        for e in open_entries:
            if e["owner"] not in done and e["at"] < len(e["ids"]) and e["ids"][e["at"]] == token:
                gained = e["gained"] + weight * e["weight"] * mass[e["owner"]]
                still.append({**e, "at": e["at"] + 1, "gained": gained})
        for owner, c in enumerate(constraints):
            for entry, ids in zip(c.entries, c.targets, strict=True):
                going_on = any(e["owner"] == owner and e["ids"] == ids for e in still)
                if boundary and owner not in done and ids[0] == token and not going_on:
                    gained = weight * entry.weight * mass[owner]
                    e = {"owner": owner, "ids": ids, "weight": entry.weight, "at": 1, "gained": gained}
                    still.append(e)
        open_entries, last = still, token
    return confirmed + max((e["gained"] for e in open_entries), default=0.0)


def known_outputs(model, source, outputs, constraints):
    """log p of every output, and p(z_j in C | x, y_<j) of each of its steps and constraints, in one batch."""
    with torch.no_grad():
        latent = model.latent(pair_batch([source] * len(outputs), [list(o) for o in outputs]))
        log_p = parse_predict("exact").log_prob(latent).sum(1).tolist()
        mean = latent.prior.predicted(latent).mean
    masses = torch.stack([mean[..., list(c.pieces)].sum(-1) for c in constraints], -1).tolist()
    return log_p, [m[: len(o) + 1] for m, o in zip(masses, outputs, strict=True)]


def guided(weight):
    return LexiconGuide(weight, STARTS, ENDS)


@pytest.mark.parametrize("seed", range(4))
def test_the_bonus_of_any_output_is_its_definition(model, seed):
    """Walk along random outputs: after every token, the bonuses add up to what the definition says."""
    rng = random.Random(seed)
    source, constraints = SOURCES[seed % 3], CONSTRAINTS[seed % 3]
    if not constraints:
        source, constraints = SOURCES[0], CONSTRAINTS[0]
    output = [rng.choice(FREE) for _ in range(7)]
    if seed == 0:
        output = [4, 6, 5, 4, 7, 5, 4]
    _, [masses] = known_outputs(model, source, [output], constraints)
    ids, mask = padded([source])
    step = DecodeStep(model, parse_predict("exact"), ids, mask, guide=guided(1.5), constraints=[constraints])
    state, total = step.start(), 0.0
    state |= {"places": torch.tensor([1]), "last": torch.tensor([False])}
    for length, (last, token) in enumerate(itertools.pairwise([BOS, *output, EOS])):
        with torch.no_grad():
            _, state = step(torch.tensor([last]), state)
        bonus, limit = state.pop("bonus"), float(state["bonus_limit"])
        for other in [*FREE, EOS]:
            expected = potential([*output[:length], other], masses[: length + 1], constraints, 1.5)
            assert total + float(bonus[0, other]) == pytest.approx(expected, abs=1e-9), (
                output,
                length,
                other,
            )
            assert expected <= limit + 1e-9
        total += float(bonus[0, token])


@pytest.mark.parametrize("weight", [0.7, 6.0])
@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
def test_a_wide_beam_finds_the_best_output_of_all(model, weight, length_penalty):
    source, constraints = SOURCES[0], CONSTRAINTS[0]
    search = BeamSearch(beam=1000, length_penalty=length_penalty, max_length=4, nbest=5)
    [best] = Translator(model, search, parse_predict("exact"), guide=guided(weight))([source], [constraints])
    outputs, scores = [o for n in range(4) for o in itertools.product(FREE, repeat=n)], {}
    for output, log_p, masses in zip(
        outputs, *known_outputs(model, source, outputs, constraints), strict=True
    ):
        bonus = potential([*output, EOS], masses, constraints, weight)
        scores[output] = (log_p + bonus) / ((6 + len(output)) / 6) ** length_penalty, log_p
    ranked = sorted(scores, key=lambda o: scores[o][0], reverse=True)[:5]
    assert [h.score for h in best] == pytest.approx([scores[o][0] for o in ranked], abs=1e-9)
    assert [h.log_prob for h in best] == pytest.approx([scores[o][1] for o in ranked], abs=1e-9)


@pytest.mark.parametrize("how", ["exact", "kmax:2", "soft", "certified:0.01"])
def test_the_size_of_a_batch_never_matters(model, how):
    if how.startswith("certified") and model.chain is not None:
        pytest.skip("a chain is not certified")
    translate = Translator(
        model, BeamSearch(beam=3, nbest=2, max_length=6), parse_predict(how), guide=guided(3.0)
    )
    together = translate(SOURCES, CONSTRAINTS)
    for source, constraints, other in zip(SOURCES, CONSTRAINTS, together, strict=True):
        [alone] = translate([source], [constraints])
        assert [h.tokens for h in alone] == [h.tokens for h in other]
        assert [h.score for h in alone] == pytest.approx([h.score for h in other], abs=1e-12)


def test_a_strong_bonus_writes_every_known_translation_once(model):
    search = BeamSearch(beam=6, length_penalty=0.0, max_length=12)
    [[best]] = Translator(model, search, parse_predict("exact"), guide=guided(200.0))(
        [SOURCES[0]], [CONSTRAINTS[0]]
    )
    text = list(best.tokens)
    assert (5, 4) in itertools.pairwise(text) or (7, 5) in itertools.pairwise(text)
    assert 4 in text


def test_dirichlet_models_use_the_mean_of_their_prior():
    torch.manual_seed(0)
    model = TranslationModel(
        ModelConfig(**LSTM), source_size=WORDS, target_size=WORDS, distribution="dirichlet"
    )
    search = BeamSearch(beam=2, max_length=6)
    translate = Translator(model.double(), search, parse_predict("soft"), guide=guided(100.0))
    assert 5 in translate([SOURCES[2]], [CONSTRAINTS[2]])[0][0].tokens


def test_words_begin_and_end_where_the_tokenizer_says(tmp_path):
    (tmp_path / "t").write_text("the dog barks. do@@ g s\n" * 3, encoding="utf-8")
    for kind, expected in {
        "words": {"dog": (True, True), "do@@": (True, True)},
        "segmented": {"dog": (True, True), "do@@": (True, False)},
        "characters": {"d": (True, True)},
        "bpe": {" d": (True, True), "s": (False, True), ".": (True, True)},
    }.items():
        config = TokenizerConfig(kind=kind, vocab_size=320, joint=False)
        tokenizer = Tokenizer.learn(config, tmp_path / "t", tmp_path / "t")
        starts, ends = tokenizer.target_boundaries()
        entries = tokenizer.target_vocabulary.get_vocab()
        assert {p: (starts[entries[p]], ends[entries[p]]) for p in expected} == expected


# With a trained model


@pytest.fixture
def lexicon(tmp_path, demo_files):
    """Every frequent source word of the test text, with two words of the training text that seldom translate it."""
    words = (demo_files / "test.de").read_text(encoding="utf-8").split()
    frequent = sorted(set(words), key=lambda w: (-words.count(w), w))[2:8]
    path = tmp_path / "lexicon.tsv"
    path.write_text("".join(f"{w}\tthe dog\n{w}\tcat\t2\n" for w in frequent), encoding="utf-8")
    return path


@pytest.fixture
def lines(demo_files):
    return (demo_files / "test.de").read_text(encoding="utf-8").splitlines()[:20]


@pytest.mark.slow
def test_weight_zero_changes_nothing_and_counts_all_the_same(trained, lines, lexicon):
    plain = TranslationJob(trained, lines, TranslationSettings(beam=3, nbest=2))
    counted = TranslationJob(
        trained, lines, TranslationSettings(beam=3, nbest=2, lexicon=lexicon, lexicon_weight=0.0)
    )
    assert list(plain.translate()) == list(counted.translate())
    outputs = list(counted.translate())
    assert counted.lexicon_summary(outputs)[0].startswith("lexicon: ")
    assert plain.lexicon_summary(outputs) == []


@pytest.mark.slow
def test_a_stronger_lexicon_satisfies_more_and_records_say_so(trained, lines, lexicon):
    satisfied = []
    for weight in (0.0, 5.0, 50.0):
        settings = TranslationSettings(beam=3, nbest=2, lexicon=lexicon, lexicon_weight=weight)
        job = TranslationJob(trained, lines, settings)
        outputs = list(job.translate())
        records = list(job.alignment_records(outputs))
        assert len(records) == 2 * len(lines)
        for record in records:
            AlignedTranslation.model_validate(record)
            words = record["text"].split()
            for outcome in record["constraints"]:
                span = outcome["target"]
                assert outcome["satisfied"] == (span is not None)
                assert not outcome["satisfied"] or " ".join(words[slice(*span)]) in outcome["alternatives"]
        best = [c for r in records if r["rank"] == 1 for c in r["constraints"]]
        satisfied.append(sum(c["satisfied"] for c in best))
        assert job.lexicon_summary(outputs)[0].split()[1:4] == [str(satisfied[-1]), "of", str(len(best))]
    assert satisfied[0] < satisfied[2] == len(best)
    assert satisfied[0] <= satisfied[1] <= satisfied[2]


@pytest.mark.slow
def test_batches_and_order_give_the_same_text(trained, lines, lexicon):
    lines = [*lines[:7], "", *lines[7:]]

    def texts(lines, **more):
        settings = TranslationSettings(beam=3, lexicon=lexicon, lexicon_weight=4.0, **more)
        return [best.text for best, *_ in TranslationJob(trained, lines, settings).translate()]

    expected = texts(lines)
    assert expected[7] == ""
    assert texts(lines, batch_tokens=1) == texts(lines, batch_tokens=10**6) == expected
    assert texts(lines[::-1]) == expected[::-1]


@pytest.mark.slow
def test_the_commands_use_a_lexicon_and_refuse_a_wrong_one(trained_run, demo_files, lexicon, tmp_path):
    stdin = b"".join((demo_files / "test.de").read_bytes().splitlines(keepends=True)[:5])
    run = ["translate", trained_run, "--beam", 2]
    done = command(
        *run, "--lexicon", lexicon, "--lexicon-weight", 30, "--alignments", tmp_path / "a", stdin=stdin
    )
    assert done.returncode == 0, done.stderr
    assert b"lexicon: " in done.stderr
    assert len(done.stdout.splitlines()) == 5
    records = [json.loads(line) for line in (tmp_path / "a").read_text().splitlines()]
    assert any(record["constraints"] for record in records)
    (tmp_path / "bad").write_text("und\tand\nund\tqwertyuiop\n")
    for options, message in {
        ("--lexicon", tmp_path / "bad"): "bad, line 2: the model cannot write 'qwertyuiop'",
        ("--lexicon", tmp_path / "none"): "none",
        ("--lexicon", lexicon, "--lexicon-weight", -1): "--lexicon-weight is -1",
        ("--lexicon", lexicon, "--lexicon-weight", "nan"): "--lexicon-weight is nan",
        ("--lexicon-weight", 3): "--lexicon-weight has no effect without --lexicon",
    }.items():
        done = command(*run, *options, stdin=stdin)
        assert (done.returncode, message in done.stderr.decode()) == (2, True), done.stderr
        assert b"Traceback" not in done.stderr


@pytest.mark.slow
def test_alignments_of_given_pairs_use_a_lexicon_as_evidence(trained_run, demo_files, tmp_path):
    text = ["--source", demo_files / "test.de", "--target", demo_files / "test.en"]
    (tmp_path / "lexicon").write_text(".\t.\n")
    strong = ["--lexicon", tmp_path / "lexicon", "--lexicon-weight", 50]
    plain = command("align", trained_run, *text, "--format", "json")
    zero = command("align", trained_run, *text, "--format", "json", *strong[:3], 0)
    assert plain.stdout == zero.stdout
    done = command("align", trained_run, *text, "--format", "json", *strong)
    for line in done.stdout.decode().splitlines():
        record = json.loads(line)
        stops = {j for j, word in enumerate(record["target"]) if word == "."}
        links = {(record["source"][k["source"]], k["target"]) for k in record["links"]}
        assert "." not in record["source"] or all((".", j) in links for j in stops)
    for options, message in {
        (*strong, "--using", "prior"): "has no effect with --using prior",
        (*strong, "--reverse", trained_run): "has one direction",
        ("--lexicon-weight", 1): "has no effect without --lexicon",
        (*strong[:3], -2): "--lexicon-weight is -2",
    }.items():
        done = command("align", trained_run, *text, *options)
        assert (done.returncode, message in done.stderr.decode()) == (2, True), done.stderr
    done = command("align", *text, *strong)
    assert (done.returncode, b"belongs to a translation run" in done.stderr) == (2, True), done.stderr
