"""Weights for races in writing: random ones, written once as a Hugging Face directory, and the same in the peers' own forms.

How fast a model writes does not depend on what its weights say, so nothing has to be fetched.
"""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from saccade.errors import UsageError

END = 0  # the token that ends a text, which nobody may write here: all write equally much


@dataclass(frozen=True)
class Shape:
    """The sizes of a model: GPT-2's own, or those of an encoder-decoder with so many layers on each side."""

    vocab: int = 50257
    width: int = 768
    layers: int = 12
    heads: int = 12
    length: int = 1024

    def check(self) -> None:
        """Refuse what no rival could build."""
        if min(self.vocab - 256, self.width, self.layers, self.heads, self.length) < 1 or self.width % self.heads:
            raise UsageError(
                f"A model needs sizes of 1 or more, a vocabulary above 256 and a width that its heads can share; got {self}."
            )

    @property
    def said(self) -> str:
        """All sizes: weights of other sizes have another name."""
        return f"{self.layers}x{self.width}-{self.heads}-{self.vocab}-{self.length}"


SENTENCES = Shape(vocab=32000, width=512, layers=6, heads=8, length=512)


def decoder(home: Path, shape: Shape) -> Path:
    """A directory with GPT-2's architecture and a small tokenizer, so that a command can be asked to write with it."""
    from saccade.models.families import gpt2

    sizes = gpt2.Config(shape.vocab, shape.width, shape.layers, shape.heads, max_positions=shape.length)
    return _once(home / f"gpt2-{shape.said}", lambda path: _drawn("gpt2", sizes).save(path))


def encoder_decoder(home: Path, shape: Shape) -> Path:
    """A directory with Marian's architecture, whose last token pads and begins; its vector is zero, as published ones have it."""
    import torch

    from saccade.models.families import marian

    inner = 4 * shape.width
    sizes = marian.Config(
        vocab=shape.vocab, width=shape.width, layers=shape.layers, decoder_layers=shape.layers, heads=shape.heads,
        decoder_heads=shape.heads, ffn_width=inner, decoder_ffn_width=inner, max_positions=shape.length,
        decoder_start_id=shape.vocab - 1,
    )  # fmt: skip

    def write(path: Path) -> Any:
        model = _drawn("marian", sizes)
        with torch.no_grad():
            model.get_parameter("body.words.vectors.weight")[-1] = 0.0
        return model.save(path)

    return _once(home / f"marian-{shape.said}", write)


def _drawn(family: str, sizes: Any) -> Any:
    import torch

    from saccade import text
    from saccade.models.build import new

    torch.manual_seed(0)
    model = new(family, sizes)
    with torch.no_grad():
        for name, x in model.named_parameters():
            if (
                ".layers." in name and x.ndim == 2
            ):  # large, so that layers matter: small ones write the last token again
                x.normal_(std=x.size(1) ** -0.5)
    words = " ".join(str(number) for number in range(300))
    model.tokenizer = text.train_tokenizer([words], "bpe", min(sizes.vocab, 400), special_tokens={"eos": "</s>"})
    return model


def _once(path: Path, write: Callable[[Path], Any]) -> Path:
    """What was written before is there already; it appears only when it is whole, so a part is of a run that was ended."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{path.name}.part")
        if part.is_dir():
            shutil.rmtree(part)
        part.unlink(missing_ok=True)
        write(part)
        part.rename(path)
    return path


def for_ctranslate2(directory: Path) -> Path:
    """The same in CTranslate2's form, in float32: it converts to what it is asked for when it loads."""
    return _once(directory.with_name(f"{directory.name}-ctranslate2"), lambda path: _convert(directory, path))


def _convert(directory: Path, path: Path) -> None:
    from ctranslate2.converters import TransformersConverter  # type: ignore[import-not-found]

    vocab = int(json.loads((directory / "config.json").read_text(encoding="utf-8"))["vocab_size"])
    words = names(vocab) | ({"<pad>": vocab - 1} if "marian" in directory.name else {})
    listed = {id: word for word, id in words.items()}
    known = SimpleNamespace(
        get_vocab=lambda: {word: id for id, word in listed.items()},
        bos_token=listed[END], eos_token=listed[END], unk_token=listed[1],
    )  # fmt: skip

    class Converter(TransformersConverter):
        """Only names for the ids are asked of a tokenizer."""

        def load_tokenizer(self, tokenizer_class: Any, model_name_or_path: str, **kwargs: Any) -> Any:
            return known

    Converter(str(directory)).convert(str(path))


def names(vocab: int) -> dict[str, int]:
    """A word for every id, for a peer that takes words."""
    return {f"w{id}": id for id in range(vocab)}


def for_llama_cpp(directory: Path) -> Path:
    """The same as a file of llama.cpp, quantised to q8_0 by its own tool."""
    whole = _once(directory.with_name(f"{directory.name}-f32.gguf"), lambda path: _gguf(directory, path))
    return _once(directory.with_name(f"{directory.name}-q8_0.gguf"), lambda path: _quantise(whole, path))


def _gguf(directory: Path, path: Path) -> None:
    """GPT-2 in GGUF, with no vocabulary: ids go in and out."""
    import gguf  # type: ignore[import-not-found]
    from safetensors.numpy import load_file

    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    writer = gguf.GGUFWriter(path, "gpt2")
    writer.add_context_length(config["n_positions"])
    writer.add_embedding_length(config["n_embd"])
    writer.add_feed_forward_length(config["n_inner"] or 4 * config["n_embd"])
    writer.add_block_count(config["n_layer"])
    writer.add_head_count(config["n_head"])
    writer.add_layer_norm_eps(config["layer_norm_epsilon"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("no_vocab")
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    for name, x in load_file(directory / "model.safetensors").items():
        writer.add_tensor(*gguf_tensor(name.removeprefix("transformer."), x))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


GGUF = {
    "wte": "token_embd", "wpe": "position_embd", "ln_f": "output_norm", "ln_1": "attn_norm", "ln_2": "ffn_norm",
    "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down",
}  # fmt: skip


def gguf_tensor(name: str, x: Any) -> tuple[str, Any]:
    """The name and the values that llama.cpp has for a published tensor of GPT-2; its matrices are (out, in)."""
    stem, _, last = name.rpartition(".")
    if not stem.startswith("h."):
        return f"{GGUF[stem]}.{last}", x
    _, number, part = stem.split(".", 2)
    turned = x.T.copy() if part.split(".")[-1].startswith("c_") and last == "weight" else x
    return f"blk.{number}.{GGUF[part]}.{last}", turned


def _quantise(whole: Path, path: Path) -> None:
    import ctypes

    import llama_cpp  # type: ignore[import-not-found]

    settings = llama_cpp.llama_model_quantize_default_params()
    settings.ftype = llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0
    if llama_cpp.llama_model_quantize(str(whole).encode(), str(path).encode(), ctypes.byref(settings)):
        raise RuntimeError(f"{whole}: llama.cpp could not quantise it to q8_0.")
