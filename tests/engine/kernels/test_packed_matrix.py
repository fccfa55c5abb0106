"""Products of the encoder kernels against their definition, on every instruction set of this processor."""

import copy
import pickle

import pytest
import torch

from saccade.engine.kernels import library, reference
from saccade.engine.kernels.matrix import MAX_INPUTS, PER_BLOCK, PackedMatrix, quantize_rows
from saccade.engine.native.reference_ops import ACTIVATIONS
from saccade.errors import UsageError

pytestmark = pytest.mark.skipif(not library.is_available(), reason=library.unavailable_reason() or "compiled")
INSTRUCTION_SETS = library.supported_instruction_sets() if library.is_available() else []
# rows, outputs, inputs: single numbers, tails of panels, blocks and tiles, rows for all threads, and no rows
SHAPES = [(1, 1, 1), (3, 7, 5), (6, 64, 64), (7, 65, 33), (12, 130, 67), (197, 70, 38), (0, 5, 4)]


@pytest.fixture(params=INSTRUCTION_SETS, autouse=True)
def instruction_set(request):
    with library.use_instruction_set(request.param):
        assert library.instruction_set() == request.param
        yield request.param


@pytest.mark.parametrize("precision", PER_BLOCK)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_product_is_its_definition(shape, precision):
    rows, outputs, inputs = shape
    x, add = torch.randn(rows, inputs), torch.randn(rows, outputs)
    matrix = PackedMatrix(torch.randn(outputs, inputs), torch.randn(outputs), precision)
    for activation in ACTIVATIONS:
        expected = reference.linear(matrix, x, activation, add)
        # products in another order, and a GELU whose error is below the rounding of int8 and bfloat16
        torch.testing.assert_close(matrix(x, activation, add), expected, rtol=1e-4, atol=1e-4)
    bare = PackedMatrix(torch.randn(outputs, inputs), None, precision)
    torch.testing.assert_close(bare(x), reference.linear(bare, x), rtol=1e-4, atol=1e-4)


def test_an_int8_product_is_a_loop_over_integers():
    x, weight = torch.randn(5, 41), torch.randn(9, 41)
    matrix = PackedMatrix(weight, None, "int8")
    found = matrix(x)
    for row, numbers in enumerate(x.tolist()):
        low, high = min(0.0, *numbers), max(0.0, *numbers)
        step = (high - low) / 255
        levels = [round(number / step) for number in numbers]
        for output, weights in enumerate(weight.tolist()):
            scale = max(map(abs, weights)) / 127
            total = sum(level * round(w / scale) for level, w in zip(levels, weights, strict=True))
            assert found[row, output].item() == pytest.approx(total * step * scale, abs=2 * step * scale * 127)


def test_a_float32_product_is_exact_where_numbers_are_small_integers():
    x, weight = torch.randint(-9, 10, (13, 129)).float(), torch.randint(-9, 10, (70, 129)).float()
    for precision in ("float32", "bfloat16"):  # 129 * 81 needs 14 bits
        assert PackedMatrix(weight, None, precision)(x).equal(x @ weight.T)


def test_rows_are_quantized_as_defined():
    x = torch.randn(11, 77) * torch.logspace(-6, 6, 11)[:, None]
    x[1], x[2], x[3] = 0.0, 5.0, -1e-7  # constant rows are exact, since the range includes zero
    found, expected = quantize_rows(x), reference.quantize_rows(x)
    for a, b in zip(found, expected, strict=True):
        assert a.to(b.dtype).equal(b)
    levels, scales, zeros = expected
    error = (levels - zeros[:, None]) * scales[:, None] - x
    assert (error.abs() <= scales[:, None] * 1.001).all()
    assert error[1:4].abs().max() < 1e-6


@pytest.mark.parametrize("precision", PER_BLOCK)
def test_a_row_that_is_not_finite_spoils_only_itself(precision):
    x = torch.randn(8, 70)
    x[2, 3], x[5, 69] = torch.nan, torch.inf
    matrix = PackedMatrix(torch.randn(66, 70).abs() + 1, None, precision)
    found, clean = matrix(x), matrix(torch.nan_to_num(x, 0.0, 0.0))
    rows = [0, 1, 3, 4, 6, 7]
    assert found[rows].equal(clean[rows])
    assert not found[2].isfinite().any()
    assert not found[5].isfinite().any()


@pytest.mark.parametrize("sign", [1, -1])
def test_sums_never_saturate(sign):
    """The worst case: all levels are at the top, and all weights as large as they can be."""
    matrix = PackedMatrix(torch.full((65, 4096), 3.0 * sign), None, "int8")
    torch.testing.assert_close(matrix(torch.full((2, 4096), 2.0)), torch.full((2, 65), sign * 3.0 * 2.0 * 4096))


@pytest.mark.parametrize("precision", PER_BLOCK)
def test_a_row_does_not_depend_on_the_others(precision):
    x, matrix = torch.randn(23, 70), PackedMatrix(torch.randn(66, 70), None, precision)
    assert torch.cat([matrix(row[None]) for row in x]).equal(matrix(x))


def test_weights_can_be_unpacked_and_copied():
    weight = torch.randn(70, 13)
    assert PackedMatrix(weight, None, "float32").unpack().equal(weight)
    assert PackedMatrix(weight, None, "bfloat16").unpack().equal(weight.bfloat16())
    matrix, x = PackedMatrix(weight, torch.randn(70), "int8"), torch.randn(3, 13)
    expected = matrix(x)
    copies = copy.deepcopy(matrix), pickle.loads(pickle.dumps(matrix))
    del matrix
    assert all(other(x).equal(expected) for other in copies)


def test_parts_of_the_sums_add_up():
    matrix = PackedMatrix(torch.randn(70, 100), None, "int8")
    parts = matrix.sum_parts([0, 28, 64, 100])
    assert matrix.sums is not None
    assert parts.sum(0).equal(matrix.sums.long())
    assert parts[1, :70].equal(matrix.unpack()[:, 28:64].sum(1))


@pytest.mark.parametrize(
    "make",
    [
        lambda: PackedMatrix(torch.randn(4, 0), None, "int8"),
        lambda: PackedMatrix(torch.randn(1, MAX_INPUTS + 1), None, "int8"),
        lambda: PackedMatrix(torch.randn(4, 6), torch.zeros(5), "float32"),
        lambda: PackedMatrix(torch.full((4, 6), torch.nan), None, "int8"),
        lambda: PackedMatrix(torch.randn(4, 6), None, "float32")(torch.randn(2, 5)),
        lambda: PackedMatrix(torch.randn(4, 6), None, "float32")(torch.randn(2, 6), "tanh"),
        lambda: PackedMatrix(torch.randn(4, 6), None, "float32")(torch.randn(2, 6), "none", torch.randn(2, 5)),
        lambda: PackedMatrix(torch.randn(4, 6), None, "float32")(torch.randn(2, 6).double()),
        lambda: PackedMatrix(torch.randn(4, 6), None, "float32")(torch.randn(2, 6, device="meta")),
    ],
)
def test_operands_that_compiled_code_could_not_stand_are_refused(make):
    with pytest.raises(ValueError, match=r"got|finite"):
        make()


def test_an_instruction_set_that_is_not_there_is_refused(monkeypatch):
    with (
        pytest.raises(UsageError, match="'mmx'; the instruction sets are avx512_bf16"),
        library.use_instruction_set("mmx"),
    ):
        pass
