"""The translation model on a transformer: likelihood, tied embeddings, padding, beam search and its recipe."""

import math

import pytest
import torch

from latentalign import OBJECTIVES, parse_predict
from latentalign import config as recipes
from latentalign.errors import InputError
from latentalign.search import BeamSearch
from latentalign.tasks.nmt.decode import Translator, pair_batch
from latentalign.tasks.nmt.inference_network import InferenceConfig
from latentalign.tasks.nmt.model import ModelConfig, TranslationModel
from latentalign.tasks.nmt.prior import PriorConfig
from latentalign.tasks.nmt.recipe import NMTConfig
from latentalign.tasks.nmt.tokenizer import BOS, EOS, PAD

PAIRS = ([[5, 6, 7], [8, 9, 10, 11, 12], [4]], [[5, 6], [9, 9, 9, 9], [4, 5, 6]])
SIZES = {"backbone": "transformer", "embedding": 8, "heads": 2, "feedforward": 12, "dropout": 0.0}
KINDS = [
    {"emission_state": state, "positions": positions}
    for state in ("full", "lagged")
    for positions in ("rotary", "learned")
]
OTHERS = [
    {"emission": "word"},
    {"emission": "word+state", "null": True},
    {"emission_bottleneck": 3},
    {"cross_layers": 1},
    {"feed_expected": True, "null": True},
    {"feed_expected": True, "emission_state": "lagged"},
]


def build(objective=None, inference=True, *, null=False, **sizes):
    torch.manual_seed(0)
    return TranslationModel(
        ModelConfig(**{**SIZES, **sizes}),
        source_size=20,
        target_size=20 if sizes.get("joint_embedding") else 15,
        distribution=OBJECTIVES[objective]().distribution if objective else "categorical",
        prior=PriorConfig(null=null),
        inference=InferenceConfig(layers=1, size=6) if inference else None,
    )


@pytest.fixture(params=KINDS, ids=lambda kind: " ".join(kind.values()))
def model(request):
    return build(**request.param).double().eval()


@pytest.fixture(params=[*KINDS, *OTHERS], ids=lambda kind: " ".join(map(str, kind.values())))
def any_model(request):
    return build(**request.param).double().eval()


def test_likelihood_equals_a_loop_over_words_and_members(model):
    exact = OBJECTIVES["marginal"]()(model.latent(pair_batch(*PAIRS))).value
    for row, (source, target) in enumerate(zip(*PAIRS, strict=True)):
        mask = torch.ones(1, len(source)).bool()
        memory, _ = model.encode(torch.tensor([source]), mask)
        state, projected = model.decoder.start(1, memory), model.decoder.project(memory)
        for position, (previous, word) in enumerate(zip([BOS, *target], [*target, EOS], strict=True)):
            words = model.target_embedding(torch.tensor([previous]))
            query, scores, state = model.decoder.step(words, state, memory, projected, mask=mask)
            prior = scores.softmax(-1)[0]
            probability = sum(
                prior[i] * model.head(query, memory[:, i]).softmax(-1)[0, word] for i in range(len(source))
            )
            torch.testing.assert_close(exact[row, position], probability.log(), rtol=1e-10, atol=1e-10)
        assert (exact[row, len(target) + 1 :] == 0).all()


def test_neither_p_nor_q_depends_on_the_neighbours(any_model):
    model = any_model
    together = model.latent(pair_batch(*PAIRS))
    for row, (source, target) in enumerate(zip(*PAIRS, strict=True)):
        alone = model.latent(pair_batch([source], [target]))
        members = [*range(len(source)), *([5] if model.has_null else [])]  # NULL is the last member
        cut = (row, slice(0, len(target) + 1), members)
        for a, b in ((together.prior, alone.prior), (together.inferred, alone.inferred)):
            torch.testing.assert_close(a.mean[cut], b.mean[0], rtol=1e-12, atol=1e-12)


def test_the_embedding_of_padding_never_matters(model):
    batch = pair_batch(*PAIRS)
    before = OBJECTIVES["marginal"]()(model.latent(batch)).value
    with torch.no_grad():
        model.source_embedding.weight[PAD] = math.nan
    after = OBJECTIVES["marginal"]()(model.latent(batch)).value
    assert torch.equal(before, after)
    after.sum().backward()
    assert (model.source_embedding.weight.grad[PAD] == 0).all()


@pytest.mark.parametrize("fed", [False, True])
@pytest.mark.parametrize("state", ["full", "lagged"])
@pytest.mark.parametrize("name", list(OBJECTIVES))
def test_every_objective_has_a_gradient_for_every_parameter_it_needs(name, state, fed):
    objective = OBJECTIVES[name]()
    sizes = {"emission_state": state, "feed_expected": fed, "emission_bottleneck": 3, "emission_drop": 0.3}
    m = build(name, objective.needs_inferred, **sizes)
    objective(m.latent(pair_batch(*PAIRS))).surrogate.sum().backward()
    for parameter_name, parameter in m.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name


@pytest.mark.parametrize("joint", [False, True])
def test_the_output_layer_is_the_target_embedding(joint):
    m = build(joint_embedding=joint)
    assert m.head.output.weight is m.target_embedding.weight
    assert (m.source_embedding is m.target_embedding) == joint
    other = build(joint_embedding=joint)
    torch.nn.init.zeros_(other.target_embedding.weight)
    other.load_state_dict(m.state_dict())
    assert other.head.output.weight is other.target_embedding.weight
    assert torch.equal(other.target_embedding.weight, m.target_embedding.weight)


