"""Building blocks of models: positional encodings, multi-head attention, layers, stacks, heads, recurrent layers, state."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from saccade.parts.feedforward import FeedForward as FeedForward
    from saccade.parts.layer import make_layer as make_layer
    from saccade.parts.multihead_attention import Attention as Attention
    from saccade.parts.position import POSITIONS as POSITIONS
    from saccade.parts.position import Rotary as Rotary
    from saccade.parts.stack import Stack as Stack
    from saccade.parts.state import State as State

_MODULE_OF = {
    "Attention": "multihead_attention",
    "FeedForward": "feedforward",
    "POSITIONS": "position",
    "Rotary": "position",
    "Stack": "stack",
    "State": "state",
    "make_layer": "layer",
}


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(import_module(f"saccade.parts.{_MODULE_OF[name]}"), name)
    raise AttributeError(f"module 'saccade.parts' has no attribute {name!r}; it has {', '.join(sorted(_MODULE_OF))}")
