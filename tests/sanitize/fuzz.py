"""Random operands for the compiled operators, against PyTorch: `python -m sanitize.fuzz CASES [SEED]`.

Shapes from nothing to several tiles, widths that are no multiple of anything, empty rows, layouts of all kinds, and numbers that
are none. What lies around an operand must stay as it was. A library with sanitizers ends the process where memory is touched that
belongs to nobody, or where the result is undefined.
"""

import math
import random
import sys
from collections.abc import Callable

import torch
from torch import Tensor

from saccade.engine.kernels import library
from saccade.engine.kernels import reference as kernel_reference
from saccade.engine.kernels.encoder_program import EmbeddingTables, EncoderLayer, EncoderProgram, NormWeights
from saccade.engine.kernels.matrix import PER_BLOCK, PackedMatrix
from saccade.engine.native import ops, reference_ops
from saccade.engine.native.check_args import to_cache_dtype
from saccade.engine.native.reference_program import run_reference
from saccade.engine.native.step_program import KVBufferRef, StepProgram
from sanitize.layouts import cut_out, lay_out, same_storage, twin
from sanitize.refused import REFUSED

SIZES = (1, 1, 2, 3, 5, 7, 8, 9, 16, 31, 32, 33, 63, 64, 65, 97, 128, 200, 257)
ODD = (math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-40, 1e-30, -65520.0, 3e38, -3e38)


def size(chance: random.Random, most: int = 300) -> int:
    return chance.choice([n for n in SIZES if n <= most])


def numbers(chance: random.Random, *shape: int, odd: bool = False) -> Tensor:
    """Normal numbers of some scale, and where asked some that are not."""
    x = torch.randn(shape) * 10 ** chance.uniform(-3, 2)
    if odd and x.numel():
        for place in chance.choices(range(x.numel()), k=chance.randint(1, 4)):
            x.view(-1)[place] = chance.choice(ODD)
    return x


def check(found: Tensor, wanted: Tensor, odd: bool, size: Tensor | float = 1.0) -> None:
    """Equal to within rounding of what was added up; with numbers that are none only the shape is."""
    assert found.shape == wanted.shape
    if not odd and found.numel():
        error = (found - wanted).abs() / (size + wanted.abs() + 1e-30)
        assert error.max() < 1e-4, f"{found.flatten()[error.argmax()]}, wanted {wanted.flatten()[error.argmax()]}"


def product(chance: random.Random) -> None:
    """Packing, the product with an activation and something to add, and the best of it."""
    n, k, odd = size(chance), size(chance), chance.random() < 0.2
    rows = (chance.choice((0, 1, 1, 2, 3, 4, 7, 70)),)
    rows = chance.choice((rows, (*rows, chance.choice((1, 2)))))
    weight, x, bias = numbers(chance, n, k), numbers(chance, *rows, k, odd=odd), numbers(chance, n)
    add = numbers(chance, *rows, n) if chance.random() < 0.5 else None
    packed = ops.Int8Tiles(lay_out(chance, weight), lay_out(chance, bias))
    given, act = lay_out(chance, x), chance.choice(list(ops.ACTIVATION_CODES))
    before = twin(given)
    out = packed(given, act, None if add is None else lay_out(chance, add))
    assert same_storage(given, before)
    sizes = x.abs().amax(-1, keepdim=True) * weight.abs().sum(1) + bias.abs() + (0 if add is None else add.abs())
    check(out, reference_ops.linear(x, *packed.unpack(), bias, act, add), odd, sizes)
    if x.dim() == 2:
        count = chance.choice((0, 1, 2, n, n + 3))
        values, tokens, chances = packed.topk(given, count)
        wanted = reference_ops.topk(packed(x).double(), min(count, n))
        assert tokens.numel() == 0 or 0 <= int(tokens.min()) <= int(tokens.max()) < n
        check(values, wanted[0], odd)
        check(chances, wanted[2], odd)


