"""`generate` draws from the latent model: greedy, beam search and sampling, with alignments of the outputs."""

import itertools

import pytest
import torch

from latentalign import wrap
from latentalign.errors import InputError
from support.wrapping import END, PAD, START, make_model, shake

pytest.importorskip("transformers", reason="transformers is missing: pip install 'latentalign[hf]'")
KINDS = ("marian", "bart", "t5")
SOURCES = [[5, 6, 7, 8], [12, 6]]


@pytest.fixture(params=KINDS)
def wrapped(request):
    return shake(wrap(make_model(request.param)), 0.7)


def next_log_probs(wrapped, source, outputs):
    """log p of every next token, by a fresh forward pass over the outputs so far."""
    ids, previous = torch.tensor([source]), torch.tensor([[START, *outputs]])
    exists = torch.ones_like(ids, dtype=torch.bool)
    with torch.no_grad():
        memory = wrapped.base.encode(ids, exists=exists)
        states = wrapped.base.decode(previous, memory, exists=exists)
        return wrapped.choice_of(states, memory, exists).predict("exact")[0, -1]


def test_greedy_takes_the_most_probable_token_of_the_latent_model(wrapped):
    found = wrapped.generate(SOURCES, max_new_tokens=6, do_sample=False, num_beams=1).ids
    for source, ids in zip(SOURCES, found, strict=True):
        for place, token in enumerate(ids):
            log_probs = next_log_probs(wrapped, source, ids[:place])
            assert log_probs[token] == pytest.approx(float(log_probs.max()), abs=1e-5)


def test_a_wide_beam_finds_the_most_probable_output(wrapped):
    """With as many beams as outputs there are, the search is exhaustive."""
    vocabulary = range(wrapped.base.output.out_features)
    (found,) = wrapped.generate(
        SOURCES[:1],
        max_new_tokens=2,
        num_beams=len(vocabulary) * 3,
        do_sample=False,
        length_penalty=0.0,
        early_stopping=False,
    ).ids
    first = next_log_probs(wrapped, SOURCES[0], [])
    second = torch.stack([next_log_probs(wrapped, SOURCES[0], [token]) for token in vocabulary])
    total = first.unsqueeze(1) + second
    total[END] = float("-inf")
    both = [(float(total[a, b]), [a, b]) for a, b in itertools.product(vocabulary, repeat=2)]
    best = max([(float(first[END]), [END]), *both])
    assert found == best[1]


def test_sampling_draws_from_the_latent_model(wrapped):
    torch.manual_seed(0)
    n = 3000
    found = wrapped.generate(SOURCES[:1], max_new_tokens=1, do_sample=True, top_k=0, num_return_sequences=n)
    seen = torch.tensor([ids[0] if ids else PAD for ids in found.ids]).bincount(minlength=24) / n
    expected = next_log_probs(wrapped, SOURCES[0], []).exp()
    error = (expected * (1 - expected) / n).sqrt()
    assert ((seen - expected).abs() <= 5 * error + 1e-9).all()
    with torch.no_grad():
        own = (
            wrapped.model(input_ids=torch.tensor(SOURCES[:1]), decoder_input_ids=torch.tensor([[START]]))
            .logits[0, -1]
            .softmax(-1)
        )
    assert ((own - expected).abs() > 5 * error).any()  # the model without z would fail this test


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_wrapper_generates_what_the_model_generates(kind):
    model = make_model(kind)
    own = model.generate(torch.tensor(SOURCES[:1]), max_new_tokens=6, num_beams=3, do_sample=False)
    (found,) = wrap(model).generate(SOURCES[:1], max_new_tokens=6, num_beams=3, do_sample=False).ids
    assert own[0, 1 : 1 + len(found)].tolist() == found


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_on_either_side_gives_the_same_output(wrapped, side):
    options = {"max_new_tokens": 6, "num_beams": 2, "do_sample": False}
    expected = [wrapped.generate([source], **options).ids[0] for source in SOURCES]
    padding = [PAD] * 2
    short = [*padding, *SOURCES[1]] if side == "left" else [*SOURCES[1], *padding]
    mask = torch.tensor([[1, 1, 1, 1], [0, 0, 1, 1] if side == "left" else [1, 1, 0, 0]])
    found = wrapped.generate(torch.tensor([SOURCES[0], short]), attention_mask=mask, **options)
    assert found.ids == expected


@pytest.mark.parametrize(
    "options",
    [{}, {"num_beams": 3, "num_return_sequences": 2}, {"do_sample": True}],
    ids=["greedy", "beam", "sample"],
)
def test_alignments_belong_to_their_translations(wrapped, options):
    found = wrapped.generate(SOURCES, max_new_tokens=6, return_alignments=True, **options)
    per_source = options.get("num_return_sequences", 1)
    assert len(found.texts) == len(found.ids) == len(found.alignments.links) == 2 * per_source
    for i, (ids, (source, target)) in enumerate(zip(found.ids, found.alignments.words, strict=True)):
        assert [int(word.text) for word in source] == SOURCES[i // per_source]
        assert [int(word.text) for word in target] == [token for token in ids if token != END]
    pairs = [(SOURCES[i // per_source], ids) for i, ids in enumerate(found.ids)]
    usable = [i for i, ids in enumerate(found.ids) if ids[-1:] == [END]]
    again = wrapped.align([pairs[i] for i in usable])
    assert [found.alignments.links[i] for i in usable] == again.links


def test_generate_says_what_is_wrong(wrapped):
    with pytest.raises(InputError, match="list of sentences"):
        wrapped.generate("ein Satz")
    with pytest.raises(InputError, match="attention_mask"):
        wrapped.generate(torch.tensor(SOURCES[:1]))
    with pytest.raises(InputError, match="tokenizer"):
        wrapped.generate(["ein Satz"])
    with pytest.raises(InputError, match="Hugging Face"):
        wrap(make_model("torch")).generate(SOURCES)
    with pytest.raises(InputError, match="call fit"):
        wrap(make_model("marian")).generate(SOURCES, return_alignments=True, max_new_tokens=2)
    assert wrapped.generate([]).texts == []
