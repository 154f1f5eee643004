"""Evaluation against brute force, and alignments on words."""

import math

import numpy as np
import pytest
import torch

from latentalign import OBJECTIVES, parse_predict
from latentalign.errors import InputError
from latentalign.reproduction import diagnosis
from latentalign.reproduction.diagnosis import gradient, gradients, with_fixed_q
from latentalign.tasks.likelihoods import compute_likelihoods
from latentalign.tasks.nmt.align import align_in_order, encode_pairs
from latentalign.tasks.nmt.data import build_cache
from latentalign.tasks.nmt.decode import pair_batch
from latentalign.tasks.nmt.details import kmax_curve
from latentalign.tasks.nmt.evaluate import evaluate, translate_split
from latentalign.tasks.nmt.task import TRANSLATION
from latentalign.tasks.nmt.tokenizer import EOS
from latentalign.tasks.nmt.translate import TranslationSettings, translate_lines
from latentalign.textfiles import read_parallel
from latentalign.training.run import Run
from support.nmt import tiny

pytestmark = pytest.mark.slow  # trains a small model first


@torch.no_grad()
def test_exact_perplexity_equals_a_loop_over_members(trained):
    split = trained.config.data.test
    corpus = build_cache(trained.vocabulary, split, trained.run.cache / "brute", max_length=None)
    total, tokens = 0.0, 0
    model = trained.model
    for i in range(len(corpus)):
        source, target = corpus.source(i).tolist(), corpus.target(i).tolist()
        latent = model.latent(pair_batch([source], [target]))
        for j, word in enumerate([*target, EOS]):
            query = latent.query[0, j : j + 1]
            probability = sum(
                float(latent.prior.mean[0, j, t])
                * float(model.head(query, latent.memory[0, 0, t : t + 1]).softmax(-1)[0, word])
                for t in range(len(source))
            )
            total += math.log(probability)
            tokens += 1
    result = evaluate(trained, "test", predict="exact")
    assert result["tokens"] == tokens
    assert result["ppl"] == pytest.approx(math.exp(-total / tokens), rel=1e-6)
    assert result["ppl_exact"] == pytest.approx(result["ppl"], rel=1e-9)
    assert result["ppl_elbo"] > result["ppl"]
    assert result["elbo_gap"] > 0
    assert result["jensen_gap"] > 0


def test_kmax_of_all_members_is_exact(trained):
    exact = evaluate(trained, "test", predict="exact")["ppl"]
    assert evaluate(trained, "test", predict="kmax:1000")["ppl"] == pytest.approx(exact, rel=1e-9)
    assert evaluate(trained, "test", predict="kmax:1")["ppl"] != pytest.approx(exact, rel=1e-3)


@torch.no_grad()
def test_the_curve_over_k_agrees_with_single_evaluations(trained):
    latent = trained.model.latent(pair_batch([[5, 6, 7, 8]], [[5, 6]]))
    curve = kmax_curve(compute_likelihoods(latent, parse_predict("exact")))
    assert curve.shape[-1] == 4
    for k in (1, 2, 4):
        torch.testing.assert_close(curve[..., k - 1], parse_predict(f"kmax:{k}").log_prob(latent))


def test_every_measurement_is_there(trained):
    outputs = translate_split(trained, "test", TranslationSettings())
    result = evaluate(trained, "test", outputs=outputs)
    for name in (
        "ppl",
        "ppl_soft",
        "ppl_kmax5",
        "bleu",
        "chrf",
        "aer_prior",
        "aer_inferred",
        "aer_posterior",
    ):
        assert isinstance(result[name], float), name
    assert "nrefs:1" in result["bleu_signature"]
    assert result["entropy_inferred"] >= 0