def norm(chance: random.Random) -> None:
    """Layer norm and the root-mean-square norm; a row may have no columns, and a tensor no rows."""
    width = chance.choice((0, size(chance)))
    odd = chance.random() < 0.2
    x = numbers(chance, *(chance.choice((0, 1, 2, 3, 5, 40)) for _ in range(chance.randrange(3))), width, odd=odd)
    weight, bias = numbers(chance, width), numbers(chance, width) if chance.random() < 0.5 else None
    given, parts = lay_out(chance, x), (lay_out(chance, weight), None if bias is None else lay_out(chance, bias))
    before = twin(given)
    sizes = weight.abs() * 10 + (0 if bias is None else bias.abs())
    check(ops.layer_norm(given, *parts, 1e-5), reference_ops.layer_norm(x, weight, bias, 1e-5), odd, sizes)
    check(ops.rms_norm(given, parts[0], 1e-6), reference_ops.rms_norm(x, weight, 1e-6), odd, sizes)
    assert same_storage(given, before)


def memory(chance: random.Random, b: int, g: int, limit: int, d: int) -> tuple[Tensor, Tensor]:
    """Keys and values of one layout and kind, often a slice of something larger; what is not written is NaN."""
    kind, seed = chance.choice((torch.float32, torch.float16)), chance.random()
    order = chance.choice((False, True))  # whether the heads of a place lie together
    made = []
    for _ in range(2):
        shape = (b, limit, g, d) if order else (b, g, limit, d)
        part = cut_out(torch.randn(shape).to(kind), random.Random(seed), axes=3)
        made.append(part.transpose(1, 2) if order else part)
    return made[0], made[1]


def attend(chance: random.Random) -> None:
    """One token a row, with memories of any length, none of which may be read behind it."""
    b, g, limit, d = (chance.choice(n) for n in ((0, 1, 2, 3, 9), (1, 2, 3), (1, 2, 7, 33), (1, 3, 8, 16, 31, 64, 72)))
    h, writes, odd = g * chance.choice((1, 2, 3)), chance.random() < 0.5, chance.random() < 0.2
    q, fresh = numbers(chance, b, h, d, odd=odd), tuple(numbers(chance, b, g, d, odd=odd) for _ in range(2))
    keys, values = memory(chance, b, g, limit, d)
    lengths = torch.tensor([chance.randint(int(writes), limit) for _ in range(b)], dtype=torch.int64)
    keep = cut_out(torch.rand(b, limit) > 0.3, chance) if chance.random() < 0.5 else None
    twins = twin(keys), twin(values)
    there = tuple(lay_out(chance, x) for x in fresh) if writes else None
    out = ops.attend(lay_out(chance, q), keys, values, lengths, 0.2, keep, there)
    for plain, new in zip(twins, fresh if writes else (), strict=False):
        reference_ops.write_last(plain, to_cache_dtype(new, plain.dtype), lengths)
    assert odd or (same_storage(keys, twins[0]) and same_storage(values, twins[1]))
    wanted = reference_ops.attend(q, twins[0].float(), twins[1].float(), lengths, 0.2, keep)
    check(out, wanted, odd, max((float(x.abs().max()) for x in fresh if x.numel()), default=0.0) + 1)


def gather(chance: random.Random) -> None:
    """Rows of a memory in another order, into a spare memory or not."""
    p, g, limit, d = (chance.choice((1, 1, 2, 5)), chance.choice((1, 1, 3)), size(chance, 33), size(chance, 65))
    kind = chance.choice((torch.float32, torch.float16))
    whole = cut_out(torch.randn(p, g, limit, d).to(kind), chance, axes=chance.choice((1, 2, 4)))
    b, length = chance.choice((0, 1, 2, 40)), chance.randint(0, limit)
    origin = torch.randint(p, (b, limit + chance.randrange(2)), dtype=chance.choice((torch.int32, torch.int64)))
    spare = chance.choice((None, whole, torch.empty(b, g, limit, d, dtype=kind)))
    before = twin(whole)
    found = ops.gather(whole, lay_out(chance, origin), length, spare)
    assert found.shape == (b, g, limit, d)
    assert found[:, :, :length].equal(reference_ops.gather(before, origin[:, :length]))
    assert same_storage(whole, before)


