"""What the head sees of a source position, and NULL for alignments that are independent of each other."""

import dataclasses

import pytest
import torch

from latentalign import OBJECTIVES, parse_predict
from latentalign import config as recipes
from latentalign.errors import InputError
from latentalign.search import BeamSearch
from latentalign.tasks.nmt.align import BatchAlignments, Pair, pair_links
from latentalign.tasks.nmt.decode import Translator, pair_batch
from latentalign.tasks.nmt.inference_network import InferenceConfig, external_scores
from latentalign.tasks.nmt.model import ModelConfig, TranslationModel
from latentalign.tasks.nmt.prior import PriorConfig
from latentalign.tasks.nmt.recipe import NMTConfig
from latentalign.tasks.nmt.tokenizer import BOS, EOS, Encoded

SIZES = ModelConfig(
    embedding=4, encoder_layers=1, encoder_size=3, decoder_layers=1, decoder_size=5, attention_size=4,
    head_size=6, dropout=0.0, init=1.0,
)  # fmt: skip
PAIRS = ([[4, 5, 6], [6], [5, 4]], [[4, 6], [5], [4, 4, 6]])
WIDTHS = {"state": 6, "word": 4, "word+state": 10}
EMISSIONS = pytest.mark.parametrize("emission", list(WIDTHS))
PRIOR = pytest.mark.parametrize(
    "prior",
    [{}, {"null": True}, {"kind": "jump", "widest_jump": 2, "null": True}],
    ids=["independent", "independent, NULL", "jump, NULL"],
)


def build(emission="state", prior=None, **options):
    torch.manual_seed(0)
    config = SIZES.model_copy(update={"emission": emission})
    sizes = {"source_size": 7, "target_size": 7}
    return TranslationModel(config, prior=PriorConfig(**(prior or {})), **sizes, **options).double().eval()


@EMISSIONS
@PRIOR
def test_members_have_the_size_of_what_the_head_sees(emission, prior):
    model = build(emission, prior)
    batch = pair_batch(*PAIRS)
    states, members = model.encode(batch.source, batch.source_mask)
    assert states.shape == (3, 3, 6)
    assert members.shape == (3, 3 + bool(prior.get("null")), WIDTHS[emission])
    assert model.head.from_memory.in_features == WIDTHS[emission]
    latent = model.latent(batch)
    assert latent.prior.mean.shape[-1] == members.shape[1]


def test_members_are_the_word_and_the_state():
    batch = pair_batch(*PAIRS)
    model = build("word+state")
    states, members = model.encode(batch.source, batch.source_mask)
    words = model.source_embedding(batch.source)
    assert torch.equal(members, torch.cat([words, states], -1))
    model = build("word")
    assert torch.equal(model.encode(batch.source, batch.source_mask)[1], model.source_embedding(batch.source))


@EMISSIONS
def test_likelihood_equals_a_loop_over_words_and_members_with_null(emission):
    model = build(emission, {"null": True})
    exact = OBJECTIVES["marginal"]()(model.latent(pair_batch(*PAIRS))).value
    for row, (source, target) in enumerate(zip(*PAIRS, strict=True)):
        mask = torch.ones(1, len(source)).bool()
        memory, members = model.encode(torch.tensor([source]), mask)
        state, projected = model.decoder.start(1, memory), model.decoder.score.project(memory)
        for position, (previous, word) in enumerate(zip([BOS, *target], [*target, EOS], strict=True)):
            words = model.target_embedding(torch.tensor([previous]))
            query, scores, state = model.decoder.step(words, state, memory, projected, mask=mask)
            null = model.null.score(query).sigmoid()[0]
            prior = torch.cat([(1 - null) * scores.softmax(-1)[0], null])
            f = [model.head(query, members[:, i]).softmax(-1)[0, word] for i in range(len(source) + 1)]
            expected = (prior * torch.stack(f)).sum().log()
            torch.testing.assert_close(exact[row, position], expected, rtol=1e-10, atol=1e-10)


@EMISSIONS
@PRIOR
@pytest.mark.parametrize("how", ["exact", "soft", "kmax:1"])
def test_the_score_of_a_translation_is_the_models_own_log_probability(emission, prior, how):
    model, predict = build(emission, prior), parse_predict(how)
    found = Translator(model, BeamSearch(beam=4, length_penalty=0.0, nbest=3, max_length=5), predict)(
        PAIRS[0]
    )
    for source, hypotheses in zip(PAIRS[0], found, strict=True):
        for h in hypotheses:
            with torch.no_grad():
                own = predict.log_prob(model.latent(pair_batch([source], [list(h.tokens[:-1])]))).sum()
            assert h.log_prob == pytest.approx(float(own), abs=1e-9)


@EMISSIONS
@PRIOR
def test_padding_never_matters(emission, prior):
    model = build(emission, prior)
    with torch.no_grad():
        together = OBJECTIVES["marginal"]()(model.latent(pair_batch(*PAIRS))).value.sum(1)
        alone = [
            OBJECTIVES["marginal"]()(model.latent(pair_batch([s], [t]))).value.sum()
            for s, t in zip(*PAIRS, strict=True)
        ]
    assert together.tolist() == pytest.approx([float(value) for value in alone], abs=1e-12)


