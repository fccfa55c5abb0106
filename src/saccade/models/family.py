"""What a family of models is: a config, how to build it, and how its published form maps to ours, both ways."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

from torch import Tensor, nn

from saccade.data import Batch, Text
from saccade.errors import ModelError
from saccade.models.capabilities import Capabilities
from saccade.models.weight_map import WeightMap
from saccade.parts.feedforward import ACTIVATIONS
from saccade.parts.heads import LMHead
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
    """The body of an autoregressive model, which gives access to the hidden states in front of its language model head."""

    width: int

    @property
    def head(self) -> LMHead:  # (..., W) to (..., V)
        ...

    def hidden_states(self, text: Text, state: State) -> Tensor:
        """(B, T) new tokens to (B, T, W) hidden states; the state is updated."""
        ...


Body = Encoder | AutoregressiveBody


ExtraTensors = Mapping[str, Callable[[], Tensor]]  # a published name, and what stands there in a new model


@dataclass(frozen=True)
class HeadSpec:
    """One way to read answers off a body: how it is built, and its published names (into the head's own parameters)."""

    build: Callable[..., nn.Module]  # (config, body, labels) -> head
    weight_map: WeightMap = field(default_factory=dict)
    architecture: str = ""  # the published class that has this head
    other_architectures: tuple[str, ...] = ()  # published classes that have it beside another one
    derived_keys: Callable[[Any], Mapping[str, Any]] = lambda config: {}  # further published keys that this class needs

    @property
    def architectures(self) -> tuple[str, ...]:
        """Every published class that has it."""
        return tuple(name for name in (self.architecture, *self.other_architectures) if name)


@dataclass(frozen=True)
class Family:
    """One line of the table of families."""

    name: str
    description: str  # one line for a person
    config_class: type
    build: Callable[[Any], Body]  # config -> a new body, an `nn.Module` (see `new_body`)
    capabilities: Callable[[Any], Capabilities]  # what models of a config can do
    short_names: tuple[str, ...] = ()  # what it answers to as well, where the family of that name does not fit a task
    weight_map: Callable[[Any], WeightMap] | None = (
        None  # published names -> ours; None where there is no published form
    )
    is_unpublished: Callable[[Any], bool] = lambda config: False  # configs that have none, though others have one
    import_only: bool = False  # published, in a form that `saccade import` reads and nobody writes
    config_keys: Mapping[str, str] = field(default_factory=dict)  # published config key -> our field
    required_values: Mapping[str, Any] = field(default_factory=dict)  # published keys of which we know one value only
    accepted_values: Mapping[str, Any] = field(
        default_factory=dict
    )  # the same, of keys that are read and no longer written
    derived_keys: Callable[[Any], Mapping[str, Any]] = (
        lambda config: {}
    )  # further published keys that follow from a config
    normalize_config: Callable[[dict[str, Any]], dict[str, Any]] = lambda raw: (
        raw
    )  # what a published config leaves unsaid
    heads: Mapping[str, HeadSpec] = field(default_factory=dict)
    prefix: str = ""  # what published names of a body begin with when a head is beside it
    unprefixed: tuple[str, ...] = ()  # published tensors that stand beside the body and take no prefix, as patterns
    optional_tensors: tuple[str, ...] = ()  # tensors of ours that a published file may lack: they stay as built
    ignored_tensors: tuple[str, ...] = ()  # published tensors that hold nothing learned, as patterns
    pooler_tensors: tuple[
        str, ...
    ] = ()  # published tensors that only a head reads, though they have a body's prefix, as patterns
    architecture: str = ""  # the published class of the bare body
    config_of_body: Callable[[Any, Any], Any] = lambda config, body: (
        config
    )  # (config, body) -> that of a body resized since
    extra_tensors: Callable[[Any], ExtraTensors] = (
        lambda config: {}
    )  # what that class has and our body does not: how it is made
    heads_with_extra_tensors: tuple[str, ...] = ()  # the heads whose published classes have it too
    token_template: str = ""  # what a reader's new tokenizer puts around a text or a pair; "": as the task has it
    init_weights: Callable[[nn.Module, Any], None] | None = None  # how new weights are drawn; None: as the parts do

    def new_body(self, config: Any) -> nn.Module:
        """Build a body from its config."""
        body = self.build(config)
        assert isinstance(body, nn.Module), f"{self.name}: a body is an nn.Module"
        return body

    def is_published(self, config: Any) -> bool:
        """Whether a model of such a config can go out in a form that others read."""
        return self.weight_map is not None and not self.is_unpublished(config)

    def get_head(self, name: str) -> HeadSpec:
        """The head of that name, or an error with the names of all."""
        if name not in self.heads:
            raise ModelError(f"{self.name} has no head {name!r}; known are {', '.join(self.heads) or 'none'}.")
        return self.heads[name]

    def extra_tensors_for(self, config: Any, head: str | None) -> ExtraTensors:
        """Published tensors without a place in ours, for the class that has this head."""
        return self.extra_tensors(config) if head is None or head in self.heads_with_extra_tensors else {}

    def config_from_hf(self, raw: Mapping[str, Any]) -> Any:
        """A published config as one of ours; what we would compute differently is refused by name."""
        raw = self.normalize_config(dict(raw))
        for key, value in {**self.required_values, **self.accepted_values}.items():
            if key in raw and raw[key] != value:
                raise ModelError(f"{self.name}: {key} = {raw[key]!r} is not built here; only {value!r} is.")
        for key, ours in self.config_keys.items():
            if ours == "activation" and key in raw:
                raw[key] = _parse_activation(raw[key])
        known = {field.name for field in fields(self.config_class)}
        wanted = {ours: raw[theirs] for theirs, ours in self.config_keys.items() if theirs in raw}
        assert wanted.keys() <= known, f"{self.name}: the key map names fields that the config does not have"
        return self.config_class(**wanted)

    def config_to_hf(self, config: Any) -> dict[str, Any]:
        """One of our configs in its published form."""
        raw: dict[str, Any] = {"model_type": self.name}
        plain = {
            theirs: ours for theirs, ours in self.config_keys.items() if "." not in theirs
        }  # others: `normalize_config` and `derived_keys`
        raw |= {theirs: getattr(config, ours) for theirs, ours in plain.items()}
        raw |= {
            key: PUBLISHED_ACTIVATIONS.get(raw[key], raw[key])
            for key, ours in self.config_keys.items()
            if ours == "activation"
        }
        return raw | dict(self.required_values) | dict(self.derived_keys(config))


ACTIVATION_ALIASES = {"gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu_python": "gelu", "swish": "silu"}
PUBLISHED_ACTIVATIONS = {"gelu_tanh": "gelu_new"}


def _parse_activation(name: str) -> str:
    """The published name of an activation as ours."""
    name = ACTIVATION_ALIASES.get(name, name) if isinstance(name, str) else name
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise ModelError(
            f"The activation {name!r} is not built here; known are {', '.join([*ACTIVATIONS, *ACTIVATION_ALIASES])}."
        )
    return name
