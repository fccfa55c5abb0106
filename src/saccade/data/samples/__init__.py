"""Built-in sample datasets that need no file: seeded generators, and data that the dependencies contain.

>>> get_sample("dates").make(3, 0) == get_sample("dates").make(3, 0) != get_sample("dates").make(3, 1)
True
"""

from saccade.data.samples import (
    dates,
    docs,
    molecules,
    names,
    number_words,
    pairs,
    points,
    proteins,
    questions,
    ratings,
    reports,
    shapes,
    syllables,
    tunes,
)
from saccade.data.samples.base import Sample
from saccade.suggest import suggest

SAMPLES: dict[str, Sample] = {
    entry.name: entry
    for entry in (
        dates.SAMPLE,
        *number_words.SAMPLES,
        *points.SAMPLES,
        *docs.SAMPLES,
        names.SAMPLE,
        pairs.SAMPLE,
        questions.SAMPLE,
        ratings.SAMPLE,
        *shapes.SAMPLES,
        syllables.SAMPLE,
        reports.SAMPLE,
        tunes.SAMPLE,
        molecules.SAMPLE,
        proteins.SAMPLE,
    )
}


def get_sample(name: str) -> Sample:
    """The sample of a name.

    >>> get_sample("scenes").tasks
    ('caption', 'paint')
    """
    if name in SAMPLES:
        return SAMPLES[name]
    raise ValueError(f"Unknown sample {name!r}; {suggest(name, list(SAMPLES))}")


__all__ = ["SAMPLES", "Sample", "get_sample"]