def test_the_uniform_initialisation_of_recurrent_models_touches_nothing():
    m = build(embedding=32)
    norms = [p for n, p in m.named_parameters() if "norm.weight" in n]
    assert len(norms) > 4
    assert all((p == 1).all() for p in norms)
    assert 0.15 < m.target_embedding.weight.std() < 0.21  # 32 ** -0.5


class WithoutCache:
    """A step that computes the whole prefix of every hypothesis again."""

    def __init__(self, model, predict, sources):
        self.model, self.predict, self.sources = model, predict, sources

    def start(self):
        n = len(self.sources)
        return {"history": torch.zeros(n, 0, dtype=torch.long), "sentence": torch.arange(n)}

    def __call__(self, tokens, state):
        history = torch.cat([state["history"], tokens.unsqueeze(1)], 1)
        words = history[:, 1:].tolist()
        batch = pair_batch([self.sources[i] for i in state["sentence"].tolist()], words)
        choice = self.model(batch)
        log_probs = choice.predict(self.predict)[:, -1]
        return log_probs, {"history": history, "sentence": state["sentence"]}


@pytest.mark.parametrize("how", ["exact", "soft", "kmax:2"])
def test_the_cache_of_beam_search_changes_no_translation(any_model, how):
    model = any_model
    search, predict = BeamSearch(beam=4, nbest=3, max_length=9), parse_predict(how)
    found = Translator(model, search, predict)(PAIRS[0])
    slow = WithoutCache(model, predict, PAIRS[0])
    lengths = torch.tensor([len(s) for s in PAIRS[0]])
    expected = search(slow, slow.start(), source_lengths=lengths, bos=BOS, eos=EOS, pad=PAD)
    for a, b in zip(found, expected, strict=True):
        assert [h.tokens for h in a] == [h.tokens for h in b]
        assert [h.log_prob for h in a] == pytest.approx([h.log_prob for h in b], abs=1e-10)


@pytest.mark.parametrize("how", ["exact", "soft", "certified:0.01"])
def test_the_size_of_a_batch_never_matters_in_beam_search(model, how):
    translate = Translator(model, BeamSearch(beam=3, nbest=2, max_length=9), parse_predict(how))
    together = translate(PAIRS[0])
    for alone, other in zip((translate([s])[0] for s in PAIRS[0]), together, strict=True):
        assert [h.tokens for h in alone] == [h.tokens for h in other]
        if how != "certified:0.01":  # which members are left out may depend on the batch
            assert [h.log_prob for h in alone] == pytest.approx([h.log_prob for h in other], abs=1e-12)


def test_soft_attention_is_one_more_attention_of_a_plain_transformer(model):
    batch = pair_batch(*PAIRS)
    latent = model.latent(batch)
    context = latent.prior.mean @ latent.memory.squeeze(1)
    logits = model.head(latent.query, context)
    expected = logits.log_softmax(-1).gather(-1, batch.target.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(
        OBJECTIVES["soft"]()(latent).value, expected.masked_fill(~batch.target_mask, 0.0)
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["model.encoder_size=64"], 'model.encoder_size has no effect if model.backbone is "transformer"'),
        (["model.init=0.2"], "model.init has no effect"),
        (["model.heads=3"], "cannot be divided among 3 heads"),
        (["model.embedding=12", "model.heads=4"], "even size"),
        (["model.emission_state=full", "model.lagged_layers=3"], "lagged_layers needs model.emission_state"),
        (
            ["model.backbone=lstm", "model.emission_state=full", "model.feed_expected=true"],
            "model.feed_expected has no",
        ),
        (["model.cross_layers=3"], "model.cross_layers is larger than model.decoder_layers"),
        (["model.backbone=lstm"], 'model.emission_state has no effect if model.backbone is "lstm"'),
        (["model.backbone=gru"], "backbone"),
        (["model.attention=scaled-dit"], "did you mean 'scaled-dot'"),
        (["training.schedule=cosine"], "needs training.decay_steps"),
        (["training.schedule=linear", "training.decay_steps=100"], "larger than training.warmup_steps"),
        (["training.decay_steps=100"], "decay_steps needs training.schedule"),
        (["training.decay_always=2"], "training.decay_always has no effect"),
    ],
)
def test_recipes_that_cannot_work_are_refused_by_name(changes, message):
    with pytest.raises(InputError, match=message):
        recipes.load("nmt/demo-transformer", NMTConfig, changes)


def test_a_key_of_a_transformer_replaces_the_sizes_of_lstms():
    config = recipes.load("nmt/spelling", NMTConfig, ["model.backbone=transformer", "model.heads=8"]).model
    assert (config.backbone, config.heads, config.embedding, config.encoder_size) == (
        "transformer",
        8,
        64,
        512,
    )
    with pytest.raises(InputError, match=r'encoder_size has no effect if model\.backbone is "transformer"'):
        recipes.load("nmt/spelling", NMTConfig, ["model.backbone=transformer"])


def test_a_complete_recipe_says_what_a_short_one_means(tmp_path):
    config = recipes.load("nmt/demo-transformer", NMTConfig)
    assert config.model.attention == "scaled-dot"
    assert config.inference.size == 64
    path = tmp_path / "complete.toml"
    path.write_text(recipes.dump(config))
    assert recipes.load(path, NMTConfig) == config
    lstm = recipes.load("nmt/demo", NMTConfig)
    assert (lstm.model.backbone, lstm.model.attention) == ("lstm", "mlp")
