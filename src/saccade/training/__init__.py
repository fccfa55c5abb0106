"""Training: configuration, loop, evaluation, crash-safe checkpoints with exact resume, and distributed training."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from saccade.training.evaluation import Evaluation as Evaluation
    from saccade.training.loop import Learner as Learner
    from saccade.training.loop import train_steps as train_steps
    from saccade.training.prepare import Job as Job

_MODULE_OF = {
    "Evaluation": "evaluation",
    "Job": "prepare",
    "Learner": "loop",
    "train_steps": "loop",
}


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(import_module(f"saccade.training.{_MODULE_OF[name]}"), name)
    raise AttributeError(f"module 'saccade.training' has no attribute {name!r}; it has {', '.join(sorted(_MODULE_OF))}")
