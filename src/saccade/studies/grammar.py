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

from saccade.audit.likelihood import Row, beginning, fit, written
from saccade.audit.stats import share
from saccade.errors import DataError
from saccade.models.capabilities import Generates
from saccade.models.model import Model
from saccade.studies import grammar_shown
from saccade.studies.study import Member, Plan, Record, Study, Told
from saccade.tasks.opening import open_run
from saccade.tasks.task import need_tokenizer
from saccade.training.events import Refused

NEEDED = ("sentence_good", "sentence_bad", "linguistics_term")
BESIDE = "._"  # what a Mac writes beside each file, also into archives such as BLiMP's own
PART = 4096  # pairs at a time, between words on how far it is


@dataclass(frozen=True)
class Two:
    """A sentence, one that is almost the same and wrong, and what kind of grammar tells them apart."""

    good: str
    bad: str
    kind: str


def members(plan: Plan) -> list[Member]:
    """None are trained: the runs are there."""
    if not (plan.runs and plan.data):
        raise Refused(
            "grammar needs language models, --runs RUN RUN, and pairs of sentences, --data BLiMP.zip: that archive, a directory "
            f"of its files, or JSONL files whose lines have {', '.join(NEEDED)}."
        )
    return []


def measure(plan: Plan, trained: Sequence[Member], told: Told) -> Record:
    """How often each run finds the good sentence the likelier, over all pairs and by kind."""
    pairs = read(plan.data)
    right: dict[str, np.ndarray] = {}
    sizes = {}
    for run in plan.runs:
        name = Path(run).name
        task, model = open_run(run)
        if task.needs.generates is not Generates.CONTINUATION:
            raise Refused(f"{run} does not say how likely a sentence is; language models do.")
        right[name], sizes[name] = (
            judged(model, pairs, lambda text, name=name: told(f"{name}: {text}")),
            sum(p.numel() for p in model.parameters()),
        )
    kinds = np.array([pair.kind for pair in pairs])
    groups = [
        {"name": kind, "pairs": int((kinds == kind).sum()), "right": _shares(right, kinds == kind)}
        for kind in sorted(set(kinds.tolist()))
    ]
    everything = np.ones(len(pairs), bool)
    return {
        "runs": list(right),
        "parameters": sizes,
        "pairs": len(pairs),
        "whole": _shares(right, everything),
        "kinds": groups,
    }


def _shares(right: dict[str, np.ndarray], some: np.ndarray) -> Record:
    return {name: asdict(share(name, found[some], baseline=0.5)) for name, found in right.items()}


def judged(model: Model, pairs: Sequence[Two], told: Told = lambda text: None) -> np.ndarray:
    """Of each pair 1 where the good sentence is the likelier, 0 where the bad one is, and a half where they are equal."""
    found = []
    for start in range(0, len(pairs), PART):
        some = pairs[start : start + PART]
        costs = written(model, [_row(model, text) for pair in some for text in (pair.good, pair.bad)])
        sums = np.array([sum(one) for one in costs]).reshape(-1, 2)
        found.append((sums[:, 0] > sums[:, 1]) + 0.5 * (sums[:, 0] == sums[:, 1]))
        told(f"{start + len(some):,} of {len(pairs):,} pairs")
    return np.concatenate(found)


def _row(model: Model, text: str) -> Row:
    """A sentence behind what begins one; all of its own tokens are asked for."""
    first = beginning(model)
    ids = fit(first + need_tokenizer(model).encode(text, special=False).ids, model)
    return Row(tuple(ids), tuple(range(max(1, len(first)), len(ids))))


def read(paths: Sequence[str]) -> list[Two]:
    """The pairs of all files, in their order; a directory or an archive stands for the JSONL files in it."""
    found = [pair for path in paths for name, file in _files(Path(path)) for pair in _pairs(name, file)]
    if not found:
        raise DataError("there are no pairs", file=", ".join(paths), cure="give BLiMP.zip, or JSONL files of that kind")
    return found


def _files(path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    if path.is_dir():
        for inner in sorted((*path.rglob("*.jsonl"), *path.rglob("*.zip"))):
            if not inner.name.startswith(BESIDE):
                yield from _files(inner)
    elif not path.exists():
        raise DataError("there is no such file", file=path, cure="give BLiMP.zip, or JSONL files of that kind")
    elif zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for name in sorted(archive.namelist()):
                if name.endswith(".jsonl") and not Path(name).name.startswith(BESIDE):
                    yield f"{path}/{name}", io.BytesIO(archive.read(name))
    else:
        with path.open("rb") as file:
            yield str(path), file


def _pairs(name: str, lines: Iterable[bytes]) -> Iterator[Two]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            yield Two(*(str(record[key]) for key in NEEDED))
        except (ValueError, KeyError, TypeError):
            shown = line.decode(errors="replace").strip()
            cure = f"each line is a JSON object with {', '.join(NEEDED)}"
            raise DataError("this is no pair of sentences", file=name, line=number, value=shown, cure=cure) from None


STUDY = Study(
    "Which of two sentences does a language model find likelier, the grammatical one or the other?",
    10.0,
    members,
    measure,
    grammar_shown.tables,
    grammar_shown.draw,
)
