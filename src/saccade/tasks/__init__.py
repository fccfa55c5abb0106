"""Tasks: what a model is trained for, and how it is scored. M families and N tasks meet in M + N files."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from saccade.tasks.base import Task as Task
    from saccade.tasks.neural_cache import neural_cache_nll as neural_cache_nll
    from saccade.tasks.paint_pictures import from_png as from_png
    from saccade.tasks.pretrain.masked_image import render_reconstruction as render_reconstruction
    from saccade.tasks.prompting.few_shot import FewShot as FewShot
    from saccade.tasks.records.validity import check_validity as check_validity
    from saccade.tasks.records.validity import get_record_format as get_record_format
    from saccade.tasks.registry import TASKS as TASKS

_MODULE_OF = {
    "FewShot": "prompting.few_shot",
    "TASKS": "registry",
    "Task": "base",
    "check_validity": "records.validity",
    "from_png": "paint_pictures",
    "get_record_format": "records.validity",
    "neural_cache_nll": "neural_cache",
    "render_reconstruction": "pretrain.masked_image",
}


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(import_module(f"saccade.tasks.{_MODULE_OF[name]}"), name)
    raise AttributeError(f"module 'saccade.tasks' has no attribute {name!r}; it has {', '.join(sorted(_MODULE_OF))}")
