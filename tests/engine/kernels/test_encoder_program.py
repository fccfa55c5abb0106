"""Whole encoders in one native call against their definition in PyTorch, on every instruction set of this processor."""

import copy
import itertools

import pytest
import torch

from saccade.engine.kernels import library, reference
from saccade.engine.kernels.encoder_program import EmbeddingTables, EncoderLayer, EncoderProgram, NormWeights
from saccade.engine.kernels.matrix import PER_BLOCK, PackedMatrix
from saccade.errors import ModelError
from saccade.system import cpu_count

pytestmark = pytest.mark.skipif(not library.is_available(), reason=library.unavailable_reason() or "compiled")
INSTRUCTION_SETS = library.supported_instruction_sets() if library.is_available() else []
CLOSE = {
    "int8": 2e-2,
    "bfloat16": 4e-3,
    "float32": 1e-5,
}  # a sum in another order may fall to another level of int8 or bfloat16


@pytest.fixture(params=INSTRUCTION_SETS, autouse=True)
def instruction_set(request):
    with library.use_instruction_set(request.param):
        yield request.param


@pytest.fixture
def two_threads():
    """Two threads that wait for each other for seconds, so that they share a text on a busy machine too."""
    if cpu_count() < 2:
        pytest.skip("one core")
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    library.library().saccade_set_join_time(10**10)
    yield
    library.library().saccade_set_join_time(0)
    torch.set_num_threads(before)


def make_norm(width, *, is_rms=False):
    return NormWeights(torch.randn(width), None if is_rms else torch.randn(width), 1e-5, is_rms)


def make_layer(precision, width, heads, kv_heads, head_width, hidden, **options):
    def matrix(outputs, inputs, *, bias=True):
        return PackedMatrix(
            torch.randn(outputs, inputs) / inputs**0.5, torch.randn(outputs) if bias else None, precision
        )

    gated, is_rms = options.get("is_gated", False), options.pop("is_rms", False)
    return EncoderLayer(
        joint=matrix((heads + 2 * kv_heads) * head_width, width),
        output=matrix(width, heads * head_width),
        up=matrix(hidden * (1 + gated), width, bias=not gated),
        down=matrix(width, hidden, bias=not gated),
        attention_norm=make_norm(width, is_rms=is_rms),
        feedforward_norm=make_norm(width, is_rms=is_rms),
        heads=heads,
        kv_heads=kv_heads,
        head_width=head_width,
        scale=head_width**-0.5,
        **{"activation": "gelu", **options},
    )


PROGRAMS = {
    "BERT": lambda p: EncoderProgram([make_layer(p, 64, 4, 4, 16, 256) for _ in range(3)], 64, p),
    "odd sizes": lambda p: EncoderProgram([make_layer(p, 37, 3, 3, 7, 71, activation="relu") for _ in range(2)], 37, p),
    "pre-norm, wide heads": lambda p: EncoderProgram(
        [make_layer(p, 70, 2, 2, 68, 130, norm_first=True, activation="gelu_tanh") for _ in range(2)],
        70,
        p,
        leave=make_norm(70),
    ),
    "gated, grouped, RMS norm": lambda p: EncoderProgram(
        [make_layer(p, 48, 4, 2, 12, 128, norm_first=True, activation="silu", is_gated=True, is_rms=True)] * 2,
        48,
        p,
        leave=make_norm(48, is_rms=True),
    ),
    "gated, odd": lambda p: EncoderProgram([make_layer(p, 24, 2, 1, 12, 37, is_gated=True)], 24, p),
    "no layers": lambda p: EncoderProgram([], 24, p),
}


def expect(program, rows, lengths):
    texts = rows.split(lengths) if len(lengths) else []
    return torch.cat([rows[:0], *(reference.encode_rows(program, text) for text in texts)])


def assert_near(found, expected, precision):
    assert found.shape == expected.shape
    if found.numel():
        error = (found - expected).norm() / expected.norm()
        assert error < CLOSE[precision], error


@pytest.mark.parametrize("precision", PER_BLOCK)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("lengths", [[1, 17, 4, 0, 33], [40] * 3, []], ids=str)
def test_a_program_is_its_definition(name, precision, lengths):
    torch.manual_seed(len(lengths))
    program = PROGRAMS[name](precision)
    rows = torch.randn(sum(lengths), program.width)
    assert_near(program.encode(lengths, rows=rows), expect(program, rows, lengths), precision)


def make_embedding(precision, width, narrow=None):
    columns = narrow or width
    project = (
        PackedMatrix(torch.randn(width, columns) / columns**0.5, torch.randn(width), precision) if narrow else None
    )
    tables = [torch.randn(n, columns) for n in (50, 40, 2)]
    return EmbeddingTables(*tables, scale=1.5, norm=make_norm(columns), project=project)


