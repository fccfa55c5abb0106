"""Images: loading, pixels, augmentation, and the discrete autoencoder."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from saccade.vision.pixels import load_pixels as load_pixels

_MODULE_OF = {
    "load_pixels": "pixels",
}


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(import_module(f"saccade.vision.{_MODULE_OF[name]}"), name)
    raise AttributeError(f"module 'saccade.vision' has no attribute {name!r}; it has {', '.join(sorted(_MODULE_OF))}")
