"""What a family of models is: a config, how to build it, and how its published form maps to ours, both ways."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

from torch import Tensor, nn

from saccade.data import Batch, Text
from saccade.errors import ModelError
from saccade.models.capabilities import Capabilities
from saccade.models.weights import Names
from saccade.parts.feedforward import ACTIVATIONS
from saccade.parts.state import State


class Encoder(Protocol):
    """A model that turns an input into vectors."""

    width: int

    def forward(self, batch: Batch) -> Tensor:  # (B, L, W)
        ...


class AutoregressiveModel(Protocol):
    """A model that generates one token after the other: one loop serves all of them."""

    def start(self, batch: Batch) -> tuple[State, Text]:
        """Read the input; gives the memory, and the text that the first step takes."""
        ...

    def step(self, text: Text, state: State) -> Tensor:
        """(B, T) new tokens to (B, T, V) scores of what follows each; the state moves on."""
        ...


class AutoregressiveBody(AutoregressiveModel, Protocol):
    """A body that generates: its hidden states can be had before the head makes scores of them."""

    width: int
    head: Any  # WordHead: (..., W) to (..., V)

    def think(self, text: Text, state: State) -> Tensor:
        """(B, T) new tokens to (B, T, W) hidden states; the state moves on."""
        ...


Spares = Mapping[str, Callable[[], Tensor]]  # a published name, and what stands there in a new model


@dataclass(frozen=True)
class Head:
    """One way to read answers off a body: how it is built, and its published names (into the head's own parameters)."""

    build: Callable[..., nn.Module]  # (config, body, labels) -> head
    names: Names = field(default_factory=dict)
    architecture: str = ""  # the published class that has this head
    also_in: tuple[str, ...] = ()  # published classes that have it beside another one
    also: Callable[[Any], Mapping[str, Any]] = lambda config: {}  # further published keys that this class needs

    @property
    def classes(self) -> tuple[str, ...]:
        """Every published class that has it."""
        return tuple(name for name in (self.architecture, *self.also_in) if name)


@dataclass(frozen=True)
class Family:
    """One line of the table of families."""

    name: str
    said: str  # one line for a person
    config: type
    build: Callable[[Any], nn.Module]
    capabilities: Callable[[Any], Capabilities]  # what models of a config can do
    short_names: tuple[str, ...] = ()  # what it answers to as well, where the family of that name does not fit a task
    names: Callable[[Any], Names] | None = None  # published names -> ours; None where there is no published form
    unpublished: Callable[[Any], bool] = lambda config: False  # configs that have none, though others have one
    read_only: bool = False  # published, in a form that `saccade import` reads and nobody writes
    keys: Mapping[str, str] = field(default_factory=dict)  # published config key -> our field
    fixed: Mapping[str, Any] = field(default_factory=dict)  # published keys of which we know one value only
    only: Mapping[str, Any] = field(default_factory=dict)  # the same, of keys that are read and no longer written
    also: Callable[[Any], Mapping[str, Any]] = lambda config: {}  # further published keys that follow from a config
    adapt: Callable[[dict[str, Any]], dict[str, Any]] = lambda raw: raw  # what a published config leaves unsaid
    heads: Mapping[str, Head] = field(default_factory=dict)
    prefix: str = ""  # what published names of a body begin with when a head is beside it
    beside: tuple[str, ...] = ()  # published tensors that stand beside the body and take no prefix, as patterns
    optional: tuple[str, ...] = ()  # tensors of ours that a published file may lack: they stay as built
    ignored: tuple[str, ...] = ()  # published tensors that hold nothing learned, as patterns
    pooler: tuple[
        str, ...
    ] = ()  # published tensors that only a head reads, though they have a body's prefix, as patterns
    architecture: str = ""  # the published class of the bare body
    current: Callable[[Any, Any], Any] = lambda config, body: config  # (config, body) -> that of a body resized since
    spare: Callable[[Any], Spares] = lambda config: {}  # what that class has and our body does not: how it is made
    spare_with: tuple[str, ...] = ()  # the heads whose published classes have it too
    frame: str = ""  # what a reader's new tokenizer puts around a text or a pair; "": as the task has it
    fresh: Callable[[nn.Module, Any], None] | None = None  # how new weights are drawn; None: as the parts do

    def published(self, config: Any) -> bool:
        """Whether a model of such a config can go out in a form that others read."""
        return self.names is not None and not self.unpublished(config)

    def head(self, name: str) -> Head:
        """The head of that name, or an error with the names of all."""
        if name not in self.heads:
            raise ModelError(f"{self.name} has no head {name!r}; known are {', '.join(self.heads) or 'none'}.")
        return self.heads[name]

    def spares(self, config: Any, head: str | None) -> Spares:
        """Published tensors without a place in ours, for the class that has this head."""
        return self.spare(config) if head is None or head in self.spare_with else {}

    def read(self, raw: Mapping[str, Any]) -> Any:
        """A published config as one of ours; what we would compute differently is refused by name."""
        raw = self.adapt(dict(raw))
        for key, value in {**self.fixed, **self.only}.items():
            if key in raw and raw[key] != value:
                raise ModelError(f"{self.name}: {key} = {raw[key]!r} is not built here; only {value!r} is.")
        for key, ours in self.keys.items():
            if ours == "activation" and key in raw:
                raw[key] = _activation(raw[key])
        known = {field.name for field in fields(self.config)}
        wanted = {ours: raw[theirs] for theirs, ours in self.keys.items() if theirs in raw}
        assert wanted.keys() <= known, f"{self.name}: the key map names fields that the config does not have"
        return self.config(**wanted)

    def write(self, config: Any) -> dict[str, Any]:
        """One of our configs in its published form."""
        raw: dict[str, Any] = {"model_type": self.name}
        plain = {theirs: ours for theirs, ours in self.keys.items() if "." not in theirs}  # others: `adapt` and `also`
        raw |= {theirs: getattr(config, ours) for theirs, ours in plain.items()}
        raw |= {key: PUBLISHED_BENDS.get(raw[key], raw[key]) for key, ours in self.keys.items() if ours == "activation"}
        return raw | dict(self.fixed) | dict(self.also(config))


BENDS = {"gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu_python": "gelu", "swish": "silu"}
PUBLISHED_BENDS = {"gelu_tanh": "gelu_new"}


def _activation(name: str) -> str:
    """The published name of an activation as ours."""
    name = BENDS.get(name, name) if isinstance(name, str) else name
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise ModelError(f"The activation {name!r} is not built here; known are {', '.join([*ACTIVATIONS, *BENDS])}.")
    return name
