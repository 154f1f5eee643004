"""The translation model against straightforward computations."""

import pytest
import torch

from latentalign import OBJECTIVES, Categorical
from latentalign import config as recipes
from latentalign.core.registry import SCORES
from latentalign.core.scores import MLPScore
from latentalign.tasks.nmt.decode import pair_batch
from latentalign.tasks.nmt.inference_network import InferenceConfig, external_scores
from latentalign.tasks.nmt.model import ModelConfig, TranslationModel
from latentalign.tasks.nmt.recipe import NMTConfig
from latentalign.tasks.nmt.tokenizer import BOS, EOS
from latentalign.training.summary import count_parameters
from support.nmt import tiny

CONFIG = ModelConfig(
    embedding=8, encoder_size=6, decoder_size=10, attention_size=7, head_size=9, dropout=0.0, init=0.5
)


def model(**options):
    torch.manual_seed(0)
    made = TranslationModel(
        CONFIG, source_size=20, target_size=15, inference=InferenceConfig(size=6), **options
    ).double()
    return made.eval()


PAIRS = ([[5, 6, 7], [8, 9, 10, 11, 12], [4]], [[5, 6], [9, 9, 9, 9], [4, 5, 6]])


def test_likelihood_equals_a_loop_over_words_and_members():
    m = model()
    latent = m.latent(pair_batch(*PAIRS))
    exact = OBJECTIVES["marginal"]()(latent).value
    for row, (source, target) in enumerate(zip(*PAIRS, strict=True)):
        mask = torch.ones(1, len(source)).bool()
        memory, _ = m.encode(torch.tensor([source]), mask)
        state = m.decoder.start(1, memory)
        projected = m.decoder.score.project(memory)
        for position, (previous, word) in enumerate(zip([BOS, *target], [*target, EOS], strict=True)):
            words = m.target_embedding(torch.tensor([previous]))
            query, scores, state = m.decoder.step(words, state, memory, projected, mask=mask)
            prior = scores.softmax(-1)[0]
            probability = sum(
                prior[i] * m.head(query, memory[:, i]).softmax(-1)[0, word] for i in range(len(source))
            )
            torch.testing.assert_close(exact[row, position], probability.log(), rtol=1e-10, atol=1e-10)
        assert (exact[row, len(target) + 1 :] == 0).all()


def test_neither_p_nor_q_depends_on_the_neighbours():
    m = model()
    together = m.latent(pair_batch(*PAIRS))
    for row, (source, target) in enumerate(zip(*PAIRS, strict=True)):
        alone = m.latent(pair_batch([source], [target]))
        cut = (row, slice(0, len(target) + 1), slice(0, len(source)))
        for a, b in ((together.prior, alone.prior), (together.inferred, alone.inferred)):
            torch.testing.assert_close(a.mean[cut], b.mean[0], rtol=1e-12, atol=1e-12)


def test_q_sees_the_whole_target_and_p_only_what_came_before():
    m = model()
    first = m.latent(pair_batch([[5, 6, 7]], [[5, 6, 7]]))
    second = m.latent(pair_batch([[5, 6, 7]], [[5, 6, 8]]))
    assert torch.equal(first.prior.mean[0, :3], second.prior.mean[0, :3])
    assert not torch.allclose(first.inferred.mean[0, 0], second.inferred.mean[0, 0])


def test_inference_network_is_bilinear_in_its_states():
    m = model()
    batch = pair_batch(*PAIRS)
    q = m.inference
    x = q.source(m.source_embedding(batch.source), batch.source_mask)
    h = q.target(m.target_embedding(batch.target), batch.target_mask)
    latent = m.latent(batch)
    for b, (source, target) in enumerate(zip(*PAIRS, strict=True)):
        for j in range(len(target) + 1):
            scores = torch.stack(
                [h[b, j] @ (q.score.from_memory.weight @ x[b, i]) for i in range(len(source))]
            )
            torch.testing.assert_close(latent.inferred.mean[b, j, : len(source)], scores.softmax(0))


@pytest.mark.parametrize("name", list(OBJECTIVES))
def test_every_objective_has_a_gradient_for_every_parameter_it_needs(name):
    objective = OBJECTIVES[name]()
    m = TranslationModel(
        CONFIG,
        source_size=20,
        target_size=15,
        distribution=objective.distribution,
        inference=InferenceConfig(size=6) if objective.needs_inferred else None,
    )
    objective(m.latent(pair_batch(*PAIRS))).surrogate.sum().backward()
    for parameter_name, parameter in m.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name


def test_embeddings_are_shared_with_the_inference_network_and_nothing_else_is():
    m = model()
    inference = {id(p) for p in m.inference.parameters()}
    assert not inference & {id(p) for n, p in m.named_parameters() if not n.startswith("inference.")}
    counts = count_parameters(m)
    assert counts["inference"] == sum(p.numel() for p in m.inference.parameters())


def test_joint_embedding_needs_one_vocabulary():
    with pytest.raises(ValueError, match="joint"):
        TranslationModel(CONFIG.model_copy(update={"joint_embedding": True}), source_size=20, target_size=15)


def test_external_q_spreads_over_linked_pieces_and_smooths():
    scores = external_scores(
        [{(0, 0): 1.0, (1, 0): 1.0}], [[0, 0, 1, 2]], [[0, 1]], smoothing=0.2, shape=(1, 3, 4)
    )
    q = Categorical.from_scores(scores).mean[0]
    torch.testing.assert_close(q[0], torch.tensor([0.25, 0.25, 0.45, 0.05]))  # 0.4 for each word, and 0.05
    torch.testing.assert_close(q[1:], torch.full((2, 4), 0.25))


def test_every_shipped_recipe_loads(demo_files):
    names = [n for n in recipes.shipped_recipes() if n.startswith("nmt/")]
    assert {"nmt/demo", "nmt/multi30k", "nmt/iwslt14", "nmt/wmt17"} <= set(names)
    for name in names:
        recipes.load(name, NMTConfig)
    assert tiny(demo_files, "rws", "objective.n=3").objective.build().n == 3


def test_a_recipe_may_name_any_registered_score(monkeypatch):
    monkeypatch.setitem(SCORES, "wide", lambda *, query_dim, memory_dim, hidden: MLPScore(10, 12, 3 * hidden))
    wide = CONFIG.model_copy(update={"attention": ModelConfig(attention="wide").attention})
    made = TranslationModel(wide, source_size=20, target_size=15)
    assert made.decoder.score.to_score.in_features == 21
    made.latent(pair_batch(*PAIRS)).prior.mean[0, 0, 0].backward()
    assert made.decoder.score.to_score.weight.grad.abs().sum() > 0


def test_an_unknown_score_in_a_recipe_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'bilinear'"):
        ModelConfig(attention="bilinar")
