"""Marian's students (Bergamot, Firefox): a transformer reads, and a small decoder with an SSRU in place of self-attention
writes, so that a laptop translates (Kim et al. 2019, aclanthology.org/D19-5632).
"""

import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from saccade.attention import CAUSAL, FULL
from saccade.errors import ModelError
from saccade.models.capabilities import ENCODER_DECODER
from saccade.models.encoder_decoder import EncoderDecoder
from saccade.models.family import Family
from saccade.models.marian_bin import Settings, read_marian
from saccade.models.sound import check_fields
from saccade.models.weights import Names, Row, Transposed, to_ours
from saccade.parts.dropout import Dropout
from saccade.parts.embed import Words
from saccade.parts.feedforward import FeedForward
from saccade.parts.heads import WordHead
from saccade.parts.layer import Layer, layer
from saccade.parts.multihead import Attention
from saccade.parts.position import Sinusoidal
from saccade.parts.ssru import SSRU
from saccade.parts.stack import Stack

norm = partial(nn.LayerNorm, eps=1e-9)


@dataclass(frozen=True)
class Config:
    vocab: int = 32000
    width: int = 256
    layers: int = 6
    decoder_layers: int = 2
    heads: int = 8
    inner: int = 1536
    activation: str = "relu"
    begin: int = 0  # the token of the end, which no target is continued after: it stands for the beginning
    dropout: float = 0.1


class TargetWords(Words):
    """The words of the source as a decoder reads them: the one that begins a target is no word, so its vector is zero."""

    def __init__(self, words: Words, begin: int):
        nn.Module.__init__(self)  # a table of its own is what it does without
        self.vectors, self.scale, self.begin = words.vectors, words.scale, begin

    def forward(self, tokens: Tensor) -> Tensor:
        return super().forward(tokens).masked_fill((tokens == self.begin).unsqueeze(-1), 0.0)


class Student(EncoderDecoder):
    """One table of words for source, target and output; norm after each branch."""

    def __init__(self, config: Config):
        words = Words(config.vocab, config.width, scaled=True)

        def stack(layers: list[Layer], pattern) -> Stack:
            return Stack(layers, pattern, waves(config.width), enter=Dropout(config.dropout))

        super().__init__(
            words,
            stack([_layer(config) for _ in range(config.layers)], FULL),
            stack([_writing(config) for _ in range(config.decoder_layers)], CAUSAL),
            WordHead(config.width, config.vocab, tied=words.vectors, bias=True),
            begin=config.begin,
            target_words=TargetWords(words, config.begin),
        )


def waves(width: int) -> Sinusoidal:
    """Marian's positions: all sines first, and the slowest wave is 1/10,000 exactly, where others only come near it."""
    if width < 4:
        raise ModelError(
            f"Positions that go from the fastest wave to the slowest need a width of 4 or more; got {width}."
        )
    return Sinusoidal(width, base=10_000.0 ** (width / (width - 2)), halves=True)


def _layer(config: Config) -> Layer:
    """Look around, think."""
    look, think = Attention(config.width, config.heads), FeedForward(config.width, config.inner, config.activation)
    return layer(look, think, width=config.width, norm_first=False, norm=norm, dropout=config.dropout)


def _writing(config: Config) -> Layer:
    """Remember, look across, think."""
    across, think = Attention(config.width, config.heads), FeedForward(config.width, config.inner, config.activation)
    return layer(
        SSRU(config.width), think, across, width=config.width, norm_first=False, norm=norm, dropout=config.dropout
    )


def read_student(path: str | Path) -> tuple[Config, dict[str, Tensor]]:
    """The config and the weights, in our names, of a student in Marian's own file; what is built otherwise is refused."""
    settings, tensors = read_marian(path)
    config = _config(settings, path)
    if config.layers + config.decoder_layers > len(tensors):
        raise ModelError(
            f"{path}: {len(tensors)} tensors do not make {config.layers} and {config.decoder_layers} layers."
        )
    check_fields(config, f"{path}: ")  # so many tensors can be in the file, and layers take time to build
    # what an activation was multiplied by before it became int8 is no weight, and Marian counts layers from 1
    weights = {_from_zero(name): x for name, x in tensors.items() if not name.endswith("_QuantMultA")}
    read = to_ours(weights, NAMES)
    try:
        with torch.device("meta"):
            wanted = {name: tuple(p.shape) for name, p in Student(config).named_parameters()}
    except RuntimeError as error:  # sizes beyond what torch can count
        raise ModelError(f"{path}: no model can be built of {config}.") from error
    missing = [name for name in wanted if name not in read.found]
    left = read.left + [name for name in read.found if name not in wanted]
    if missing or left:
        raise ModelError(
            f"{path}: these weights of a student are missing: {', '.join(missing[:6]) or 'none'}; and these have no "
            f"place: {', '.join(left[:6]) or 'none'}. Is it another kind of model, or another number of layers?"
        )
    for name, shape in wanted.items():
        found = tuple(read.found[name].shape)
        if found != shape:
            raise ModelError(f"{path}: {name} is {found}, and by the settings {shape} is needed.")
    return config, read.found


