"""A model family: its config, how to build it, and how its Hugging Face config and weights map to ours and back."""

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
    """A model that encodes an input as vectors."""

    width: int

    def forward(self, batch: Batch) -> Tensor:  # (B, L, W)
        ...


class AutoregressiveModel(Protocol):
    """A model that generates token by token; one decoding loop serves all of them."""

    def start(self, batch: Batch) -> tuple[State, Text]:
        """Read the input; returns the decoding state and the tokens for the first step."""
        ...

    def step(self, text: Text, state: State) -> Tensor:
        """(B, T) new tokens to (B, T, V) logits of the token after each; the state is updated."""
        ...


class AutoregressiveBody(AutoregressiveModel, Protocol):
    """The body of an autoregressive model, with access to the hidden states before its language model head."""

    width: int

    @property
    def head(self) -> LMHead:  # (..., W) to (..., V)
        ...

    def hidden_states(self, text: Text, state: State) -> Tensor:
        """(B, T) new tokens to (B, T, W) hidden states; the state is updated."""
        ...


Body = Encoder | AutoregressiveBody


ExtraTensors = Mapping[str, Callable[[], Tensor]]  # published name -> the tensor of a new model


@dataclass(frozen=True)
class HeadSpec:
    """A head on top of a body: how it is built, and how its published tensor names map to its parameters."""

    build: Callable[..., nn.Module]  # (config, body, labels) -> head
    weight_map: WeightMap = field(default_factory=dict)
    architecture: str = ""  # the published class with this head
    other_architectures: tuple[str, ...] = ()  # published classes that have this head and another one
    derived_keys: Callable[[Any], Mapping[str, Any]] = lambda config: {}  # additional config keys of that class

    @property
    def architectures(self) -> tuple[str, ...]:
        """All published classes with this head."""
        return tuple(name for name in (self.architecture, *self.other_architectures) if name)


@dataclass(frozen=True)
class Family:
    """An entry of the family registry. "Published" is the Hugging Face form: config keys, tensor names and classes.

    Tensor names in `unprefixed`, `optional_tensors`, `ignored_tensors` and `pooler_tensors` are regular expressions.
    """

    name: str
    description: str  # one line, for listings
    config_class: type
    build: Callable[[Any], Body]  # config -> a new body, an `nn.Module` (see `new_body`)
    capabilities: Callable[[Any], Capabilities]  # config -> what its models can do
    # other names, used where the family of that name does not fit a task
    short_names: tuple[str, ...] = ()
    # config -> map of published tensor names to ours; None: there is no published form
    weight_map: Callable[[Any], WeightMap] | None = None
    is_unpublished: Callable[[Any], bool] = lambda config: False  # configs of a published family without published form
    import_only: bool = False  # published in a format that `saccade import` reads and `save` does not write
    config_keys: Mapping[str, str] = field(default_factory=dict)  # published config key -> our field
    required_values: Mapping[str, Any] = field(default_factory=dict)  # published keys with only one supported value
    # the same for keys that are read but no longer written
    accepted_values: Mapping[str, Any] = field(default_factory=dict)
    # config -> additional published keys that follow from it
    derived_keys: Callable[[Any], Mapping[str, Any]] = lambda config: {}
    # fills in defaults of a published config and translates its values
    normalize_config: Callable[[dict[str, Any]], dict[str, Any]] = lambda raw: raw
    heads: Mapping[str, HeadSpec] = field(default_factory=dict)
    prefix: str = ""  # prefix of the body's published tensor names in a model with a head
    unprefixed: tuple[str, ...] = ()  # published tensors outside of the body, which take no prefix
    optional_tensors: tuple[str, ...] = ()  # our tensors that a published file may lack; they keep their initial values
    ignored_tensors: tuple[str, ...] = ()  # published tensors without trained values
    # published tensors under the body's prefix that only a head uses
    pooler_tensors: tuple[str, ...] = ()
    architecture: str = ""  # the published class of the body without a head
    # (config, body) -> the config of a body that was resized after it was built
    config_of_body: Callable[[Any, Any], Any] = lambda config, body: config
    # config -> tensors of the published class that our body lacks, and how to make them
    extra_tensors: Callable[[Any], ExtraTensors] = lambda config: {}
    heads_with_extra_tensors: tuple[str, ...] = ()  # heads whose published classes have these tensors too
    # special-token template of a new tokenizer for an encoder; "": the task's own
    token_template: str = ""
    # weight initialization; None: the default of each module
    init_weights: Callable[[nn.Module, Any], None] | None = None

    def new_body(self, config: Any) -> nn.Module:
        """Build a body from its config."""
        body = self.build(config)
        assert isinstance(body, nn.Module), f"{self.name}: a body is an nn.Module"
        return body

    def is_published(self, config: Any) -> bool:
        """Whether a model of this config can be saved in the published (Hugging Face) form."""
        return self.weight_map is not None and not self.is_unpublished(config)

    def get_head(self, name: str) -> HeadSpec:
        """Return the head of that name; an unknown name is an error that lists all heads."""
        if name not in self.heads:
            raise ModelError(f"{self.name} has no head {name!r}; known are {', '.join(self.heads) or 'none'}.")
        return self.heads[name]

    def extra_tensors_for(self, config: Any, head: str | None) -> ExtraTensors:
        """Tensors of the published class with this head that our model lacks."""
        return self.extra_tensors(config) if head is None or head in self.heads_with_extra_tensors else {}

    def config_from_hf(self, raw: Mapping[str, Any]) -> Any:
        """Convert a published config to ours; raises an error that names any setting that is not supported."""
        raw = self.normalize_config(dict(raw))
        for key, value in {**self.required_values, **self.accepted_values}.items():
            if key in raw and raw[key] != value:
                raise ModelError(f"{self.name}: {key} = {raw[key]!r} is not supported; only {value!r} is.")
        for key, ours in self.config_keys.items():
            if ours == "activation" and key in raw:
                raw[key] = _parse_activation(raw[key])
        known = {field.name for field in fields(self.config_class)}
        values = {ours: raw[theirs] for theirs, ours in self.config_keys.items() if theirs in raw}
        assert values.keys() <= known, f"{self.name}: config_keys names fields that the config does not have"
        return self.config_class(**values)

    def config_to_hf(self, config: Any) -> dict[str, Any]:
        """Convert one of our configs to its published form."""
        raw: dict[str, Any] = {"model_type": self.name}
        # keys with a dot are internal to `normalize_config`; `derived_keys` writes their published form
        plain_keys = {theirs: ours for theirs, ours in self.config_keys.items() if "." not in theirs}
        raw |= {theirs: getattr(config, ours) for theirs, ours in plain_keys.items()}
        raw |= {
            key: PUBLISHED_ACTIVATIONS.get(raw[key], raw[key])
            for key, ours in self.config_keys.items()
            if ours == "activation"
        }
        return raw | dict(self.required_values) | dict(self.derived_keys(config))


ACTIVATION_ALIASES = {"gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu_python": "gelu", "swish": "silu"}
PUBLISHED_ACTIVATIONS = {"gelu_tanh": "gelu_new"}


def _parse_activation(name: str) -> str:
    """Convert the published name of an activation to ours."""
    name = ACTIVATION_ALIASES.get(name, name) if isinstance(name, str) else name
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise ModelError(
            f"The activation {name!r} is not supported; known are {', '.join([*ACTIVATIONS, *ACTIVATION_ALIASES])}."
        )
    return name