@pytest.mark.parametrize("precision", PER_BLOCK)
@pytest.mark.parametrize("narrow", [None, 21])
@pytest.mark.parametrize("name", ["BERT", "pre-norm, wide heads"])
def test_embeddings_are_the_definitions(name, precision, narrow):
    torch.manual_seed(1)
    program = PROGRAMS[name](precision)
    program = program.with_embedding(make_embedding(precision, program.width, narrow))
    lengths = [7, 1, 30]
    tokens, segments = torch.randint(50, (38,), dtype=torch.int32), torch.randint(2, (38,), dtype=torch.int32)
    for types in (segments, None):
        texts = [(tokens[a:b], None if types is None else types[a:b]) for a, b in ((0, 7), (7, 8), (8, 38))]
        expected = torch.cat(
            [reference.encode_rows(program, reference.embed(program.embedding, *text)) for text in texts]
        )
        assert_near(program.encode(lengths, tokens=tokens, segments=types), expected, precision)


def test_pooling_is_the_mean_or_the_first_row():
    torch.manual_seed(2)
    program, lengths = PROGRAMS["BERT"]("float32"), [7, 1, 0, 30]
    rows = torch.randn(38, 64)
    hidden = program.encode(lengths, rows=rows).split(lengths)
    means = torch.stack([text.mean(0) if len(text) else torch.zeros(64) for text in hidden])
    firsts = torch.stack([text[0] if len(text) else torch.zeros(64) for text in hidden])
    torch.testing.assert_close(program.encode(lengths, rows=rows, pool="mean"), means)
    torch.testing.assert_close(program.encode(lengths, rows=rows, pool="first"), firsts)


@pytest.mark.parametrize("precision", PER_BLOCK)
@pytest.mark.parametrize(("gated", "grouped"), list(itertools.product([False, True], repeat=2)))
def test_threads_that_share_a_text_compute_the_same(two_threads, precision, gated, grouped):
    """A text that is large enough to be shared; in int8 each thread quantizes its own part."""
    torch.manual_seed(3)
    layers = [make_layer(precision, 256, 4, 2 if grouped else 4, 64, 512, is_gated=gated) for _ in range(2)]
    program, lengths = EncoderProgram(layers, 256, precision), [37]
    rows = torch.randn(37, 256)
    expected = expect(program, rows, lengths)
    shared = library.library().saccade_shared_texts()
    for _ in range(3):
        assert_near(program.encode(lengths, rows=rows), expected, precision)
    assert library.library().saccade_shared_texts() == shared + 3


@pytest.mark.parametrize("precision", PER_BLOCK)
def test_a_text_does_not_depend_on_its_batch(precision):
    program = PROGRAMS["BERT"](precision)
    lengths = [3, 50, 1, 20] * 5
    rows = torch.randn(sum(lengths), 64)
    together = program.encode(lengths, rows=rows).split(lengths)
    for text, hidden in zip(rows.split(lengths), together, strict=True):
        assert_near(program.encode([len(text)], rows=text), hidden, precision)


def test_a_copy_of_a_program_has_its_own_memory():
    program, rows = PROGRAMS["odd sizes"]("int8"), torch.randn(4, 37)
    expected = program.encode([4], rows=rows)
    other = copy.deepcopy(program)
    del program
    assert other.encode([4], rows=rows).equal(expected)


def test_bad_input_is_refused():
    plain = PROGRAMS["BERT"]("float32")
    program = plain.with_embedding(make_embedding("float32", 64))
    tokens = torch.tensor([3, 50, 4], dtype=torch.int32)
    with pytest.raises(ModelError, match=r"Token 1 has the id 50; the ids of this model are 0 to 49\."):
        program.encode([3], tokens=tokens)
    segments = torch.tensor([0, 1, 2], dtype=torch.int32)
    with pytest.raises(ModelError, match="Token 2 has the segment 2"):
        program.encode([3], tokens=tokens.clamp(max=9), segments=segments)
    with pytest.raises(ModelError, match="0 to 40 tokens; got 41 to 41"):
        program.encode([41], tokens=torch.zeros(41, dtype=torch.int32))
    for call in (
        lambda: program.encode([3], tokens=tokens.long()),
        lambda: program.encode([2], tokens=tokens),
        lambda: plain.encode([3], tokens=tokens),
        lambda: plain.encode([3], rows=torch.randn(2, 64)),
        lambda: plain.encode([3], rows=torch.randn(3, 64).double()),
    ):
        with pytest.raises(ValueError, match=r"must be|need|encodes|take float32"):
            call()
    with pytest.raises(ModelError, match="got -1"):
        plain.encode([4, -1], rows=torch.randn(3, 64))


@pytest.mark.parametrize(
    "build",
    [
        lambda: EncoderProgram([make_layer("int8", 64, 4, 4, 16, 256)], 65, "int8"),
        lambda: EncoderProgram([make_layer("int8", 64, 4, 3, 16, 256)], 64, "int8"),
        lambda: EncoderProgram([make_layer("int8", 64, 4, 4, 16, 256, activation="tanh")], 64, "int8"),
        lambda: EncoderProgram([make_layer("float32", 64, 4, 4, 16, 256)], 64, "int8"),
        lambda: EncoderProgram([], 64, "int8", leave=make_norm(63)),
        lambda: EncoderProgram([], 64, "int8", embedding=make_embedding("int8", 63)),
        lambda: EncoderProgram(
            [make_layer("int8", 8, 1, 1, 8, 8), make_layer("int8", 8, 1, 1, 8, 8, norm_first=True)], 8, "int8"
        ),
    ],
)
def test_layers_that_do_not_fit_are_refused(build):
    with pytest.raises(ValueError):
        build()
