"""BLEU and chrF follow the recipe."""

import sacrebleu

from latentalign.tasks.nmt.recipe import NMTConfig
from latentalign.tasks.nmt.text_scores import text_scores

OUTPUTS, REFERENCES = ["A DOG runs ."], ["a dog runs ."]


def recipe(**tokenizer):
    split = {"source": "a", "target": "b"}
    return NMTConfig(data={"train": split, "valid": split, "test": split}, tokenizer=tokenizer)


def test_both_scores_ignore_case_if_the_tokenizer_does():
    found = text_scores(recipe(lowercase=True), OUTPUTS, REFERENCES)
    assert (round(found["bleu"], 6), round(found["chrf"], 6)) == (100, 100)
    assert "case:lc" in found["bleu_signature"]
    assert "case:lc" in found["chrf_signature"]


def test_both_scores_mind_case_if_the_tokenizer_does():
    found = text_scores(recipe(lowercase=False), OUTPUTS, REFERENCES)
    assert found["bleu"] == sacrebleu.corpus_bleu(OUTPUTS, [REFERENCES], force=True).score < 100
    assert found["chrf"] == sacrebleu.corpus_chrf(OUTPUTS, [REFERENCES]).score < 100
    assert "case:mixed" in found["bleu_signature"]
    assert "case:mixed" in found["chrf_signature"]
