"""Try every task with every family: which pairs train one step, save, load and predict, and how the others are rejected.

    python tools/task_family_pairs.py pairs.json          # TASKS x FAMILIES, small models on the samples of the package

The outcome of a pair is `works`, `refused` (with an error message for the user) or `crashed`.
"""

import json
import sys
import tempfile
import time
import traceback
from dataclasses import fields
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "contracts"))
from test_families import SIZES

from saccade.models.registry import FAMILIES
from saccade.tasks.predict import predict
from saccade.tasks.pretrain import OBJECTIVES
from saccade.tasks.registry import TASKS
from saccade.tasks.runs.run import open_run
from saccade.training.events import RunResult
from saccade.training.prepare import Job, prepare
from saccade.training.run import run_training

SET_BY_DATA = {"vocab", "begin", "points", "features", "outputs"}  # fields that follow from the data


def small_sizes(family: Any, task: str) -> dict[str, Any]:
    known = {item.name for item in fields(family.config_class)}
    sizes = {name: value for name, value in SIZES[family.name].items() if name in known - SET_BY_DATA}
    if "length" in sizes:
        sizes["length"] = 256
    return sizes


def try_pair(task: str, settings: dict[str, Any], family: Any) -> dict[str, str]:
    with tempfile.TemporaryDirectory() as home:
        out = Path(home) / "run"
        train = {"max_steps": 1, "batch_tokens": 256, "batch_size": 2, "max_eval_examples": 2, "device": "cpu"}
        try:
            if task == "regress":
                train.pop("rows")
            job = Job(
                task, (), family.name, model_fields=small_sizes(family, task), task_fields=settings, train_fields=train
            )
            prepared = prepare(job)
            prepared.splits.dev.examples = prepared.splits.dev.examples[:2]
            result = [event for event in run_training(prepared, out) if isinstance(event, RunResult)][-1]
            run = open_run(out)
            predict(run.task, run.model, prepared.splits.dev.examples)
            first = next(iter(result.scores["dev"]), None)
            return {"outcome": "works", "said": first.name if first else ""}
        except ValueError as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            return {"outcome": "refused", "said": str(error)[:300], "at": f"{Path(where.filename).name}:{where.lineno}"}
        except BaseException as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            message = f"{type(error).__name__}: {str(error)[:200]}"
            return {"outcome": "crashed", "said": message, "at": f"{Path(where.filename).name}:{where.lineno}"}


def main(path: str) -> None:
    tasks: list[tuple[str, str, dict[str, Any]]] = []
    for task in TASKS:
        if task.name == "pretrain":
            tasks += [
                (f"pretrain {objective.name}", "pretrain", {"objective": objective.name}) for objective in OBJECTIVES
            ]
        else:
            tasks.append((task.name, task.name, {}))
    results: dict[str, dict[str, dict[str, str]]] = {}
    for title, name, settings in tasks:
        for family in FAMILIES:
            start = time.monotonic()
            result = try_pair(name, settings, family)
            results.setdefault(title, {})[family.name] = result
            print(
                f"{title:18} {family.name:22} {result['outcome']:8} {time.monotonic() - start:5.1f} s  {result['said'][:110]}",
                flush=True,
            )
        Path(path).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
