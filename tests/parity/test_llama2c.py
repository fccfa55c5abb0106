"""llama2.c's file: read back what a few lines here write, in its layout; the other order of rotary pairs is the other path."""

import struct

import pytest
import torch

from saccade.cli import main
from saccade.data import Batch, Text
from saccade.models.families.llama import Config, Llama
from saccade.models.foreign.llama2c import read_llama2c
from saccade.models.load import load
from saccade.parts.position import Rotary

CONFIG = Config(
    vocab=11, width=12, layers=2, heads=3, kv_heads=1, ffn_width=7, max_positions=5, eps=1e-5, tie_embeddings=True
)
ORDER = ["attention.norm", "attention.branch.query", "attention.branch.key", "attention.branch.value"]
ORDER += ["attention.branch.output", "feedforward.norm"]
ORDER += [f"feedforward.branch.{name}" for name in ("gate", "down", "up")]


def written(model, path, *, tied, angles=True):
    """The file of a model whose queries and keys turn neighbouring columns, as llama2.c has them."""
    c = CONFIG
    numbers = (c.width, c.ffn_width, c.layers, c.heads, c.kv_heads, c.vocab if tied else -c.vocab, c.max_positions)
    parts = [model.words.vectors.weight]
    parts += [model.get_parameter(f"stack.layers.{i}.{name}.weight") for name in ORDER for i in range(c.layers)]
    parts += [model.stack.leave.weight]
    parts += [torch.full((c.max_positions * c.width // c.heads,), 9.0)] if angles else []
    parts += [] if tied else [model.head.score.weight]
    flat = torch.cat([part.detach().flatten() for part in parts])
    path.write_bytes(struct.pack("<7i", *numbers) + flat.numpy().astype("<f4").tobytes())
    return path


def neighbours(tied):
    torch.manual_seed(1)
    model = Llama(Config(**(vars(CONFIG) | {"tie_embeddings": tied})))
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.3)
    model.stack.position = Rotary(CONFIG.width // CONFIG.heads, interleaved=True)
    return model.eval()


@pytest.mark.parametrize("angles", [True, False])
@pytest.mark.parametrize("tied", [True, False])
def test_reads_what_was_written(tmp_path, tied, angles):
    before = neighbours(tied)
    config, tensors = read_llama2c(written(before, tmp_path / "model.bin", tied=tied, angles=angles))
    assert config == before_config(tied)
    after = Llama(config).eval()
    missing, unexpected = after.load_state_dict(tensors, strict=False)
    assert (missing, unexpected) == (["head.score.weight"] if tied else [], [])
    tokens = torch.randint(0, CONFIG.vocab, (2, 5), generator=torch.Generator().manual_seed(2))
    answers = []
    for model in (before, after):
        state, text = model.start(Batch(Text(tokens)))
        answers.append(model.step(text, state))
    torch.testing.assert_close(*answers)


def test_a_tokenizer_of_another_model_is_refused_if_it_was_named_and_left_out_if_it_only_lies_there(tmp_path, capsys):
    """The smallest that the format has: three special pieces and a byte each, for a model of eleven words."""
    path, pieces = written(neighbours(True), tmp_path / "model.bin", tied=True), tmp_path / "tok.bin"
    names = ["<unk>", "\n<s>\n", "\n</s>\n", *(f"<0x{byte:02X}>" for byte in range(256))]
    each = [struct.pack("<fi", 0.0, len(name)) + name.encode() for name in names]
    pieces.write_bytes(struct.pack("<I", 9) + b"".join(each))
    assert main(["import", str(path), str(tmp_path / "named"), "--tokenizer", str(pieces)]) == 4
    assert "has 259 tokens, but" in capsys.readouterr().err
    assert main(["import", str(path), str(tmp_path / "found")]) == 0
    assert "tokenizer  skipped:" in capsys.readouterr().err
    assert load(tmp_path / "found").tokenizer is None


def before_config(tied):
    return Config(**(vars(CONFIG) | {"tie_embeddings": tied}))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda file: file[:20], "has 20 bytes; the header of a llama2.c file alone has 28"),
        (lambda file: file[:-4], "the file is damaged"),
        (lambda file: file + b"\x00" * 4, "the file is damaged"),
        (lambda file: b"24ka" + file[4:], "export it with `--version 0`"),
        (lambda file: b"\x00" * 28 + file[28:], "sizes below 1"),
        (lambda file: struct.pack("<i", 13) + file[4:], "width 13 cannot be divided into"),
        (
            lambda file: struct.pack("<7i", *[2**30] * 3, 1, 1, 2**30, 2**30) + file[28:],
            "vocab = 1073741824; a number from 1 to",
        ),
    ],
)
def test_damaged_files_are_refused(tmp_path, damage, said):
    """Also a header that asks for more than any memory holds: it is compared with the file before anything is read."""
    path = written(neighbours(True), tmp_path / "model.bin", tied=True)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=said):
        read_llama2c(path)
