"""saccade: attention and transformers you can train, watch, measure and compare.

The top level is lazy: a name is imported when it is first used, so the command line answers without loading torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_LAZY_IMPORTS = {
    "load": "saccade.models.load",
    "new": "saccade.models.build",
    "open_run": "saccade.api.run",
    "list_runs": "saccade.training.runs",
    "predict": "saccade.api.run",
    "evaluate": "saccade.api.run",
    "train": "saccade.api.train",
    "cross_validate": "saccade.api.train",
    "generate": "saccade.api.generate",
    "encode": "saccade.models.embed_texts",
    "embed": "saccade.api.embed",
    "look": "saccade.explain.look",
    "watch": "saccade.attention",
    "check": "saccade.checking",
    "register": "saccade.registration",
    "fast": "saccade.engine",
    "Run": "saccade.api.run",
    "RunInfo": "saccade.training.runs",
    "RunList": "saccade.training.runs",
    "Predictions": "saccade.tasks.interface.predictions",
    "Evaluation": "saccade.training.evaluation",
    "GenerationConfig": "saccade.decoding.config",
    "TrainConfig": "saccade.training.config",
    "SaccadeError": "saccade.errors",
    "UsageError": "saccade.errors",
    "DataError": "saccade.errors",
    "ModelError": "saccade.errors",
    "ResourceError": "saccade.errors",
    "DivergedError": "saccade.errors",
}

_NEED_NO_PLUGINS = ("saccade.errors", "saccade.registration", "saccade.checking", "saccade.attention")

if TYPE_CHECKING:
    from saccade.api.embed import embed as embed
    from saccade.api.generate import generate as generate
    from saccade.api.run import Run as Run
    from saccade.api.run import evaluate as evaluate
    from saccade.api.run import open_run as open_run
    from saccade.api.run import predict as predict
    from saccade.api.train import cross_validate as cross_validate
    from saccade.api.train import train as train
    from saccade.attention import watch as watch
    from saccade.checking import check as check
    from saccade.decoding.config import GenerationConfig as GenerationConfig
    from saccade.engine import fast as fast
    from saccade.errors import DataError as DataError
    from saccade.errors import DivergedError as DivergedError
    from saccade.errors import ModelError as ModelError
    from saccade.errors import ResourceError as ResourceError
    from saccade.errors import SaccadeError as SaccadeError
    from saccade.errors import UsageError as UsageError
    from saccade.explain.look import look as look
    from saccade.models.build import new as new
    from saccade.models.embed_texts import encode as encode
    from saccade.models.load import load as load
    from saccade.registration import register as register
    from saccade.tasks.interface.predictions import Predictions as Predictions
    from saccade.training.config import Config as TrainConfig  # noqa: F401  # pyright: ignore[reportUnusedImport]
    from saccade.training.evaluation import Evaluation as Evaluation
    from saccade.training.runs import RunInfo as RunInfo
    from saccade.training.runs import RunList as RunList
    from saccade.training.runs import list_runs as list_runs


def __getattr__(name: str) -> Any:
    if name in _LAZY_IMPORTS:
        if _LAZY_IMPORTS[name] not in _NEED_NO_PLUGINS:
            import_module("saccade.plugins").load_plugins()  # those of SACCADE_PLUGINS and of installed packages
        return getattr(import_module(_LAZY_IMPORTS[name]), "Config" if name == "TrainConfig" else name)
    raise AttributeError(f"module 'saccade' has no attribute {name!r}; it has {', '.join(sorted(_LAZY_IMPORTS))}")


def __dir__() -> list[str]:
    return sorted([*_LAZY_IMPORTS, "__version__"])
