"""saccade: attention and transformers you can train, watch, measure and compare.

The top level is lazy: a name is imported when it is first used, so the command line answers without loading torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

_LAZY_IMPORTS = {
    "watch": "saccade.attention",
    "check": "saccade.checking",
    "load": "saccade.models.load",
    "encode": "saccade.models.embed_texts",
    "embed": "saccade.models.embed_texts",
    "generate": "saccade.decoding",
    "fast": "saccade.engine",
    "look": "saccade.explain.look",
    "train": "saccade.training.api",
    "SaccadeError": "saccade.errors",
    "UsageError": "saccade.errors",
    "DataError": "saccade.errors",
    "ModelError": "saccade.errors",
    "ResourceError": "saccade.errors",
    "DivergedError": "saccade.errors",
    "evaluate": "saccade.training.evaluate",
}

if TYPE_CHECKING:
    from saccade.attention import watch as watch
    from saccade.checking import check as check
    from saccade.decoding import generate as generate
    from saccade.engine import fast as fast
    from saccade.errors import DataError as DataError
    from saccade.errors import DivergedError as DivergedError
    from saccade.errors import ModelError as ModelError
    from saccade.errors import ResourceError as ResourceError
    from saccade.errors import SaccadeError as SaccadeError
    from saccade.errors import UsageError as UsageError
    from saccade.explain.look import look as look
    from saccade.models.embed_texts import embed as embed
    from saccade.models.embed_texts import encode as encode
    from saccade.models.load import load as load
    from saccade.training.api import train as train
    from saccade.training.evaluate import evaluate as evaluate


def __getattr__(name: str):
    if name in _LAZY_IMPORTS:
        return getattr(import_module(_LAZY_IMPORTS[name]), name)
    raise AttributeError(f"module 'saccade' has no attribute {name!r}; it has {', '.join(sorted(_LAZY_IMPORTS))}")


def __dir__() -> list[str]:
    return sorted([*_LAZY_IMPORTS, "__version__"])
