"""Scores told apart by a column of the data: the same model, good for some and less good for others."""

import numpy as np

from saccade.audit.exchange import judged
from saccade.audit.stats import gap
from saccade.audit.suite import Figure, Grid, Subject
from saccade.tasks.answering import answers
from saccade.tasks.hidden import scored

LEAST = 20  # examples of a value below which its score says little
VALUES = 40  # of a column that are told apart


def disaggregated(subject: Subject) -> tuple[tuple[Grid, ...], tuple[Figure, ...], tuple[str, ...]]:
    """A table of scores, the gap between the best and the worst group, and what there is to say of both."""
    if not subject.by:
        return (), (), ()
    task = subject.task
    examples, _ = scored(task, subject.held)
    found, examples = answers(task, subject.need_model(), examples, told=lambda done, of: subject.told(done, of))
    values = np.array([str(example["by"]) for example in examples])
    names, counts = np.unique(values, return_counts=True)
    if len(names) > VALUES:
        raise ValueError(
            f"--by {subject.by} has {len(names):,} values, and at most {VALUES} are told apart; choose a column of groups."
        )
    rows = []
    for name in names[np.argsort(-counts, kind="stable")]:
        some = np.flatnonzero(values == name)
        scores = task.score([found[i] for i in some], [examples[i] for i in some])
        rows += [
            (str(name), s.name, f"{s.value:.3f}", f"{s.low:.3f} to {s.high:.3f}", f"{len(some):,}") for s in scores[:1]
        ]
    grid = Grid(f"Scores by {subject.by}", (subject.by, "score", "value", "95 % interval", "examples"), tuple(rows))
    enough = np.isin(values, names[counts >= LEAST])
    if not judged(task) or len(np.unique(values[enough])) < 2:
        note = f"by {subject.by}: fewer than two of its values have {LEAST} examples that are right or wrong; no gap is given."
        return (grid,), (), (note,)
    right = np.array(
        [task.wrong(answer, example) is None for answer, example in zip(found, examples, strict=True)], float
    )
    figure, p = gap(f"right answers, best minus worst {subject.by}", right[enough], values[enough])
    note = f"by {subject.by}: shuffled groups lie as far apart in {p:.1%} of the draws."
    return (grid,), (figure,), (note,)