def chain(chance: random.Random) -> None:
    """A layer of a transformer on rooms of all kinds, against its operators one by one."""
    g, d, w, inner = chance.choice((1, 2)), chance.choice((2, 4, 8, 18)), size(chance, 97), size(chance, 128)
    h, b, limit, rows = g * chance.choice((1, 3)), chance.choice((0, 1, 2, 6)), chance.choice((1, 5, 33)), 6
    links, x = StepProgram(w), 0
    x = links.layer_norm(x, lay_out(chance, torch.randn(w)), chance.choice((None, torch.randn(w))), 1e-5)
    x = links.linear(x, ops.Int8Tiles(torch.randn((h + 2 * g) * d, w) / w, torch.randn((h + 2 * g) * d)))
    x = links.rotate(x, h + g, d, interleaved=chance.random() < 0.5)
    x = links.linear(links.attend(x, h, g, d, 0.3, buffer=1), ops.Int8Tiles(torch.randn(w, h * d) / (h * d)), add=0)
    y = links.linear(links.rms_norm(x, torch.randn(w), 1e-6), ops.Int8Tiles(torch.randn(h * d, w) / w))
    x = links.linear(links.attend(y, h, g, d, 0.3, buffer=0), ops.Int8Tiles(torch.randn(w, h * d) / (h * d)), add=x)
    y = links.gate(
        links.linear(x, ops.Int8Tiles(torch.randn(2 * inner, w) / w)), chance.choice(list(ops.ACTIVATION_CODES))
    )
    links.linear(y, ops.Int8Tiles(torch.randn(w, inner) / inner), chance.choice(list(ops.ACTIVATION_CODES)), add=x)
    share = chance.choice([n for n in (1, 2, 3) if b % n == 0])
    across = torch.tensor([chance.randint(0, limit) for _ in range(b // share)], dtype=torch.int64)
    lengths = torch.tensor([chance.randint(1, limit) for _ in range(b)], dtype=torch.int64)
    moved = chance.random() < 0.5
    origin = torch.randint(rows, (b, limit), dtype=torch.int32)
    own = torch.arange(b, dtype=torch.int32)
    written = lengths[origin.clamp(max=max(b - 1, 0)).long()] - 1 == torch.arange(limit) if b else origin.bool()
    origin = torch.where(
        written & (origin < b), own[:, None], origin
    )  # nobody looks at what another row writes meanwhile
    origin[own.long(), lengths - 1] = own
    front, back = memory(chance, b // share, g, limit, d), memory(chance, rows if moved else b, g, limit, d)
    given, turns, both = torch.randn(b, w), torch.randn(b, d), []
    for made in (back, tuple(twin(part) for part in back)):
        rooms = [
            KVBufferRef(*front, across, None, share),
            KVBufferRef(*made, lengths, None, 1, origin if moved else None),
        ]
        both.append(rooms)
    out = links(lay_out(chance, given), both[0], lay_out(chance, turns))
    check(out, run_reference(links.ops, given, both[1], turns), False, 1.0)
    torch.testing.assert_close(both[0][1].keys, both[1][1].keys, rtol=1e-3, atol=1e-3)


def panels(chance: random.Random) -> None:
    """A product of the encoder kernels, in any precision, of rows of any layout."""
    n, k, odd, precision = size(chance), size(chance), chance.random() < 0.2, chance.choice(list(PER_BLOCK))
    rows = chance.choice(((0,), (1,), (5,), (6,), (13,), (2, 3), (200,)))
    x = numbers(chance, *rows, k, odd=odd)
    add = numbers(chance, *rows, n) if chance.random() < 0.5 else None
    bias = lay_out(chance, numbers(chance, n)) if chance.random() < 0.5 else None
    matrix = PackedMatrix(lay_out(chance, numbers(chance, n, k)), bias, precision)
    given, act = lay_out(chance, x), chance.choice(list(ops.ACTIVATION_CODES))
    before = twin(given)
    out = matrix(given, act, None if add is None else lay_out(chance, add))
    assert same_storage(given, before)
    sizes = x.abs().amax(-1, keepdim=True) * matrix.unpack().float().abs().sum(1)
    sizes = sizes * (1 if matrix.scales is None else matrix.scales[:n]) + (0 if bias is None else bias.abs()) + 1
    check(out, kernel_reference.linear(matrix, x, act, add), odd, sizes)


def encoder(chance: random.Random) -> None:
    """A whole encoder of any sizes over texts of any lengths, alone or shared by two threads."""
    precision, norm_first, gated = chance.choice(list(PER_BLOCK)), chance.random() < 0.5, chance.random() < 0.3
    g, d, hidden, w = chance.choice((1, 2, 3)), chance.choice((1, 3, 8, 16, 36, 65)), size(chance), size(chance, 97)
    h = g * chance.choice((1, 2))

    def matrix(n: int, k: int) -> PackedMatrix:
        bias = lay_out(chance, torch.randn(n)) if chance.random() < 0.5 else None
        return PackedMatrix(torch.randn(n, k) / k**0.5, bias, precision)

    def norm_weights(width: int) -> NormWeights:
        return NormWeights(torch.randn(width), torch.randn(width) if chance.random() < 0.5 else None, 1e-5)

    shapes = ((h + 2 * g) * d, w), (w, h * d), (hidden * (1 + gated), w), (w, hidden)
    act = chance.choice(list(ops.ACTIVATION_CODES))
    layers = [
        EncoderLayer(
            *(matrix(*shape) for shape in shapes),
            norm_weights(w),
            norm_weights(w),
            h,
            g,
            d,
            d**-0.5,
            act,
            gated,
            norm_first,
        )
        for _ in range(chance.choice((0, 1, 2)))
    ]
    narrow = size(chance, 65)
    project = None if narrow == w else matrix(w, narrow)
    tables = [torch.randn(rows, narrow) for rows in (31, 70, 2)]
    embedding = EmbeddingTables(*tables, norm=chance.choice((None, norm_weights(narrow))), project=project)
    program = EncoderProgram(layers, w, precision, leave=chance.choice((None, norm_weights(w))), embedding=embedding)
    lengths = [chance.choice((0, 1, 2, 15, 16, 17, 33, 70)) for _ in range(chance.choice((0, 1, 2, 5)))]
    tokens, segments = (torch.randint(n, (sum(lengths),), dtype=torch.int32) for n in (31, 2))
    given = lay_out(chance, tokens), lay_out(chance, segments)
    found = program.encode(lengths, tokens=given[0], segments=given[1])
    texts = [
        kernel_reference.embed(embedding, *text)
        for text in zip(tokens.split(lengths), segments.split(lengths), strict=True)
    ]
    wanted = torch.cat([found[:0], *(kernel_reference.encode_rows(program, x) for x in texts)])
    assert found.shape == wanted.shape
    assert found.isfinite().all()
    close = {"int8": 0.3, "bfloat16": 0.1, "float32": 1e-3}[precision]  # random sizes: one level may be much
    assert not found.numel() or (found - wanted).norm() <= close * wanted.norm() + 1e-3


OPERATORS: tuple[Callable[[random.Random], None], ...] = (product, norm, attend, gather, chain, panels, encoder)


def refuse(name: str) -> None:
    """What a raw address could not stand must be an error of Python's."""
    try:
        REFUSED[name]()
    except (ValueError, RuntimeError):
        return
    raise AssertionError(f"{name} was not refused")


def main(cases: int, seed: int = 0) -> None:
    assert ops.is_available(), ops.unavailable_reason()
    assert library.is_available(), library.unavailable_reason()
    library.library().saccade_set_join_time(10**10)  # so that threads share texts on a busy machine too
    for name in REFUSED:
        refuse(name)
    for number in range(seed, seed + cases):
        operator = OPERATORS[number % len(OPERATORS)]
        print(f"case {number}: {operator.__name__}", flush=True)
        torch.manual_seed(number)
        chance = random.Random(number)
        with library.use_instruction_set(chance.choice(library.supported_instruction_sets())):
            operator(chance)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
