"""`fit` learns alignments of a frozen model, or trains everything; `align` gives links of words."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from latentalign import wrap
from latentalign.errors import DivergedError, InputError
from latentalign.wrapping.text import Reader, numbers_by_decoding, numbers_by_place
from support.wrapping import END, PAIRS, TorchTranslator, make_model, make_tokenizer, shake, toy_pairs

TRAIN, TEST = toy_pairs(400), toy_pairs(50, seed=1)
SENTENCES = [("der alte Hund schläft", "the old dog sleeps"), ("die Katze schläft", "the cat sleeps")]


def right_links(pairs):
    """The links of mirrored sentences; id 4 has none."""
    found = []
    for source, target in pairs:
        kept = [(j, token) for j, token in enumerate(target) if token != 4]
        found.append(frozenset((source.index(token - 8), j) for j, token in kept))
    return found


@pytest.fixture(scope="module")
def fitted():
    model = make_model("torch")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    wrapped = wrap(model, hidden=32)
    result = wrapped.fit(TRAIN, epochs=10, batch_size=20)
    return wrapped, result, before


@pytest.mark.slow
def test_align_mode_finds_the_links_of_a_dictionary_in_mirrored_order(fitted):
    wrapped, result, _ = fitted
    assert result.losses[-1] < result.losses[0] / 2
    found, gold = wrapped.align(TEST), right_links(TEST)
    same = sum(len(a & b) for a, b in zip(found.links, gold, strict=True))
    assert same >= 0.97 * sum(map(len, gold))
    assert sum(map(len, found.links)) <= 1.03 * sum(map(len, gold))


@pytest.mark.slow
def test_outputs_without_a_source_word_come_from_null(fitted):
    wrapped, _, _ = fitted
    found = wrapped.align(TEST)
    null = {4: [], 0: []}
    for (_, target), alignment in zip(TEST, found.alignments, strict=True):
        for j, token in enumerate(target):
            null[4 if token == 4 else 0].append(alignment.null[j])
    assert np.mean(null[4]) > 0.7
    assert np.mean(null[0]) < 0.1


@pytest.mark.slow
def test_probabilities_of_a_word_and_null_sum_to_one(fitted):
    for alignment in fitted[0].align(TEST).alignments:
        assert alignment.probability.sum(1) + alignment.null == pytest.approx(1.0)


@pytest.mark.slow
def test_align_mode_freezes_the_model_and_its_likelihood(fitted):
    wrapped, _, before = fitted
    torch.testing.assert_close(dict(wrapped.model.state_dict()), before, rtol=0, atol=0)
    fresh = wrap(wrapped.model).log_likelihoods(PAIRS)
    torch.testing.assert_close(wrapped.log_likelihoods(PAIRS), fresh, rtol=0, atol=0)


@pytest.mark.slow
def test_fit_depends_on_the_seed_alone():
    results = []
    for noise, seed in ((0, 0), (1, 0), (1, 5)):
        torch.manual_seed(noise)
        wrapped = wrap(make_model("torch"), hidden=8)
        torch.manual_seed(noise)
        state = torch.get_rng_state()
        wrapped.fit(TRAIN[:40], epochs=2, batch_size=10, seed=seed)
        wrapped.fit(TRAIN[:40], "translate", epochs=1, batch_size=10, seed=seed)
        assert torch.equal(torch.get_rng_state(), state)
        results.append(torch.cat([tensor.flatten() for tensor in wrapped.tensors().values()]))
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("objective", "options"),
    [
        ("marginal", {}),
        ("marginal", {"tolerance": 0.0}),
        ("variational-sample", {}),
        ("variational-enum", {}),
    ],
)
def test_translate_mode_trains_everything(objective, options):
    wrapped = wrap(make_model("torch"), hidden=16)
    before = {name: p.clone() for name, p in wrapped.model.named_parameters()}
    losses = wrapped.fit(
        TRAIN[:100], "translate", objective=objective, epochs=6, batch_size=20, learning_rate=3e-3, **options
    ).losses
    assert losses[-1] < losses[0] - 0.3
    assert all(not torch.equal(p, before[name]) for name, p in wrapped.model.named_parameters())
    assert wrapped.head.from_memory.weight.any()
    assert not any(part.training for part in wrapped.model.modules())
    found = wrapped.align(TEST[:3])
    assert found.alignments[0].probability.sum(1) + found.alignments[0].null == pytest.approx(1.0)


def test_bad_input_is_named():
    wrapped = wrap(make_model("torch"))
    with pytest.raises(InputError, match="call fit"):
        wrapped.align(PAIRS)
    with pytest.raises(InputError, match="pair 2: expected \\(source, target\\)"):
        wrapped.fit([PAIRS[0], "text"])
    with pytest.raises(InputError, match="target sentence 1: ids must be from 0 to 23"):
        wrapped.fit([([5], [99])])
    with pytest.raises(InputError, match="some source sentences are text"):
        wrapped.fit([("a", [5]), ([5], [5])])
    with pytest.raises(InputError, match=r"latentalign.wrap\(model, tokenizer=tokenizer\)"):
        wrapped.fit([("a", "b")])
    with pytest.raises(InputError, match="source sentence 1 has no ids"):
        wrapped.fit([([], [5])])
    with pytest.raises(InputError, match="no pair to learn from"):
        wrapped.fit([])
    with pytest.raises(InputError, match="mode must be one of align, translate"):
        wrapped.fit(PAIRS, "both")
    with pytest.raises(InputError, match="epochs must be a whole number"):
        wrapped.fit(PAIRS, epochs=-1)
    with pytest.raises(InputError, match="learning_rate must be above 0"):
        wrapped.fit(PAIRS, learning_rate=-1.0)
    with pytest.raises(InputError, match="objective of its own"):
        wrapped.fit(PAIRS, objective="variational-sample")
    with pytest.raises(InputError, match="dirichlet alignments do not fit"):
        wrapped.fit(PAIRS, "translate", objective="relaxed")
    with pytest.raises(DivergedError, match="lower learning_rate"):
        wrapped.fit(PAIRS, "translate", epochs=30, learning_rate=1e30)


def test_models_that_cannot_be_wrapped_are_refused():
    with pytest.raises(InputError, match=r"Linear cannot be wrapped.*lacks output: .*; start: "):
        wrap(torch.nn.Linear(2, 2))
    with pytest.raises(InputError, match="needs a torch module"):
        wrap("Helsinki-NLP/opus-mt-de-en")
    model = make_model("torch")
    model.output = torch.nn.Sequential(model.output)
    with pytest.raises(InputError, match=r"output must be a torch.nn.Linear, got a Sequential"):
        wrap(model)


def test_an_encoder_that_cuts_padding_off_is_refused(monkeypatch):
    wrapped = wrap(make_model("torch"))
    encode = TorchTranslator.encode
    monkeypatch.setattr(TorchTranslator, "encode", lambda *a, **k: encode(*a, **k)[:, :1])
    with pytest.raises(InputError, match="encode must give one state for every token"):
        wrapped.log_likelihoods(PAIRS)


def test_other_models_of_transformers_are_refused():
    transformers = pytest.importorskip("transformers", reason="pip install 'latentalign[hf]'")
    sizes = {"vocab_size": 9, "n_embd": 8, "n_layer": 1, "n_head": 1, "n_positions": 8}
    with pytest.raises(InputError, match="GPT2LMHeadModel has no encoder and decoder"):
        wrap(transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes)))
    with pytest.raises(InputError, match="no linear output layer"):
        wrap(make_model("marian").model)
    model = make_model("t5")
    model.config.decoder_start_token_id = None
    with pytest.raises(InputError, match=r"set model.config.decoder_start_token_id"):
        wrap(model)


def test_a_model_whose_logits_are_not_those_of_its_output_layer_is_refused():
    pytest.importorskip("transformers", reason="pip install 'latentalign[hf]'")
    model = make_model("bart")
    model.lm_head.register_forward_hook(lambda module, args, logits: 3 * logits)
    with pytest.raises(InputError, match="its log-probabilities differ"):
        wrap(model)


def test_sentences_that_are_too_long_are_refused():
    pytest.importorskip("transformers", reason="pip install 'latentalign[hf]'")
    wrapped = wrap(make_model("marian"))
    with pytest.raises(InputError, match="source sentence 2 has 33 tokens, but the model reads at most 32"):
        wrapped.fit([([5], [6]), ([5] * 33, [6])])


@pytest.fixture
def text_model():
    pytest.importorskip("transformers", reason="pip install 'latentalign[hf]'")
    tokenizer = make_tokenizer([line for pair in SENTENCES for line in pair], size=40)
    return shake(wrap(make_model("marian", len(tokenizer)), tokenizer=tokenizer), 0.3)


def test_text_is_aligned_by_words(text_model):
    for mode in ("align", "translate"):
        text_model.mode = mode
        found = text_model.align([*SENTENCES, ("", "the cat"), ("die Katze", "")])
        shapes = [alignment.probability.shape for alignment in found.alignments]
        assert shapes == [(4, 4), (3, 3), (2, 0), (0, 2)]
        assert [len(w.text) for w in found.words[0][0]] == [3, 4, 4, 7]
        assert len(found.links) == 4
        assert found.links[2:] == [frozenset(), frozenset()]
        for alignment in found.alignments[:2]:
            assert alignment.probability.sum(1) + alignment.null == pytest.approx(1.0)
        assert len(list(found.records())) == 4


def test_generated_text_is_aligned_by_words(text_model):
    found = text_model.generate([s for s, _ in SENTENCES], max_new_tokens=12, return_alignments=True)
    for text, (source, target), alignment in zip(
        found.texts, found.alignments.words, found.alignments.alignments, strict=True
    ):
        assert [word.text for word in target] == text.split()
        assert alignment.probability.shape == (len(target), len(source))


def test_pieces_know_their_words(text_model):
    reader = text_model.reader
    for line in (" der alte  Hund", "Katze", "schläft die Katze "):
        (tokens,) = reader.sentences([line], "source")
        pieces = reader.tokenizer.convert_ids_to_tokens(tokens.ids)
        assert tokens.numbers[-1] == -1
        assert tokens.ids[-1] == END
        for number, word in enumerate(tokens.words):
            own = [p for p, n in zip(pieces, tokens.numbers, strict=True) if n == number]
            assert "".join(own).replace("▁", "") == word.text
    special = [token == END for token in tokens.ids]
    assert numbers_by_decoding(reader.tokenizer, tokens.ids, special)[:-1] == tokens.numbers[:-1]


def test_a_space_belongs_to_the_word_behind_it():
    (words,) = (Reader(None, 9, 1).each_a_word([5]).words,)
    assert numbers_by_place([(0, 1)], words) == [0]
    from latentalign.links.words import find_words

    assert numbers_by_place([(0, 0), (0, 2), (2, 3), (3, 5)], find_words("ab cd")) == [0, 0, 1, 1]


@pytest.mark.slow
def test_wrapping_a_torch_model_needs_no_other_package():
    code = (
        "import sys, torch, latentalign\n"
        "from support.wrapping import make_model, toy_pairs\n"
        "wrapped = latentalign.wrap(make_model('torch'))\n"
        "wrapped.fit(toy_pairs(4), epochs=1)\n"
        "assert wrapped.align(toy_pairs(4)).links\n"
        "assert not {'transformers', 'pydantic', 'rich', 'tokenizers'} & set(sys.modules)\n"
    )
    environment = {"PYTHONPATH": ":".join(path for path in sys.path if path)}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr
