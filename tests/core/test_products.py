"""Products by oneDNN: equal to those of MKL, and asked for only where that is possible and faster."""

import platform

import pytest
import torch
import torch.nn.functional as F

from latentalign.bench.counting import count_operations
from latentalign.core import products
from latentalign.core.linear import Linear, linear
from latentalign.core.products import (
    SMALLEST,
    add_product_of_rows,
    add_product_over_rows,
    grain,
    onednn_is_faster,
    product,
    product_of_rows,
    product_over_rows,
    suits_onednn,
)

ROWS = (0, 1, 7, 8, 9, 63, 64, 65, 100, 127, 128, 255, 257, 511, 700)
NARROW, WIDE = 48, 800

needs_onednn = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.mkldnn, "_linear_pointwise"),
    reason="this build of PyTorch has no oneDNN",
)


@pytest.fixture(params=["MKL", pytest.param("oneDNN", marks=needs_onednn)])
def library(request, monkeypatch):
    """Every product by one library, however small; the number of times that oneDNN was asked."""
    asked = []
    ask = products.ask_onednn
    monkeypatch.setattr(products, "SMALLEST", 0)
    monkeypatch.setattr(products, "onednn_is_faster", lambda: request.param == "oneDNN")
    monkeypatch.setattr(products, "ask_onednn", lambda *a: asked.append(1) or ask(*a))
    yield request.param
    assert bool(asked) == (request.param == "oneDNN")


def close(found, expected):
    torch.testing.assert_close(found, expected.float(), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("inner", "outer"), [(NARROW, WIDE), (WIDE, NARROW)])
@pytest.mark.parametrize("biased", [False, True])
def test_any_number_of_rows(library, inner, outer, biased):
    for rows in ROWS:
        left, right = torch.randn(rows, inner), torch.randn(outer, inner).t()
        bias = torch.randn(outer) if biased else None
        expected = left.double() @ right.double() + (0 if bias is None else bias.double())
        close(product(left, right, bias), expected)


@pytest.mark.parametrize(("inner", "outer"), [(NARROW, WIDE), (WIDE, NARROW)])
def test_sum_over_any_number_of_rows(library, inner, outer):
    for rows in ROWS:
        left, right = torch.randn(rows, inner), torch.randn(rows, outer)
        expected = left.double().t() @ right.double()
        close(product_over_rows(left, right), expected)
        total = torch.randn(inner, outer)
        expected += total.double()
        add_product_over_rows(total, left, right)
        close(total, expected)


def test_some_rows_of_a_buffer(library):
    left, right = torch.randn(100, NARROW), torch.randn(NARROW, WIDE)
    for start, stop in ((0, 100), (0, 1), (3, 20), (90, 99), (92, 100), (5, 5)):
        rows, total = slice(start, stop), torch.randn(stop - start, WIDE)
        close(product_of_rows(left, rows, right), left[rows].double() @ right.double())
        expected = total.double() + left[rows].double() @ right.double()
        add_product_of_rows(total, left, rows, right)
        close(total, expected)


def test_rows_that_follow_do_not_matter(library):
    left, right = torch.randn(24, NARROW), torch.randn(NARROW, WIDE)
    clean = product_of_rows(left, slice(0, 17), right)
    left[17:] = torch.nan
    assert torch.equal(product_of_rows(left, slice(0, 17), right), clean)


@pytest.mark.parametrize("shape", [(70, NARROW), (2, 35, NARROW), (5, 2, 7, NARROW)])
@pytest.mark.parametrize("biased", [False, True])
def test_linear_layer_and_its_gradients(library, shape, biased):
    layer = Linear(NARROW, WIDE, bias=biased)
    inputs = [torch.randn(shape, requires_grad=True), *layer.parameters()]
    weigh = torch.randn(*shape[:-1], WIDE)
    found = layer(inputs[0])
    wide = [x.detach().double().requires_grad_() for x in inputs]
    expected = F.linear(*wide)
    close(found, expected)
    gradients = torch.autograd.grad((found * weigh).sum(), inputs)
    for mine, exact in zip(gradients, torch.autograd.grad((expected * weigh).sum(), wide), strict=True):
        close(mine, exact)
    with torch.no_grad():
        close(layer(inputs[0]), expected)


def test_second_derivatives_of_a_linear_layer(library):
    x, weight = torch.randn(20, NARROW, requires_grad=True), torch.randn(WIDE, NARROW, requires_grad=True)

    def slope(x, weight):
        first = torch.autograd.grad(linear(x, weight).pow(3).sum() / 1000, x, create_graph=True)[0]
        return torch.autograd.grad(first.pow(2).sum() / 1000, [x, weight])

    wide = [t.detach().double().requires_grad_() for t in (x, weight)]
    for mine, exact in zip(slope(x, weight), slope(*wide), strict=True):
        torch.testing.assert_close(mine, exact.float(), rtol=1e-3, atol=1e-2)


def test_the_result_of_a_layer_may_be_changed_in_place(library):
    x = torch.randn(67, NARROW, requires_grad=True)
    found = Linear(NARROW, WIDE)(x)
    assert not found._is_view()
    found.add_(1).sum().backward()
    assert x.grad is not None


@needs_onednn
def test_every_product_is_counted(monkeypatch):
    monkeypatch.setattr(products, "onednn_is_faster", lambda: True)
    left, right = torch.randn(64, 256), torch.randn(256, 512)
    with count_operations() as count:
        product(left, right)
        product_over_rows(left, torch.randn(64, 512))
    assert count.operations == 2 * 2 * 64 * 256 * 512


class Special(torch.Tensor):
    pass


LARGE = torch.zeros(1024, 1024)


@pytest.mark.parametrize(
    "tensor",
    [LARGE.double(), LARGE.half(), LARGE.to("meta"), LARGE.as_subclass(Special), LARGE[:1, :1], LARGE[0]],
)
def test_other_tensors_are_left_to_pytorch(monkeypatch, tensor):
    monkeypatch.setattr(products, "onednn_is_faster", lambda: True)
    assert suits_onednn(LARGE, LARGE)
    assert not suits_onednn(tensor, tensor)


def test_padded_rows_are_left_to_pytorch(monkeypatch):
    """oneDNN takes seconds for a factor on the right with gaps in its memory."""
    monkeypatch.setattr(products, "onednn_is_faster", lambda: True)
    padded = torch.zeros(1024, 1030)[:, :1024]
    assert suits_onednn(padded, LARGE)
    assert not suits_onednn(LARGE, padded)
    assert suits_onednn(LARGE, LARGE.t())


def test_switch_of_pytorch_is_respected(monkeypatch):
    monkeypatch.setattr(products, "onednn_is_faster", lambda: True)
    was = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.set_flags(_enabled=False)
    try:
        assert not suits_onednn(LARGE, LARGE)
    finally:
        torch.backends.mkldnn.set_flags(_enabled=was)


def test_derivatives_are_never_lost(monkeypatch):
    monkeypatch.setattr(products, "onednn_is_faster", lambda: True)
    asked = LARGE.clone().requires_grad_()
    assert product(asked, LARGE).requires_grad
    assert product_over_rows(LARGE, asked).requires_grad


@pytest.mark.parametrize(
    ("capability", "facts", "faster"),
    [
        ("AVX512", "vendor_id\t: AuthenticAMD", True),
        ("AVX512", "vendor_id\t: GenuineIntel", False),
        ("AVX2", "vendor_id\t: AuthenticAMD", False),
    ],
)
@needs_onednn
def test_library_is_chosen_by_the_processor(monkeypatch, tmp_path, capability, facts, faster):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    (tmp_path / "cpuinfo").write_text(facts)
    monkeypatch.setattr(products, "CPU_FACTS", tmp_path / "cpuinfo")
    assert onednn_is_faster.__wrapped__() == faster


def test_system_without_a_list_of_processors(monkeypatch, tmp_path):
    monkeypatch.setattr(products, "CPU_FACTS", tmp_path / "absent")
    monkeypatch.setattr(platform, "processor", lambda: "Intel64 Family 6, GenuineIntel")
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    assert not onednn_is_faster.__wrapped__()


def fail(*_):
    raise RuntimeError("no such operator")


def test_build_without_the_operator(monkeypatch, tmp_path):
    monkeypatch.setattr(products, "CPU_FACTS", tmp_path / "absent")
    monkeypatch.setattr(platform, "processor", lambda: "AuthenticAMD")
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    monkeypatch.setattr(products, "ask_onednn", fail)
    assert not onednn_is_faster.__wrapped__()


def test_few_sizes_are_prepared():
    sizes = {rows + -rows % grain(rows) for rows in range(1, 2049)}
    assert len(sizes) <= 8 * 9
    assert all(grain(rows) <= max(8, rows / 8) for rows in range(1, 2049))
    assert SMALLEST > 0
