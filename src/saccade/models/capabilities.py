"""Capabilities of a model family: its input, what it generates, and the module paths of its layers and embeddings.

A task declares what it needs (`saccade.tasks.needs`), and `check_fit` compares the two before any data is read, so no code has
to inspect a body to find out what it is.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from saccade.audio.mel import MelConfig

ImageShape = tuple[int | None, int | None, int | None]  # channels, rows, columns; None: any number


class Modality(Enum):
    """The kind of input that a model encodes."""

    TEXT = "a text"
    IMAGE = "an image"
    AUDIO = "a recording"
    FEATURES = "numbers"

    def __str__(self) -> str:
        return self.value


class Generates(Enum):
    """The output of a model: nothing for an encoder, a continuation of the input for a decoder, a target text for an
    encoder-decoder, image codes for a text-to-image model."""

    NOTHING = "nothing"
    CONTINUATION = "a continuation"
    TARGET = "a target text"
    IMAGE_CODES = "the codes of an image"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class TextEncoderParts:
    """The modules of a body that adds up embeddings of tokens, segments and positions, and runs one stack: the paths of its
    `TokenEmbedding`, `SegmentEmbedding` ("" for none) and `Stack`. The inference engine runs such a body as one program."""

    words: str = "words"
    segments: str = "segments"
    stack: str = "stack"


@dataclass(frozen=True)
class Capabilities:
    """The capabilities of models with one config. Paths name modules within the body.

    >>> encoder_decoder = Capabilities(Modality.TEXT, Generates.TARGET, sides={"encoder": "encoder", "decoder": "decoder"})
    >>> encoder_decoder.describe()
    'reads a text and writes a target text'
    >>> encoder_decoder.side_of("decoder.layers.0.attention")
    'decoder'
    """

    input: Modality
    generates: Generates = Generates.NOTHING
    supports_packing: bool = False  # a row may hold several documents that do not attend to each other
    image_shape: ImageShape | None = None  # shape of the input images; None if the input is not an image
    mel: MelConfig | None = None  # sizes of the input spectrograms; None if the input is not a recording
    stride: int = 1  # input positions per hidden state, such as the frames that one vector stands for
    sides: Mapping[str, str] = field(default_factory=dict)  # path -> encoder, decoder or image encoder
    layers: tuple[str, ...] = ("stack.layers",)  # paths of the layer lists, each from input to output
    text_encoder: TextEncoderParts | None = None  # of a body that is nothing but these parts
    # modules below the first layer
    embeddings: tuple[str, ...] = ("words", "segments", "stack.position", "stack.enter")

    @property
    def is_autoregressive(self) -> bool:
        """Whether the model generates tokens one by one, with `start` and `step`."""
        return self.generates is not Generates.NOTHING

    @property
    def is_decoder_only(self) -> bool:
        """Whether one stack both reads the input and generates, without a separate encoder."""
        return self.generates in (Generates.CONTINUATION, Generates.IMAGE_CODES)

    @property
    def generates_text(self) -> bool:
        """Whether the model generates text, not image codes."""
        return self.generates in (Generates.CONTINUATION, Generates.TARGET)

    def describe(self) -> str:
        """Describe the model as a predicate, for messages."""
        if self.generates is Generates.NOTHING:
            return "predicts from numbers" if self.input is Modality.FEATURES else f"encodes {self.input}"
        if self.generates is Generates.CONTINUATION:
            return f"continues {self.input}"
        return f"reads {self.input} and writes {self.generates}"

    def side_of(self, path: str) -> str:
        """The side (encoder, decoder) of a module or parameter; "" for a model of one stack."""
        return next((side for prefix, side in self.sides.items() if path.startswith(f"{prefix}.")), "")

    def layer_of(self, path: str) -> tuple[int, str] | None:
        """The layer index of a module or parameter and its path within that layer; None outside of all layers.

        >>> Capabilities(Modality.TEXT).layer_of("stack.layers.3.attention.norm.weight")
        (3, 'attention.norm.weight')
        """
        for prefix in self.layers:
            if path.startswith(f"{prefix}."):
                index, _, rest = path[len(prefix) + 1 :].partition(".")
                return int(index), rest
        return None

    def is_embedding(self, path: str) -> bool:
        """Whether a module or parameter is below the first layer: token, segment, position or patch embeddings."""
        return any(path == prefix or path.startswith(f"{prefix}.") for prefix in self.embeddings)


ENCODER = Capabilities(Modality.TEXT, supports_packing=True)
EMBEDDING_ENCODER = replace(ENCODER, text_encoder=TextEncoderParts())  # such as BERT
DECODER = Capabilities(Modality.TEXT, Generates.CONTINUATION, supports_packing=True)
ENCODER_DECODER = Capabilities(
    Modality.TEXT,
    Generates.TARGET,
    sides={"encoder": "encoder", "decoder": "decoder"},
    layers=("encoder.layers", "decoder.layers"),
    embeddings=("words", "encoder.position", "encoder.enter", "decoder.position", "decoder.enter"),
)
ENCODER_WITHOUT_PACKING = replace(ENCODER, supports_packing=False)