def _config(settings: Settings, path: str | Path) -> Config:
    for key, values in BUILT.items():
        if key in settings and settings[key] not in values:
            raise ModelError(f"{path}: {key} = {settings[key]!r} is not built here; only {values[0]!r} is.")
    vocabs = settings.get("dim-vocabs", "").split()
    if len(set(vocabs)) != 1:
        raise ModelError(f"{path}: one vocabulary for both languages is needed; dim-vocabs has {', '.join(vocabs)}.")
    numbers = {ours: settings.get(theirs, "") for theirs, ours in SIZES.items()} | {"vocab": vocabs[0]}
    for name, value in numbers.items():
        if not re.fullmatch(r"[1-9][0-9]{0,8}", value):
            raise ModelError(f"{path}: {name} is {value[:40]!r} in the settings; a size is needed.")
    bend = BENDS[settings.get("transformer-ffn-activation", "relu")]
    return Config(**{name: int(value) for name, value in numbers.items()}, activation=bend)


def _from_zero(name: str) -> str:
    return re.sub(r"(?<=_l)[1-9][0-9]{0,8}(?=_)", lambda found: str(int(found[0]) - 1), name, count=1)


SIZES = {
    "dim-emb": "width",
    "enc-depth": "layers",
    "dec-depth": "decoder_layers",
    "transformer-heads": "heads",
    "transformer-dim-ffn": "inner",
}
BENDS = {"relu": "relu", "swish": "silu"}  # Marian's gelu is another formula than ours
BUILT: dict[str, tuple[str, ...]] = {
    "type": ("transformer",),
    "transformer-decoder-autoreg": ("rnn",),
    "dec-cell": ("ssru",),
    "transformer-preprocess": ("",),
    "transformer-postprocess": ("dan",),  # drop, add, norm
    "transformer-postprocess-emb": ("d", ""),
    "transformer-postprocess-top": ("",),
    "transformer-ffn-activation": tuple(BENDS),
    "transformer-ffn-depth": ("2",),
    "transformer-decoder-dim-ffn": ("0",),
    "transformer-decoder-ffn-depth": ("0",),
    "transformer-no-projection": ("false",),
    "transformer-rnn-projection": ("false",),
    "transformer-tied-layers": ("",),
    "transformer-train-position-embeddings": ("false",),
    "tied-embeddings-all": ("true",),
    "output-omit-bias": ("false",),
    "lemma-dim-emb": ("0",),
    "right-left": ("false",),
    "ulr": ("false",),
}


def _normed(theirs: str, ours: str) -> Names:
    return {f"{theirs}_ln_scale": Row(f"{ours}.norm.weight"), f"{theirs}_ln_bias": Row(f"{ours}.norm.bias")}


def _dense(theirs: str, ours: str, **parts: str) -> Names:
    """Matrices, stored as (in, out), and shifts, stored as one row."""
    weights: Names = {f"{theirs}_W{a}": Transposed(f"{ours}.branch.{b}.weight") for a, b in parts.items()}
    shifts: Names = {f"{theirs}_b{a}": Row(f"{ours}.branch.{b}.bias") for a, b in parts.items()}
    return {**weights, **shifts}


def _looking(theirs: str, ours: str) -> Names:
    return {**_dense(theirs, ours, q="query", k="key", v="value", o="output"), **_normed(f"{theirs}_Wo", ours)}


def _thinking(theirs: str, ours: str) -> Names:
    return {**_dense(theirs, ours, **{"1": "up", "2": "down"}), **_normed(f"{theirs}_ffn", ours)}


NAMES: Names = {
    "Wemb": "words.vectors.weight",
    **_looking("encoder_l{}_self", "encoder.layers.{}.attention"),
    **_thinking("encoder_l{}_ffn", "encoder.layers.{}.feedforward"),
    "decoder_l{}_rnn_W": Transposed("decoder.layers.{}.attention.branch.write.weight"),
    **_dense("decoder_l{}_rnn", "decoder.layers.{}.attention", f="forget"),
    **_normed("decoder_l{}_rnn_ffn", "decoder.layers.{}.attention"),
    **_looking("decoder_l{}_context", "decoder.layers.{}.across"),
    **_thinking("decoder_l{}_ffn", "decoder.layers.{}.feedforward"),
    "decoder_ff_logit_out_b": Row("head.score.bias"),
}
FAMILY = Family(
    name="marian_student",
    said="encoder and recurrent (SSRU) decoder that looks across; read from Marian's .bin (Bergamot, Firefox)",
    config=Config,
    build=Student,
    capabilities=lambda config: ENCODER_DECODER,
    read_only=True,
)