def test_soft_and_relaxed_runs_have_null_where_nothing_exists(demo_files, tmp_path):
    for name in ("soft", "relaxed"):
        TRANSLATION.train(
            tiny(demo_files, name, "training.max_steps=2"),
            Run(tmp_path / name),
            resume=False,
            overwrite=False,
        )
        result = evaluate(TRANSLATION.load(tmp_path / name), "test")
        assert result["bleu"] is None
        if name == "soft":
            assert result["ppl"] == pytest.approx(result["ppl_soft"], rel=1e-6)
            assert result["aer_inferred"] is None
            assert result["elbo"] is None
        else:
            assert result["ppl_exact"] is None
            assert result["aer_posterior"] is None
            assert result["predict"] == "sample:100"
            for how in ("exact", "kmax:5", "certified:0.01"):
                with pytest.raises(
                    InputError, match=r"relaxed: predicting with .* needs `(enumerate|top)`.*sample:N"
                ):
                    list(
                        translate_lines(
                            TRANSLATION.load(tmp_path / name), ["Hund"], TranslationSettings(predict=how)
                        )
                    )


@pytest.mark.parametrize("using", ["prior", "inferred", "posterior"])
def test_alignments_are_of_words_in_order_whatever_the_batch(trained, demo_files, using):
    pairs = [*read_parallel(demo_files / "test.de", demo_files / "test.en")][:12]
    pairs.insert(3, ("", "word"))
    sources, targets = [s for s, _ in pairs], [t for _, t in pairs]
    together = align_in_order(trained, encode_pairs(trained, sources, targets), using)
    for (source, target), found in zip(pairs, together, strict=True):
        (alone,) = align_in_order(trained, encode_pairs(trained, [source], [target]), using)
        np.testing.assert_allclose(found.probability, alone.probability, rtol=1e-9, atol=1e-12)
        assert found.probability.shape == (len(target.split()), len(source.split()))


def test_a_missing_split_is_named(trained):
    with pytest.raises(InputError, match="no split 'dev'"):
        evaluate(trained, "dev")


def test_what_q_learns_by_its_own_rule_is_no_bias_of_the_models_gradient(trained):
    model = trained.model
    batch = pair_batch([[5, 6, 7], [8, 9]], [[5, 6], [7]])
    free, fixed = model.latent(batch), with_fixed_q(model.latent(batch))
    assert free.inferred.log_probs.requires_grad
    assert not fixed.inferred.log_probs.requires_grad
    assert fixed.prior.log_probs.requires_grad
    torch.testing.assert_close(fixed.inferred.log_probs, free.inferred.log_probs)
    # A thousand weighted draws are nearly the exact posterior: then only q's own rule tells rws from the marginal.
    embeddings = [p for name, p in model.named_parameters() if "embed" in name]
    truth = gradient(OBJECTIVES["marginal"](), lambda: model.latent(batch), embeddings)
    torch.manual_seed(0)
    near = gradient(OBJECTIVES["rws"](n=1000), lambda: with_fixed_q(model.latent(batch)), embeddings)
    far = gradient(OBJECTIVES["rws"](n=1000), lambda: model.latent(batch), embeddings)
    assert (near - truth).norm() < 0.05 * truth.norm()
    assert (far - truth).norm() > 2 * (near - truth).norm()
    rows = {r["estimator"]: r for r in gradients(model, lambda: model.latent(batch), inferred=True, draws=8)}
    assert rows["marginal"]["bias"] == rows["variational-enum"]["bias"] == 0.0
    assert rows["variational-sample, 5 draws"]["variance"] < rows["variational-sample"]["variance"]
    assert all(r["milliseconds"] > 0 and math.isfinite(r["bias"]) for r in rows.values())


def test_estimators_are_counted_while_they_are_measured(monkeypatch):
    counted = []
    monkeypatch.setattr(diagnosis, "track", lambda items, name, **more: counted.append((name, more)) or [])
    assert gradients(torch.nn.Linear(1, 1), lambda: None, inferred=True, draws=2) == []
    assert counted == [("gradients", {"total": len(diagnosis.estimators()), "unit": "estimators"})]
