"""Dropout from sixteen random bits an element."""

import pytest
import torch

from latentalign.nn.dropout import LEVELS, Dropout

N = 400_000


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.77])
def test_share_and_scale(p: float) -> None:
    torch.manual_seed(0)
    out = Dropout(p)(torch.ones(N))
    dropped = (out == 0).double().mean().item()
    assert abs(dropped - p) < 5 * (p * (1 - p) / N) ** 0.5
    kept = out[out != 0].unique()
    assert len(kept) == 1
    exact = round(p * LEVELS) / LEVELS
    assert kept.item() == pytest.approx(1 / (1 - exact), rel=1e-6)


def test_elements_are_independent() -> None:
    """Elements that share a random word, and those of two calls."""
    torch.manual_seed(1)
    layer = Dropout(0.3)
    first, second = layer(torch.ones(N)) == 0, layer(torch.ones(N)) == 0
    expected, slack = 0.09, 5 * (0.09 * 0.91 / N) ** 0.5
    for lag in range(1, 9):
        both = (first[lag:] & first[:-lag]).double().mean().item()
        assert abs(both - expected) < 2 * slack, lag
    assert abs((first & second).double().mean().item() - expected) < slack
    for lane in range(4):  # every lane of a word drops as often
        assert abs(first[lane::4].double().mean().item() - 0.3) < 10 * (0.21 / N) ** 0.5


@pytest.mark.parametrize("shape", [(), (1,), (3,), (5, 7), (0, 4), (2, 3, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_any_shape_and_precision(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    out = Dropout(0.5)(torch.ones(shape, dtype=dtype))
    assert out.shape == shape
    assert out.dtype == dtype
    assert set(out.flatten().tolist()) <= {0.0, 2.0}


def test_gradient_is_the_noise() -> None:
    x = torch.randn(50, 11, dtype=torch.float64, requires_grad=True)
    out = Dropout(0.4)(x)
    out.sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad * x.detach(), out.detach())


def test_what_it_leaves_alone() -> None:
    x = torch.randn(40)
    assert torch.equal(Dropout(0.5).eval()(x), x)
    assert torch.equal(Dropout(0.0)(x), x)
    assert torch.equal(Dropout(1.0)(x), torch.zeros(40))


def test_the_seed_decides() -> None:
    layer, x = Dropout(0.5), torch.ones(64)
    torch.manual_seed(3)
    first = layer(x)
    assert not torch.equal(layer(x), first)
    torch.manual_seed(3)
    assert torch.equal(layer(x), first)
