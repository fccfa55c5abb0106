"""Random weights for the generation benchmark: saved once as a Hugging Face directory, and converted for the baselines.

The speed of generation does not depend on the values of the weights, so nothing has to be downloaded.
"""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from saccade.errors import UsageError

EOS_ID = 0  # the end-of-text token, which is never generated here, so that all engines generate equally many tokens


@dataclass(frozen=True)
class Shape:
    """The sizes of a model: by default those of GPT-2; in an encoder-decoder, each side has this number of layers."""

    vocab: int = 50257
    width: int = 768
    layers: int = 12
    heads: int = 12
    max_positions: int = 1024

    def check(self) -> None:
        """Reject sizes from which no model can be built."""
        sizes = (self.vocab - 256, self.width, self.layers, self.heads, self.max_positions)
        if min(sizes) < 1 or self.width % self.heads:
            needed = "sizes of 1 or more, a vocabulary above 256 and a width that is a multiple of the number of heads"
            raise UsageError(f"A model needs {needed}; got {self}.")

    @property
    def slug(self) -> str:
        """All sizes, for the name of the directory, so that different sizes have different directories."""
        return f"{self.layers}x{self.width}-{self.heads}-{self.vocab}-{self.max_positions}"


TRANSLATOR_SHAPE = Shape(vocab=32000, width=512, layers=6, heads=8, max_positions=512)


def make_decoder(parent: Path, shape: Shape) -> Path:
    """A directory with a model of GPT-2's architecture and a small tokenizer, so that the command line can use it too."""
    from saccade.models.families import gpt2

    config = gpt2.Config(shape.vocab, shape.width, shape.layers, shape.heads, max_positions=shape.max_positions)
    return _write_once(parent / f"gpt2-{shape.slug}", lambda path: _make_random_model("gpt2", config).save(path))


def make_encoder_decoder(parent: Path, shape: Shape) -> Path:
    """A directory with a model of Marian's architecture.

    As in published models, the last token is both the padding and the decoder start token, and its embedding is zero.
    """
    import torch

    from saccade.models.families import marian

    ffn_width = 4 * shape.width
    config = marian.Config(
        vocab=shape.vocab, width=shape.width, layers=shape.layers, decoder_layers=shape.layers, heads=shape.heads,
        decoder_heads=shape.heads, ffn_width=ffn_width, decoder_ffn_width=ffn_width, max_positions=shape.max_positions,
        decoder_start_id=shape.vocab - 1,
    )  # fmt: skip

    def write(path: Path) -> Any:
        model = _make_random_model("marian", config)
        with torch.no_grad():
            model.get_parameter("body.words.vectors.weight")[-1] = 0.0
        return model.save(path)

    return _write_once(parent / f"marian-{shape.slug}", write)


def _make_random_model(family: str, config: Any) -> Any:
    import torch

    from saccade import text
    from saccade.models.build import new

    torch.manual_seed(0)
    model = new(family, config)
    with torch.no_grad():
        for name, x in model.named_parameters():
            # large weights, so that the layers matter: with small ones the model repeats its last token
            if ".layers." in name and x.ndim == 2:
                x.normal_(std=x.size(1) ** -0.5)
    words = " ".join(str(number) for number in range(300))
    model.tokenizer = text.train_tokenizer([words], "bpe", min(config.vocab, 400), special_tokens={"eos": "</s>"})
    return model


def _write_once(path: Path, write: Callable[[Path], Any]) -> Path:
    """Write a file or directory unless it exists; it is renamed when complete, so a .part is left by an interrupted run."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{path.name}.part")
        if part.is_dir():
            shutil.rmtree(part)
        part.unlink(missing_ok=True)
        write(part)
        part.rename(path)
    return path


def convert_for_ctranslate2(directory: Path) -> Path:
    """The model in CTranslate2's format, in float32; other precisions are converted when it is loaded."""
    target = directory.with_name(f"{directory.name}-ctranslate2")
    return _write_once(target, lambda path: _write_ctranslate2(directory, path))


def _write_ctranslate2(directory: Path, path: Path) -> None:
    from ctranslate2.converters import TransformersConverter  # type: ignore[import-not-found]

    vocab = int(json.loads((directory / "config.json").read_text(encoding="utf-8"))["vocab_size"])
    ids = token_ids(vocab) | ({"<pad>": vocab - 1} if "marian" in directory.name else {})
    tokens = {id: token for token, id in ids.items()}
    tokenizer = SimpleNamespace(
        get_vocab=lambda: {token: id for id, token in tokens.items()},
        bos_token=tokens[EOS_ID], eos_token=tokens[EOS_ID], unk_token=tokens[1],
    )  # fmt: skip

    class Converter(TransformersConverter):
        """The converter needs the tokenizer only for the names of the tokens."""

        def load_tokenizer(self, tokenizer_class: Any, model_name_or_path: str, **kwargs: Any) -> Any:
            return tokenizer

    Converter(str(directory)).convert(str(path))


def token_ids(vocab: int) -> dict[str, int]:
    """A token string for every id, for a library that takes strings."""
    return {f"w{id}": id for id in range(vocab)}


def convert_for_llama_cpp(directory: Path) -> Path:
    """The model as a GGUF file, quantized to q8_0 by llama.cpp's own tool."""
    float32 = _write_once(directory.with_name(f"{directory.name}-f32.gguf"), lambda path: _write_gguf(directory, path))
    return _write_once(directory.with_name(f"{directory.name}-q8_0.gguf"), lambda path: _quantize(float32, path))


def _write_gguf(directory: Path, path: Path) -> None:
    """GPT-2 in GGUF without a vocabulary: inputs and outputs are token ids."""
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


GGUF_NAMES = {
    "wte": "token_embd", "wpe": "position_embd", "ln_f": "output_norm", "ln_1": "attn_norm", "ln_2": "ffn_norm",
    "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down",
}  # fmt: skip


def gguf_tensor(name: str, x: Any) -> tuple[str, Any]:
    """The name and the values of a published tensor of GPT-2 in llama.cpp, whose matrices are (out, in)."""
    stem, _, last = name.rpartition(".")
    if not stem.startswith("h."):
        return f"{GGUF_NAMES[stem]}.{last}", x
    _, number, part = stem.split(".", 2)
    values = x.T.copy() if part.split(".")[-1].startswith("c_") and last == "weight" else x
    return f"blk.{number}.{GGUF_NAMES[part]}.{last}", values


def _quantize(float32: Path, path: Path) -> None:
    import ctypes

    import llama_cpp  # type: ignore[import-not-found]

    settings = llama_cpp.llama_model_quantize_default_params()
    settings.ftype = llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0
    if llama_cpp.llama_model_quantize(str(float32).encode(), str(path).encode(), ctypes.byref(settings)):
        raise RuntimeError(f"{float32}: llama.cpp could not quantize it to q8_0.")
