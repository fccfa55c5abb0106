"""The study `grammar`: does a language model assign a higher likelihood to the grammatical sentence of a minimal pair?

BLiMP (Warstadt et al. 2020, arXiv 1912.00582) has 67 x 1,000 minimal pairs, grouped by phenomenon; chance level is one half. The
sentences are compared by the log-likelihood of the whole sentence.
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
MAC_METADATA_PREFIX = "._"  # metadata files of macOS, which are also in BLiMP's archive
PAIRS_PER_CHUNK = 4096  # pairs between two progress messages


@dataclass(frozen=True)
class MinimalPair:
    """A grammatical sentence, a minimally different ungrammatical one, and the phenomenon in which they differ."""

    good: str
    bad: str
    phenomenon: str


def plan_runs(plan: StudyPlan) -> list[StudyRun]:
    """No runs: the study measures existing ones."""
    if not (plan.trained_runs and plan.data):
        raise RunRefused(
            "grammar needs language models, --trained-runs RUN RUN, and minimal pairs, --data BLiMP.zip: the archive, a "
            f"directory with its files, or JSONL files with the keys {', '.join(REQUIRED_KEYS)}."
        )
    return []


def measure(plan: StudyPlan, study_runs: Sequence[StudyRun], on_progress: OnProgress) -> Record:
    """The accuracy of each run, over all pairs and by phenomenon."""
    pairs = read_pairs(plan.data)
    hits: dict[str, np.ndarray] = {}
    sizes = {}
    for run in plan.trained_runs:
        name = Path(run).name
        open_model = open_run(run)
        model = open_model.model
        if open_model.task.needs.generates is not Generates.CONTINUATION:
            raise RunRefused(f"{run} is not a language model, which the study needs to score sentences.")
        hits[name] = compare_pairs(model, pairs, lambda text, name=name: on_progress(f"{name}: {text}"))
        sizes[name] = sum(p.numel() for p in model.parameters())
    phenomena = np.array([pair.phenomenon for pair in pairs])
    groups = [
        {
            "name": phenomenon,
            "pairs": int((phenomena == phenomenon).sum()),
            "accuracy": _accuracies(hits, phenomena == phenomenon),
        }
        for phenomenon in sorted(set(phenomena.tolist()))
    ]
    all_pairs = np.ones(len(pairs), bool)
    return {
        "runs": list(hits),
        "parameters": sizes,
        "pairs": len(pairs),
        "overall": _accuracies(hits, all_pairs),
        "phenomena": groups,
    }


def _accuracies(hits: dict[str, np.ndarray], mask: np.ndarray) -> Record:
    return {name: asdict(estimate_fraction(name, values[mask], baseline=0.5)) for name, values in hits.items()}


def compare_pairs(
    model: Model, pairs: Sequence[MinimalPair], on_progress: OnProgress = lambda text: None
) -> np.ndarray:
    """For each pair 1 if the grammatical sentence is more likely, 0 if it is less likely, and 0.5 for a tie."""
    hits = []
    for start in range(0, len(pairs), PAIRS_PER_CHUNK):
        chunk = pairs[start : start + PAIRS_PER_CHUNK]
        logprobs = causal_logprobs(
            model, [_make_scored_row(model, text) for pair in chunk for text in (pair.good, pair.bad)]
        )
        sums = np.array([sum(row) for row in logprobs]).reshape(-1, 2)
        hits.append((sums[:, 0] > sums[:, 1]) + 0.5 * (sums[:, 0] == sums[:, 1]))
        on_progress(f"{start + len(chunk):,} of {len(pairs):,} pairs")
    return np.concatenate(hits)


def _make_scored_row(model: Model, text: str) -> ScoredRow:
    """A sentence after the prefix of the model, with all its own tokens to be scored."""
    prefix = prefix_ids(model)
    ids = truncate_ids(prefix + require_tokenizer(model).encode(text, add_special_tokens=False).ids, model)
    return ScoredRow(tuple(ids), tuple(range(max(1, len(prefix)), len(ids))))


def read_pairs(paths: Sequence[str]) -> list[MinimalPair]:
    """The pairs of all files in order; a directory or an archive stands for its JSONL files."""
    pairs = [pair for path in paths for name, file in _open_files(Path(path)) for pair in _parse_pairs(name, file)]
    if not pairs:
        raise DataError("there are no pairs", file=", ".join(paths), hint="give BLiMP.zip or its JSONL files")
    return pairs


def _open_files(path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    if path.is_dir():
        for inner in sorted((*path.rglob("*.jsonl"), *path.rglob("*.zip"))):
            if not inner.name.startswith(MAC_METADATA_PREFIX):
                yield from _open_files(inner)
    elif not path.exists():
        raise DataError("there is no such file", file=path, hint="give BLiMP.zip or its JSONL files")
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
            cure = f"each line must be a JSON object with {', '.join(REQUIRED_KEYS)}"
            raise DataError("this is not a pair of sentences", file=name, line=number, value=shown, hint=cure) from None


STUDY = Study(
    "Does a language model assign a higher likelihood to the grammatical sentence of a minimal pair?",
    10.0,
    plan_runs,
    measure,
    show.make_tables,
    show.draw_plot,
)
