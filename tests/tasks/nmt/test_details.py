"""What pages and the server show of a chain: its posterior, NULL, and its best path with its probability."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from latentalign.tasks.nmt.align import Pair, encode_pairs
from latentalign.tasks.nmt.decode import pair_batch
from latentalign.tasks.nmt.details import describe_pairs, example_alignments, word_path
from latentalign.tasks.nmt.model import ModelConfig, TranslationModel
from latentalign.tasks.nmt.prior import PriorConfig
from latentalign.tasks.nmt.schema import AlignResponse, ExampleAlignment
from latentalign.tasks.nmt.tokenizer import Encoded

PAIRS = [("der Hund schläft im Garten .", "the dog sleeps ."), ("ein Hund", "a dog in the garden")]
SIZES = ModelConfig(
    embedding=4, encoder_layers=1, encoder_size=4, decoder_layers=1, decoder_size=5, attention_size=4,
    head_size=6, dropout=0.0, init=1.0,
)  # fmt: skip


@pytest.fixture(params=[False, True], ids=["", "NULL"])
def chained(trained, request):
    """A translator whose alignments form a chain, with random weights."""
    torch.manual_seed(3)
    words = trained.vocabulary
    prior = PriorConfig(kind="jump", widest_jump=2, null=request.param)
    model = TranslationModel(SIZES, source_size=words.source_size, target_size=words.target_size, prior=prior)
    return replace(trained, model=model.double().eval())


@pytest.mark.slow
def test_a_chain_is_described_by_its_best_path_and_the_probability_of_that_path(chained):
    for pair, record in zip(PAIRS, describe_pairs(chained, [*PAIRS], np.asarray), strict=True):
        (encoded,) = encode_pairs(chained, [pair[0]], [pair[1]])
        with torch.no_grad():
            latent = chained.model.latent(pair_batch([encoded.source.ids], [encoded.target.ids]))
            path, log_prob = latent.prior.exact_posterior(latent).best()
        null = len(encoded.source.ids)
        expected = [
            [None if z == null else z, j] for j, z in enumerate(path[0].tolist()[:-1])
        ]  # no end of sentence
        assert record["path"] == expected
        assert record["path_log_prob"] == pytest.approx(float(log_prob))
        nothing = np.array(record["null"]["posterior"]) if chained.model.has_null else 0.0
        assert record["matrices"]["posterior"].sum(1) + nothing == pytest.approx(
            np.ones(len(record["target"]))
        )


def test_what_a_chain_adds_is_documented(chained):
    record = describe_pairs(chained, PAIRS[:1], lambda matrix: matrix.round(6).tolist())[0]
    AlignResponse.model_validate({"alignments": [record]})
    assert ("null" in record) == chained.model.has_null
    for example in example_alignments(chained, "test", 2):
        ExampleAlignment.model_validate(example)


def test_independent_alignments_have_no_path(trained):
    record = describe_pairs(trained, PAIRS[:1], np.asarray)[0]
    assert not {"path", "path_log_prob", "null"} & record.keys()


def test_a_path_of_subwords_is_a_path_of_words_in_the_same_order():
    pair = Pair(Encoded([9] * 4, [0, 0, -1, 1]), Encoded([9] * 6, [0, 0, 1, 2, 2, -1]))
    assert word_path(pair, [0, 1, None, 3, 2, 0]) == [[0, 0], [None, 1], [1, 2], [None, 2]]
