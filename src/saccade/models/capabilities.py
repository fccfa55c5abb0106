"""What a family can do, declared for a config: what it reads, what it generates, and where the parts of its body are.

A task declares what it needs (`saccade.tasks.needs`), and `check_fit` compares the two before any data is read. Nothing looks
into a body to find out what it is.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

ImageShape = tuple[int | None, int | None, int | None]  # channels, rows, columns; None where any number will do


class Modality(Enum):
    """The kind of input that a model encodes."""

    TEXT = "a text"
    IMAGE = "an image"
    FEATURES = "numbers"

    def __str__(self) -> str:
        return self.value


class Generates(Enum):
    """What a model generates: an encoder nothing, a decoder the continuation of its input, an encoder-decoder a target text."""

    NOTHING = "nothing"
    CONTINUATION = "a continuation"
    TARGET = "a target text"
    IMAGE_CODES = "the codes of an image"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Capabilities:
    """What the models of one config can do. Paths are those of modules within the body.

    >>> encoder_decoder = Capabilities(Modality.TEXT, Generates.TARGET, sides={"encoder": "encoder", "decoder": "decoder"})
    >>> encoder_decoder.describe()
    'reads a text and writes a target text'
    >>> encoder_decoder.side_of("decoder.layers.0.attention")
    'decoder'
    """

    input: Modality
    generates: Generates = Generates.NOTHING
    supports_packing: bool = False  # a row may hold several documents that do not attend to each other
    image_shape: ImageShape | None = None  # of the images that it reads; None where it reads none
    sides: Mapping[str, str] = field(default_factory=dict)  # path -> encoder, decoder or image encoder
    layers: tuple[str, ...] = ("stack.layers",)  # the lists of layers, each from the input to the output
    embeddings: tuple[str, ...] = (
        "words",
        "segments",
        "stack.position",
        "stack.enter",
    )  # what lies below the first layer

    @property
    def is_autoregressive(self) -> bool:
        """Whether it generates tokens one after the other, with `start` and `step`."""
        return self.generates is not Generates.NOTHING

    @property
    def is_decoder_only(self) -> bool:
        """Whether it generates in the stack that reads, rather than in a decoder of its own."""
        return self.generates in (Generates.CONTINUATION, Generates.IMAGE_CODES)

    @property
    def generates_text(self) -> bool:
        return self.generates in (Generates.CONTINUATION, Generates.TARGET)

    def describe(self) -> str:
        """What such a model does, as a predicate."""
        if self.generates is Generates.NOTHING:
            return "predicts from numbers" if self.input is Modality.FEATURES else f"encodes {self.input}"
        if self.generates is Generates.CONTINUATION:
            return f"continues {self.input}"
        return f"reads {self.input} and writes {self.generates}"

    def side_of(self, path: str) -> str:
        """The side that a module or parameter belongs to; "" where a model has one stack."""
        return next((side for prefix, side in self.sides.items() if path.startswith(f"{prefix}.")), "")

    def layer_of(self, path: str) -> tuple[int, str] | None:
        """The number of the layer that a module or parameter belongs to, and its path within; None outside of all layers.

        >>> Capabilities(Modality.TEXT).layer_of("stack.layers.3.attention.norm.weight")
        (3, 'attention.norm.weight')
        """
        for prefix in self.layers:
            if path.startswith(f"{prefix}."):
                number, _, rest = path[len(prefix) + 1 :].partition(".")
                return int(number), rest
        return None

    def is_embedding(self, path: str) -> bool:
        """Whether a module or parameter lies below the first layer: words, segments, positions, patches."""
        return any(path == prefix or path.startswith(f"{prefix}.") for prefix in self.embeddings)


ENCODER = Capabilities(Modality.TEXT, supports_packing=True)
DECODER = Capabilities(Modality.TEXT, Generates.CONTINUATION, supports_packing=True)
ENCODER_DECODER = Capabilities(
    Modality.TEXT,
    Generates.TARGET,
    sides={"encoder": "encoder", "decoder": "decoder"},
    layers=("encoder.layers", "decoder.layers"),
    embeddings=("words", "encoder.position", "encoder.enter", "decoder.position", "decoder.enter"),
)
ENCODER_WITHOUT_PACKING = replace(ENCODER, supports_packing=False)