@EMISSIONS
@PRIOR
@pytest.mark.parametrize("name", ["soft", "marginal", "variational-sample"])
def test_every_parameter_is_trained(emission, prior, name):
    inference = InferenceConfig(layers=1, size=3, chain=False) if name.startswith("variational") else None
    model = build(emission, prior, inference=inference).train()
    OBJECTIVES[name]()(model.latent(pair_batch(*PAIRS))).surrogate.sum().backward()
    for parameter in model.parameters():
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()


@pytest.mark.parametrize(
    "name", [n for n, entry in OBJECTIVES.items() if entry().distribution == "categorical"]
)
def test_every_objective_accepts_null(name):
    model = build("state", {"null": True}, inference=InferenceConfig(layers=1, size=3, chain=False)).train()
    OBJECTIVES[name]()(model.latent(pair_batch(*PAIRS))).surrogate.sum().backward()
    assert model.null.member.grad.abs().sum() > 0
    assert model.null.score.weight.grad.abs().sum() > 0


def test_without_null_and_with_states_nothing_is_added():
    names = {name for name, _ in build().named_parameters()}
    assert not any("null" in name for name in names)
    assert {n for n, _ in build("word+state", {"null": True}).named_parameters()} - names == {
        "null.score.weight", "null.score.bias", "null.member"
    }  # fmt: skip


def test_a_word_whose_best_source_is_null_has_no_link_in_an_independent_model():
    model = build("state", {"null": True})
    with torch.no_grad():
        model.null.score.bias.fill_(50.0)
    pair = Pair(Encoded([4, 5], [0, 1]), Encoded([4], [0]))
    with torch.no_grad():
        alignments = BatchAlignments(model.latent(pair_batch([[4, 5]], [[4]])))
        matrix = alignments.matrix("posterior")[0].numpy()
    assert pair_links(pair, matrix, null=model.has_null).best() == frozenset()
    assert len(pair_links(pair, matrix, null=model.has_null).at_least(0.0)) == 2


def test_mixtures_have_no_null():
    with pytest.raises(InputError, match="has no NULL, because its alignments are mixtures"):
        recipes.load("nmt/demo", NMTConfig, ["objective.name=relaxed", "prior.null=true"])


LINKS = {(0, 0): 0.5, (1, 0): 0.25, (1, 1): 1.0}
SOURCE, TARGET = [0, 0, 1], [0, 1, 2]  # word 0 has two pieces; target word 2 has no link


def test_external_q_keeps_the_probabilities_of_words_and_leaves_the_rest_to_null():
    scores = external_scores([LINKS], [SOURCE], [TARGET], smoothing=0.0, shape=(1, 5, 5), null=True)
    q = scores.exp()[0, :4][:, [0, 1, 2, -1]]
    expected = [[0.25, 0.25, 0.25, 0.25], [0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 1]]
    torch.testing.assert_close(q, torch.tensor(expected), atol=1e-7, rtol=0)


def test_external_q_spreads_the_rest_evenly_without_null():
    scores = external_scores([LINKS], [SOURCE], [TARGET], smoothing=0.0, shape=(1, 4, 3))
    third = 1 / 3
    expected = [[0.25 + 0.25 / 3] * 3, [0, 0, 1], [third] * 3, [third] * 3]
    torch.testing.assert_close(scores.exp()[0], torch.tensor(expected), atol=1e-7, rtol=0)


def test_smoothing_leaves_a_distribution():
    for null in (False, True):
        scores = external_scores(
            [LINKS, {(9, 9): 1.0}], [SOURCE, [0]], [TARGET, [0]],
            smoothing=0.3, shape=(2, 4, 3 + null), null=null,
        )  # fmt: skip
        torch.testing.assert_close(scores.exp()[0].sum(-1), torch.ones(4))
        members = [0, -1] if null else [0]
        torch.testing.assert_close(scores.exp()[1, :2][:, members].sum(-1), torch.ones(2))


@pytest.mark.parametrize("prior", [{"null": True}, {"kind": "jump", "null": True}, {"kind": "dense"}])
def test_q_from_links_is_used_as_it_is(prior):
    model = build("word+state", prior)
    batch = pair_batch(*PAIRS)
    null = bool(prior.get("null"))
    words = [[*range(len(row))] for row in PAIRS[0]], [[*range(len(row))] for row in PAIRS[1]]
    shape = (*batch.target.shape, batch.source.shape[1] + null)
    external = external_scores([LINKS] * 3, *words, smoothing=0.1, shape=shape, null=null)
    latent = model.latent(dataclasses.replace(batch, external=external))
    torch.testing.assert_close(latent.inferred.mean[0, :3], external.exp()[0, :3].double())
    estimate = OBJECTIVES["variational-enum"]()(latent)
    assert (estimate.value.sum(1) <= OBJECTIVES["marginal"]()(latent).value.sum(1)).all()
    estimate.surrogate.sum().backward()


def test_a_monotone_prior_refuses_q_from_links():
    changes = ["prior.kind=monotone", "inference.kind=external", "objective.name=variational-enum"]
    with pytest.raises(InputError, match="never goes back"):
        recipes.load("nmt/demo", NMTConfig, changes)
    assert recipes.load("nmt/demo", NMTConfig, ["prior.kind=jump", *changes[1:]]).prior.kind == "jump"
