"""BLEU and chrF follow the recipe."""

import sacrebleu

from latentalign.tasks.nmt.recipe import NMTConfig
from latentalign.tasks.nmt.text_scores import bleu_signature, bleu_statistics, text_scores

OUTPUTS, REFERENCES = ["A DOG runs ."], ["a dog runs ."]


def recipe(*, bleu_tokenize="13a", **tokenizer):
    splits = {name: {"source": "a", "target": "b"} for name in ("train", "valid", "test")}
    return NMTConfig(data={**splits, "bleu_tokenize": bleu_tokenize}, tokenizer=tokenizer)


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


def test_bleu_is_tokenized_as_the_recipe_says():
    config = recipe(bleu_tokenize="char")
    assert "tok:char" in bleu_signature(config)
    assert "tok:char" in text_scores(config, OUTPUTS, REFERENCES)["bleu_signature"]
    assert bleu_signature(config) == text_scores(config, OUTPUTS, REFERENCES)["bleu_signature"]


def test_tokenized_text_is_scored_without_a_warning(caplog):
    text_scores(recipe(), ["a dog runs ."] * 200, ["a dog runs ."] * 200)
    assert not caplog.records


def test_bleu_of_a_corpus_follows_from_the_statistics_of_its_sentences():
    outputs = ["a dog runs in the park .", "the cat sleeps", "two men"]
    references = ["a dog runs in the green park .", "a cat sleeps here", "two women"]
    rows = bleu_statistics(recipe(), outputs, references)
    whole = sacrebleu.BLEU().corpus_score(outputs, [references])
    total = [sum(column) for column in zip(*rows, strict=True)]
    assert total == [whole.sys_len, whole.ref_len, *whole.counts, *whole.totals]
    assert rows[2] == [2, 2, 1, 0, 0, 0, 2, 1, 0, 0]


def test_tokenised_text_also_has_the_bleu_of_sacrebleus_own_tokenizer():
    outputs, references = ["it 's either/or , i say ."], ["it 's either/or , we say ."]
    found = text_scores(recipe(bleu_tokenize="none"), outputs, references)
    assert found["bleu"] == sacrebleu.corpus_bleu(outputs, [references], tokenize="none", force=True).score
    assert found["bleu_13a"] == sacrebleu.corpus_bleu(outputs, [references], tokenize="13a", force=True).score
    assert found["bleu"] != found["bleu_13a"]
    assert "bleu_13a" not in text_scores(recipe(), outputs, references)  # it is `bleu` itself
