"""`saccade train --folds`: cross-validation with progress for each fold, and a table of the scores at the end."""

import json
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from saccade.api.cross_validation import CrossValidation, Fold, make_folds
from saccade.cli.train_flags import TrainRequest
from saccade.cli.train_progress import TrainProgress
from saccade.training.events import RunResult
from saccade.training.run import run_training


def train_folds(request: TrainRequest, out: Path, count: int, *, as_json: bool, log: Callable[[str], None]) -> int:
    """Train every fold, or resume; returns the exit code."""
    folds = make_folds(request.job, out, count)
    results: list[RunResult] = []
    for fold in folds:
        log(f"fold {fold.number} of {count}: {fold.directory}")
        prepared_log = log if fold.number == 1 else (lambda text: None)  # the data are the same in every fold
        result = _train_fold(replace(request, job=fold.job), fold, as_json=as_json, log=prepared_log)
        if result.signal is not None:
            return 128 + result.signal
        results.append(result)
    summary = CrossValidation.from_results(folds, results)
    path = summary.write(out)
    log(f"written    {path}")
    print(json.dumps({"out": str(out), **summary.as_dict()}) if as_json else f"\n{summary}")
    return 0


def _train_fold(request: TrainRequest, fold: Fold, *, as_json: bool, log: Callable[[str], None]) -> RunResult:
    prepared = request.prepare(log)
    result: RunResult | None = None
    with (
        TrainProgress(fold.directory, sys.stderr if as_json else sys.stdout) as progress,
        closing(run_training(prepared, fold.directory)) as events,
    ):
        for event in events:
            progress.show(event)
            result = event if isinstance(event, RunResult) else result
    assert result is not None, "the last event of a run is its result"
    return result
