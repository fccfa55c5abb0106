"""The study `grammar`: does a language model find the grammatical one of two sentences likelier? By kind of grammar.

BLiMP (Warstadt et al. 2020, arXiv 1912.00582) has 67 x 1,000 pairs that differ as little as they can; who guesses is right half
of the time. The sentences are compared by their whole log-likelihood.
"""

import io
import json
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

import numpy as np

from saccade.audit.likelihood import ScoredRow, causal_logprobs, prefix_ids, truncate_ids
from saccade.audit.stats import estimate_fraction
from saccade.errors import DataError
from saccade.models.capabilities import Generates
from saccade.models.model import Model
from saccade.studies.grammar import show
from saccade.studies.study import OnProgress, Record, Study, StudyPlan, StudyRun
from saccade.tasks.base import require_tokenizer
from saccade.tasks.runs.run import open_run
from saccade.training.events import RunRefused

REQUIRED_KEYS = ("sentence_good", "sentence_bad", "linguistics_term")
MAC_METADATA_PREFIX = "._"  # what a Mac writes beside each file, also into archives such as BLiMP's own
PAIRS_PER_CHUNK = 4096  # pairs at a time, between words on how far it is


@dataclass(frozen=True)
class MinimalPair:
    """A sentence, one that is almost the same and wrong, and what kind of grammar tells them apart."""

    good: str
    bad: str
    phenomenon: str


def plan_runs(plan: StudyPlan) -> list[StudyRun]:
    """None are trained: the runs are there."""
    if not (plan.trained_runs and plan.data):
        raise RunRefused(
            "grammar needs language models, --trained-runs RUN RUN, and pairs of sentences, --data BLiMP.zip: that archive, a directory "
            f"of its files, or JSONL files whose lines have {', '.join(REQUIRED_KEYS)}."
        )
    return []


def measure(plan: StudyPlan, study_runs: Sequence[StudyRun], on_progress: OnProgress) -> Record:
    """How often each run finds the good sentence the likelier, over all pairs and by kind."""
    pairs = read_pairs(plan.data)
    right: dict[str, np.ndarray] = {}
    sizes = {}
    for run in plan.trained_runs:
        name = Path(run).name
        opened = open_run(run)
        model = opened.model
        if opened.task.needs.generates is not Generates.CONTINUATION:
            raise RunRefused(f"{run} does not say how likely a sentence is; language models do.")
        right[name], sizes[name] = (
            compare_pairs(model, pairs, lambda text, name=name: on_progress(f"{name}: {text}")),
            sum(p.numel() for p in model.parameters()),
        )
    kinds = np.array([pair.phenomenon for pair in pairs])
    groups = [
        {"name": kind, "pairs": int((kinds == kind).sum()), "accuracy": _accuracies(right, kinds == kind)}
        for kind in sorted(set(kinds.tolist()))
    ]
    everything = np.ones(len(pairs), bool)
    return {
        "runs": list(right),
        "parameters": sizes,
        "pairs": len(pairs),
        "overall": _accuracies(right, everything),
        "phenomena": groups,
    }


def _accuracies(hits: dict[str, np.ndarray], mask: np.ndarray) -> Record:
    return {name: asdict(estimate_fraction(name, found[mask], baseline=0.5)) for name, found in hits.items()}


def compare_pairs(
    model: Model, pairs: Sequence[MinimalPair], on_progress: OnProgress = lambda text: None
) -> np.ndarray:
    """Of each pair 1 where the good sentence is the likelier, 0 where the bad one is, and a half where they are equal."""
    found = []
    for start in range(0, len(pairs), PAIRS_PER_CHUNK):
        some = pairs[start : start + PAIRS_PER_CHUNK]
        costs = causal_logprobs(
            model, [_make_scored_row(model, text) for pair in some for text in (pair.good, pair.bad)]
        )
        sums = np.array([sum(one) for one in costs]).reshape(-1, 2)
        found.append((sums[:, 0] > sums[:, 1]) + 0.5 * (sums[:, 0] == sums[:, 1]))
        on_progress(f"{start + len(some):,} of {len(pairs):,} pairs")
    return np.concatenate(found)


def _make_scored_row(model: Model, text: str) -> ScoredRow:
    """A sentence behind what begins one; all of its own tokens are asked for."""
    first = prefix_ids(model)
    ids = truncate_ids(first + require_tokenizer(model).encode(text, add_special_tokens=False).ids, model)
    return ScoredRow(tuple(ids), tuple(range(max(1, len(first)), len(ids))))


def read_pairs(paths: Sequence[str]) -> list[MinimalPair]:
    """The pairs of all files, in their order; a directory or an archive stands for the JSONL files in it."""
    found = [pair for path in paths for name, file in _open_files(Path(path)) for pair in _parse_pairs(name, file)]
    if not found:
        raise DataError("there are no pairs", file=", ".join(paths), hint="give BLiMP.zip, or JSONL files of that kind")
    return found


def _open_files(path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    if path.is_dir():
        for inner in sorted((*path.rglob("*.jsonl"), *path.rglob("*.zip"))):
            if not inner.name.startswith(MAC_METADATA_PREFIX):
                yield from _open_files(inner)
    elif not path.exists():
        raise DataError("there is no such file", file=path, hint="give BLiMP.zip, or JSONL files of that kind")
    elif zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for name in sorted(archive.namelist()):
                if name.endswith(".jsonl") and not Path(name).name.startswith(MAC_METADATA_PREFIX):
                    yield f"{path}/{name}", io.BytesIO(archive.read(name))
    else:
        with path.open("rb") as file:
            yield str(path), file


def _parse_pairs(name: str, lines: Iterable[bytes]) -> Iterator[MinimalPair]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            yield MinimalPair(*(str(record[key]) for key in REQUIRED_KEYS))
        except (ValueError, KeyError, TypeError):
            shown = line.decode(errors="replace").strip()
            cure = f"each line is a JSON object with {', '.join(REQUIRED_KEYS)}"
            raise DataError("this is no pair of sentences", file=name, line=number, value=shown, hint=cure) from None


STUDY = Study(
    "Which of two sentences does a language model find likelier, the grammatical one or the other?",
    10.0,
    plan_runs,
    measure,
    show.make_tables,
    show.draw_plot,
)
