"""Model families, one short file each, and loading and saving of pretrained weights."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from saccade.models.build import new as new
    from saccade.models.model import Model as Model
    from saccade.models.pooling import Normalize as Normalize
    from saccade.models.pooling import Pooling as Pooling
    from saccade.models.registry import FAMILIES as FAMILIES

_MODULE_OF = {
    "FAMILIES": "registry",
    "Model": "model",
    "Normalize": "pooling",
    "Pooling": "pooling",
    "new": "build",
}


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(import_module(f"saccade.models.{_MODULE_OF[name]}"), name)
    raise AttributeError(f"module 'saccade.models' has no attribute {name!r}; it has {', '.join(sorted(_MODULE_OF))}")
