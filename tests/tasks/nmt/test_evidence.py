"""Prior knowledge about alignments: log p(y, e | x) against brute force, and nothing that is reported contains e."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch

from latentalign import OBJECTIVES, Variational, exact_posterior
from latentalign import config as recipes
from latentalign.core.expectations import Enumerate
from latentalign.errors import InputError
from latentalign.tasks.nmt.decode import pair_batch
from latentalign.tasks.nmt.evidence import (
    EvidenceConfig,
    KnownPair,
    attach_evidence,
    log_evidence,
    match_pieces,
)
from latentalign.tasks.nmt.inference_network import InferenceConfig
from latentalign.tasks.nmt.model import ModelConfig, TranslationModel
from latentalign.tasks.nmt.prior import PriorConfig
from latentalign.tasks.nmt.recipe import NMTConfig
from latentalign.tasks.nmt.task import TRANSLATION
from latentalign.training.run import Run
from support.nmt import tiny

WORDS = 8
SOURCES, TARGETS = [[4, 5, 6], [6], [5, 7]], [[4, 6, 5], [4], [5, 5]]
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
    "jump": {"kind": "jump", "widest_jump": 2},
    "jump, NULL": {"kind": "jump", "widest_jump": 2, "null": True},
    "monotone, NULL": {"kind": "monotone", "null": True},
    "dense": {"kind": "dense", "hidden": 3},
}
EXACT = {"rtol": 1e-10, "atol": 1e-10}


def build(prior, sizes, inference=None):
    torch.manual_seed(0)
    config, prior = ModelConfig(**sizes), PriorConfig(**prior)
    model = TranslationModel(config, source_size=WORDS, target_size=WORDS, prior=prior, inference=inference)
    return model.double().eval()


@pytest.fixture(
    params=[(p, s) for p in PRIORS for s in (LSTM, TRANSFORMER)],
    ids=lambda v: f"{v[0]} {v[1].get('backbone', 'lstm')}",
)
def model(request):
    return build(PRIORS[request.param[0]], request.param[1])


def batches(model, weight=1.7):
    """A batch without and with random evidence. Every kind of word is known: links of its own, shared, or none."""
    plain = pair_batch(SOURCES, TARGETS)
    known = [
        KnownPair(({(0, 1): 1.0, (1, 1): 0.25, (2, 2): 1.0},), [0, 1, 2], [0, 1, 2]),
        KnownPair(({(0, 0): 1.0}, {(0, 0): 0.5}), [0], [0]),
        KnownPair(({(1, 0): 1.0}, {(0, 0): 0.5}), [0, 1], [0, 1]),
    ]
    return plain, attach_evidence(plain, known, weight=weight, null=model.has_null)


def log_prior_of_paths(prior, b, length):
    """Every path of an example, with NULL as the last member, and the log prior probability of each."""
    members, nulls = prior.mask.shape[-1], 1
    if prior.dependent_queries:
        members, nulls = prior.scores.shape[-1], 1 + prior.null
    paths = torch.tensor(list(itertools.product(range(members * nulls), repeat=length)))
    if not prior.dependent_queries:
        return paths, sum(prior.log_probs[b, j, paths[:, j]] for j in range(length))
    place, is_null = paths // nulls, paths % nulls == 1
    total = torch.zeros((), dtype=torch.float64)
    for j in range(length):
        origin, here = place[:, max(j - 1, 0)], place[:, j]
        step = prior.log_rows(j)[b, origin, here]
        if j > 0:  # NULL stays where it is
            stays = torch.where(here == origin, 0.0, -torch.inf).double()
            step = torch.where(is_null[:, j], stays, step)
        link = prior.log_real(j)[b, origin]
        if nulls > 1:
            link = torch.where(is_null[:, j], prior.log_null[b, j, origin], link)
        total = total + step + link
    return place.masked_fill(is_null, members), total


def brute_force(latent, evidence, lengths):
    """log p(y, e | x) of every example, summed over all paths."""
    joint, found = latent.prior.log_likelihoods(latent) + evidence, []
    for b, length in enumerate(lengths):
        paths, total = log_prior_of_paths(latent.prior, b, length)
        possible = total > -torch.inf
        steps = torch.arange(length)
        found.append((total[possible] + joint[b, steps, paths[possible]].sum(1)).logsumexp(0))
    return torch.stack(found)


@pytest.mark.parametrize("max_logits", [2**22, 3])
def test_the_objective_is_the_sum_over_all_paths(model, max_logits):
    model.config = model.config.model_copy(update={"max_logits": max_logits})
    plain, informed = batches(model)
    value = OBJECTIVES["marginal"]()(model.latent(informed)).surrogate.sum(1)
    lengths = [len(t) + 1 for t in TARGETS]
    expected = brute_force(model.latent(plain), informed.evidence.double(), lengths)
    torch.testing.assert_close(value, expected, **EXACT)
    parameters = [p for p in model.parameters() if p.requires_grad]
    ours, theirs = (torch.autograd.grad(v.sum(), parameters, allow_unused=True) for v in (value, expected))
    for a, b in zip(ours, theirs, strict=True):
        if b is not None:
            torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-9)


def test_evidence_moves_the_posterior_as_bayes_rule_says(model):
    plain, informed = batches(model, weight=40.0)
    with torch.no_grad():
        before, after = (exact_posterior(model.latent(b)).mean for b in (plain, informed))
    torch.testing.assert_close(after[0, 1, 0], torch.ones((), dtype=torch.float64), rtol=0, atol=1e-6)
    assert before[0, 1, 0] < 0.9
    if not model.latent(plain).prior.dependent_queries:
        assert torch.equal(after[0, 3], before[0, 3])  # nothing is known about the end of the sentence


@pytest.mark.parametrize("prior", ["independent", "jump, NULL"])
def test_the_bound_is_tight_at_the_posterior_given_the_evidence(prior):
    model = build(PRIORS[prior], LSTM)
    latent = model.latent(batches(model)[1])
    latent.inferred = exact_posterior(latent)
    bound = Variational(Enumerate())(latent).value.sum(1)
    torch.testing.assert_close(bound, OBJECTIVES["marginal"]()(latent).value.sum(1), **EXACT)


@pytest.mark.parametrize("max_logits", [2**22, 3])
@pytest.mark.parametrize("null", [False, True])
def test_other_objectives_weigh_evidence_like_likelihoods(null, max_logits):
    sizes = {**LSTM, "max_logits": max_logits}
    model = build({"null": null}, sizes, InferenceConfig(layers=1, size=3))
    plain, informed = batches(model)
    latent, e = model.latent(informed), informed.evidence.double()
    p, q, log_f = latent.prior.mean, latent.inferred.mean, model.latent(plain).prior.log_likelihoods(latent)
    log_f = model.latent(plain).log_likelihood(latent.prior.enumerate())
    found = {name: OBJECTIVES[name]()(latent).value for name in ("hard-enum", "variational-enum", "soft")}
    torch.testing.assert_close(found["hard-enum"], (p * (log_f + e)).sum(-1), **EXACT)
    kl = latent.inferred.kl(latent.prior)
    torch.testing.assert_close(found["variational-enum"], (q * (log_f + e)).sum(-1) - kl, **EXACT)
    # Soft attention looks at the mean alone: log f(E[z]) + E[log p(e | z)].
    torch.testing.assert_close(found["soft"], model.latent(plain).soft() + (p * e).sum(-1), **EXACT)


def test_a_certified_marginal_holds_with_evidence():
    model = build({}, LSTM)
    latent = model.latent(batches(model)[1])
    exact = OBJECTIVES["marginal"]()(latent).value
    found = OBJECTIVES["marginal"](tolerance=0.01)(latent)
    assert (found.value <= exact + 1e-12).all()
    assert (exact <= found.value + found.terms["gap"] + 1e-12).all()


def test_side_evidence_needs_a_number_for_every_member():
    model = build({}, LSTM)
    batch = pair_batch(SOURCES, TARGETS)
    wrong = dataclasses.replace(batch, evidence=torch.zeros(3, 4, 2))
    with pytest.raises(ValueError, match="side_evidence must have one number for every member"):
        model.latent(wrong)


def test_contradicting_members_lose_the_weight_and_words_without_a_match_lose_nothing():
    known = [KnownPair(({(1, 0): 1.0, (0, 0): 0.5},), [0, 1, 1], [0, 0, 1])]
    found = log_evidence(known, weight=2.0, shape=(1, 4, 5), null=True)
    row = [-1.0, 0.0, 0.0, 0.0, -2.0]  # member 3 is padding, member 4 is NULL
    assert found[0].tolist() == [row, row, [0.0] * 5, [0.0] * 5]
    assert match_pieces({(7, 0): 1.0, (0, 9): 1.0}, [0], [0]).tolist() == [[0.0]]


def test_the_size_of_a_batch_never_matters(model):
    _, together = batches(model)
    latent = model.latent(together)
    value = OBJECTIVES["marginal"]()(latent).value.sum(1)
    for b, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        rows, columns = len(target) + 1, len(source)
        e = together.evidence[b : b + 1, :rows]
        e = torch.cat([e[..., :columns], e[..., -1:]], -1) if model.has_null else e[..., :columns]
        alone = dataclasses.replace(pair_batch([source], [target]), evidence=e)
        torch.testing.assert_close(
            OBJECTIVES["marginal"]()(model.latent(alone)).value.sum(), value[b], **EXACT
        )


# Recipes


@pytest.fixture
def lexicon(tmp_path):
    path = tmp_path / "lexicon.tsv"
    path.write_text("und\tand\n.\t.\t0.5\n", encoding="utf-8")
    return path


def prepare(config, folder):
    run = Run(folder)
    run.folder.mkdir()
    from latentalign.training.distributed import World

    return TRANSLATION.prepare(config, run, World())


def test_training_batches_have_evidence_and_validation_has_none(demo_files, tmp_path, lexicon):
    data = prepare(
        tiny(demo_files, "marginal", f"evidence.lexicon={lexicon}", "prior.null=true"), tmp_path / "run"
    )
    batch = data.load_batch(np.arange(64))
    assert batch.evidence.shape == (*batch.target.shape, batch.source.shape[1] + 1)
    assert batch.evidence.min() == -3.0
    assert all(part.batch.evidence is None for part in data.validation_batches())
    full_stop = data.vocabulary.encode_target(".").ids[0]
    stops = (batch.target == full_stop).nonzero()
    assert len(stops) > 30
    for b, j in stops.tolist():
        matches = batch.source[b] == data.vocabulary.encode_source(".").ids[0]
        assert batch.evidence[b, j, :-1][matches].tolist() == [0.0] * int(matches.sum())
        assert batch.evidence[b, j, -1] == -1.5
    assert 0 < data.card()["evidence"]["target_words_with_evidence"] < 0.5


def test_given_links_and_a_lexicon_add_up(demo_files, tmp_path, lexicon):
    gold = [
        line.replace("?", "-").replace("p", "-")
        for line in (demo_files / "train.gold").read_text().splitlines()
    ]
    (tmp_path / "links").write_text("".join(f"{line}\n" for line in gold))
    options = [f"evidence.lexicon={lexicon}", f"evidence.links={tmp_path / 'links'}", "evidence.weight=2"]
    data = prepare(tiny(demo_files, "marginal", *options), tmp_path / "run")
    batch = data.load_batch(np.arange(64))
    assert batch.evidence.min() == -4.0
    assert data.card()["evidence"]["target_words_with_evidence"] > 0.9


def test_without_weight_nothing_changes(demo_files, tmp_path, lexicon):
    data = prepare(
        tiny(demo_files, "marginal", f"evidence.lexicon={lexicon}", "evidence.weight=0"), tmp_path / "run"
    )
    assert data.load_batch(data.batch_keys(0)[0]).evidence is None


def test_a_process_without_a_share_of_the_batch_needs_no_evidence(demo_files, tmp_path, lexicon):
    data = prepare(tiny(demo_files, "marginal", f"evidence.lexicon={lexicon}"), tmp_path / "run")
    assert data.load_batch(data.batch_keys(0)[0][:0]).evidence.tolist() == [[[0.0]]]


@pytest.mark.slow
def test_training_with_evidence_changes_the_model_and_reports_plain_likelihoods(
    demo_files, tmp_path, lexicon
):
    from latentalign.tasks.nmt.evaluate import evaluate

    found = {}
    for name, options in {"without": [], "with": [f"evidence.lexicon={lexicon}"]}.items():
        config = tiny(demo_files, "marginal", "training.max_steps=20", *options)
        result = TRANSLATION.train(config, Run(tmp_path / name), resume=False, overwrite=False)
        trained = TRANSLATION.load(tmp_path / name)
        plain = evaluate(trained, "valid")["ppl"]
        assert result["ppl"] == pytest.approx(plain, rel=1e-4)
        found[name] = plain
    assert found["with"] != found["without"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["evidence.weight=2"], "has no effect without evidence.lexicon or evidence.links"),
        (["evidence.weight=-1"], "evidence.weight"),
        (["evidence.weight=inf"], "evidence.weight"),
        (["evidence.lexikon=x"], "lexicon"),
    ],
)
def test_wrong_recipes_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        recipes.load("nmt/demo", NMTConfig, changes)


def test_unusable_files_are_refused_by_name(demo_files, tmp_path, lexicon):
    swapped = tmp_path / "swapped.tsv"
    swapped.write_text("and\tund\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"swapped\.tsv: no entry occurs in the text"):
        prepare(tiny(demo_files, "marginal", f"evidence.lexicon={swapped}"), tmp_path / "a")
    (tmp_path / "links").write_text("0-0\n")
    with pytest.raises(InputError, match=r"links has 1 lines, .* has 400"):
        prepare(tiny(demo_files, "marginal", f"evidence.links={tmp_path / 'links'}"), tmp_path / "b")
    config = tiny(demo_files, "marginal", f"evidence.lexicon={tmp_path / 'missing.tsv'}")
    with pytest.raises(InputError, match=r"evidence\.lexicon: .*missing\.tsv: no such file"):
        TRANSLATION.check_files(config)
    assert EvidenceConfig(lexicon=lexicon).used
