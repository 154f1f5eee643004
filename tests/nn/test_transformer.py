"""Transformer layers: one step after the other gives what all at once gives, and padding never matters."""

import math

import pytest
import torch

from latentalign.nn.heads import ResidualHead
from latentalign.nn.transformer import Attention, LayerSizes, Rotation, TransformerEncoder, key_mask
from latentalign.nn.transformer_decoder import TransformerDecoder

MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]]).bool()
WORDS = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [1, 0, 0, 0, 0]]).bool()
KINDS = [(lagged, positions) for lagged in (0, 2) for positions in ("rotary", "learned")]


def sizes(positions="rotary", **more):
    return LayerSizes(8, heads=2, inner=12, positions=positions, **more)


def decoder(lagged=0, positions="rotary", cross=None, *, fed=False, **more):
    options = {"lagged_layers": lagged, "cross_layers": cross, "feed_expected": fed}
    made = TransformerDecoder(sizes(positions, **more), 2, score="scaled-dot", **options)
    if fed:
        torch.nn.init.xavier_uniform_(made.from_found.weight)
    return made.double().eval()


def inputs():
    return torch.randn(3, 5, 8, dtype=torch.float64), torch.randn(3, 4, 8, dtype=torch.float64)


@pytest.mark.parametrize("fed", [False, True])
@pytest.mark.parametrize("cross", [None, 1])
@pytest.mark.parametrize(("lagged", "positions"), KINDS)
def test_one_step_after_the_other_gives_all_queries_and_scores(lagged, positions, cross, fed):
    d, (words, memory) = decoder(lagged, positions, cross, fed=fed), inputs()
    queries, scores = d(words, torch.ones(3, 5).bool(), memory, mask=MASK)
    state, projected = d.start(3, memory), d.project(memory)
    for t in range(5):
        query, score, state = d.step(words[:, t], state, memory, projected, mask=MASK)
        torch.testing.assert_close(query, queries[:, t], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(score, scores[:, t], rtol=1e-12, atol=1e-12)
        weight = score.masked_fill(~MASK, -math.inf).softmax(-1)
        torch.testing.assert_close(state["context"], torch.einsum("nt,ntd->nd", weight, memory))


@pytest.mark.parametrize(("lagged", "positions"), KINDS)
def test_later_words_never_matter(lagged, positions):
    d, (words, memory) = decoder(lagged, positions), inputs()
    changed = words.clone()
    changed[:, 3:] *= -1  # norms would remove a sum
    all_words = torch.ones(3, 5).bool()
    for a, b in zip(
        d(words, all_words, memory, mask=MASK), d(changed, all_words, memory, mask=MASK), strict=True
    ):
        torch.testing.assert_close(a[:, :3], b[:, :3], rtol=1e-12, atol=1e-12)
        assert not torch.allclose(a[:, 3:], b[:, 3:])


def test_only_the_lowest_layers_have_attention_to_the_source():
    layers = decoder(cross=1).stack.layer_list()
    assert [hasattr(layer, "cross_attention") for layer in layers] == [True, False]
    assert sum(p.numel() for p in decoder(cross=2).parameters()) == sum(
        p.numel() for p in decoder().parameters()
    )


@pytest.mark.parametrize("fed", [False, True])
@pytest.mark.parametrize("lagged", [0, 1])
def test_a_lagged_query_knows_the_source_one_position_later(lagged, fed):
    """The first query has seen nothing of the source, and its scores have."""
    d, (words, memory) = decoder(lagged, fed=fed), inputs()
    memory.requires_grad_()
    queries, scores = d(words, WORDS, memory, mask=MASK)
    for found, sees in ((queries[:, 0], not lagged), (queries[1, 1], True), (scores[:, 0], True)):
        (slope,) = torch.autograd.grad(found.square().sum(), memory, retain_graph=True)
        assert bool(slope.abs().sum() > 0) == sees


@pytest.mark.parametrize("lagged", [0, 1])
def test_the_expected_member_is_fed_to_its_own_query_or_to_the_next(lagged):
    d, (words, memory) = decoder(lagged, fed=True), inputs()
    queries, scores = d(words, WORDS, memory, mask=MASK)
    expected = scores.masked_fill(~MASK.unsqueeze(1), -math.inf).softmax(-1) @ memory
    plain = decoder(lagged)
    plain.load_state_dict({n: p for n, p in d.state_dict().items() if n in plain.state_dict()})
    if lagged:
        plain.stack.layer_list()[-1].look = lambda x, *_, **__: (x, expected)  # as if attention had found it
        torch.testing.assert_close(queries[WORDS], plain(words, WORDS, memory, mask=MASK)[0][WORDS])
    else:
        torch.testing.assert_close(
            queries, plain(words, WORDS, memory, mask=MASK)[0] + d.from_found(expected)
        )


@pytest.mark.parametrize("lagged", [0, 1])
@pytest.mark.parametrize("fed", [False, True])
def test_scores_learn_from_queries_only_if_the_expected_member_is_fed(lagged, fed):
    d, (words, memory) = decoder(lagged, fed=fed), inputs()
    d(words, WORDS, memory, mask=MASK)[0].square().sum().backward()
    slopes = [p.grad for p in d.score.parameters()]
    assert [slope is not None and bool(slope.abs().sum() > 0) for slope in slopes] == [fed] * len(slopes)


def test_a_full_state_is_at_first_what_it_is_without_the_expected_member():
    d = TransformerDecoder(sizes(), 2, score="scaled-dot", feed_expected=True).double().eval()
    plain, (words, memory) = decoder(), inputs()
    plain.load_state_dict({n: p for n, p in d.state_dict().items() if n in plain.state_dict()})
    torch.testing.assert_close(d(words, WORDS, memory, mask=MASK), plain(words, WORDS, memory, mask=MASK))


def test_attention_is_the_plain_formula():
    attention = Attention(8, 2).double()
    words, memory = inputs()
    projected = attention.project(memory)
    found = attention(words, projected, mask=key_mask(MASK))
    heads = []
    for h in range(2):
        part = slice(4 * h, 4 * h + 4)
        key, value = projected[..., :8][..., part], projected[..., 8:][..., part]
        scores = attention.query(words)[..., part] @ key.transpose(1, 2) / 2
        heads.append(scores.masked_fill(~MASK.unsqueeze(1), -math.inf).softmax(-1) @ value)
    torch.testing.assert_close(found, attention.output(torch.cat(heads, -1)))


def test_rotary_products_depend_on_the_distance_alone():
    x = torch.randn(1, 1, 6, 4, dtype=torch.float64)
    y = torch.randn(1, 1, 6, 4, dtype=torch.float64)
    near, far = (Rotation.of(start, 6, size=4, like=x) for start in (0, 90))
    torch.testing.assert_close(near(x) @ near(y).transpose(-1, -2), far(x) @ far(y).transpose(-1, -2))
    assert not torch.allclose(near(x) @ near(y).transpose(-1, -2), x @ y.transpose(-1, -2))


def test_learned_positions_beyond_the_last_share_it():
    encoder = TransformerEncoder(sizes("learned", max_positions=2), 1).double()
    x = torch.ones(1, 4, 8, dtype=torch.float64)
    out = encoder(x, torch.ones(1, 4).bool())
    torch.testing.assert_close(out[:, 1], out[:, 3])
    assert not torch.allclose(out[:, 0], out[:, 1])


def outputs(poison, lagged, fed):
    """Everything that encoder and decoder compute, with gradients, if padding holds something."""
    torch.manual_seed(0)
    encoder, d = TransformerEncoder(sizes(), 2).double(), decoder(lagged, fed=fed)
    words, source = inputs()
    words[~WORDS], source[~MASK] = poison, poison
    words.requires_grad_()
    source.requires_grad_()
    memory = encoder(source, MASK)
    queries, scores = d(words, WORDS, memory, mask=MASK)
    kept = [queries[WORDS], scores[WORDS.unsqueeze(2) & MASK.unsqueeze(1)]]
    leaves = [words, source, *encoder.parameters(), *d.parameters()]
    gradients = torch.autograd.grad(sum(x.square().sum() for x in kept), leaves)
    return [memory, *kept, *gradients]


@pytest.mark.parametrize("lagged", [0, 2])
@pytest.mark.parametrize("fed", [False, True])
@pytest.mark.parametrize("poison", [math.nan, math.inf, 1e30])
def test_padding_may_hold_anything_bit_for_bit(poison, lagged, fed):
    for clean, found in zip(outputs(0.0, lagged, fed), outputs(poison, lagged, fed), strict=True):
        assert torch.equal(clean, found)


def test_the_length_of_padding_changes_only_rounding():
    """Kernels of attention choose their blocks by the padded length."""
    encoder = TransformerEncoder(sizes(), 2).eval()
    x = torch.randn(1, 3, 8)
    alone = encoder(x, torch.ones(1, 3).bool())
    for longer in (4, 9, 70):
        padded = torch.cat([x, torch.full((1, longer - 3, 8), math.nan)], 1)
        found = encoder(padded, torch.arange(longer).unsqueeze(0) < 3)
        torch.testing.assert_close(found[:, :3], alone, rtol=1e-6, atol=1e-6)
        assert (found[:, 3:] == 0).all()


@pytest.mark.parametrize("fed", [False, True])
def test_an_example_without_members_stays_finite(fed):
    encoder, d = TransformerEncoder(sizes(), 1).double(), decoder(fed=fed)
    words, source = inputs()
    none = torch.zeros(3, 4).bool()
    memory = encoder(source.requires_grad_(), none)
    queries, _ = d(words, WORDS, memory, mask=none)
    queries.sum().backward()
    assert key_mask(none).all()  # some kernels of attention give NaN if everything is masked
    assert all(p.grad.isfinite().all() for p in encoder.parameters() if p.grad is not None)


def test_norms_start_as_they_are_and_residual_branches_start_small():
    encoder = TransformerEncoder(sizes(), 4)
    for name, parameter in encoder.named_parameters():
        if "norm.weight" in name:
            assert (parameter == 1).all()
        elif name.endswith("bias"):
            assert (parameter == 0).all()
    x = torch.randn(2, 4, 8)
    layer = encoder.layer_list()[0]
    change = layer.finish(layer(x, rotation=None)) - x
    assert change.square().mean() < x.square().mean()


@pytest.mark.parametrize(
    ("width", "heads", "positions", "message"),
    [(10, 4, "learned", "cannot be divided among 4 heads"), (6, 2, "rotary", "even size")],
)
def test_sizes_that_do_not_fit_are_refused(width, heads, positions, message):
    with pytest.raises(ValueError, match=message):
        LayerSizes(width, heads, 8, positions=positions)
    assert LayerSizes(6, 2, 8, positions="learned").inner == 8


def head(**options):
    return ResidualHead(6, 5, 7, hidden=6, **options).double()


def test_a_residual_head_is_its_formula():
    h, query, context = head(), torch.randn(4, 6).double(), torch.randn(4, 5).double()
    rows = h.from_query(query) + h.from_memory(context)
    normed = (rows - rows.mean(-1, keepdim=True)) / (rows.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(h(query, context), h.output(normed))


def test_a_dropped_query_is_hidden_in_training_only():
    h, query = head(query_drop=0.5), torch.randn(400, 6).double()
    part = h.query_part(query)
    hidden = (part == 0).all(-1)
    assert 140 < int(hidden.sum()) < 260
    torch.testing.assert_close(part[~hidden], h.from_query(query)[~hidden])
    h.eval()
    torch.testing.assert_close(h.query_part(query), h.from_query(query))


def test_a_bottleneck_lets_few_numbers_pass():
    query = torch.randn(50, 6).double()
    for bottleneck, rank in ((2, 2), (None, 6)):
        part = head(bottleneck=bottleneck).query_part(query)
        assert torch.linalg.matrix_rank(part - part.mean(0), rtol=1e-9) == rank
