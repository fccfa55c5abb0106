"""Data that needs no file: generators with a seed, and what ordinary dependencies bring along.

>>> sample("dates").make(3, 0) == sample("dates").make(3, 0) != sample("dates").make(3, 1)
True
"""

from saccade.attention.table import nearest
from saccade.data.samples import (
    curves,
    dates,
    docs,
    molecules,
    numbers,
    pairs,
    pictures,
    proteins,
    questions,
    ratings,
    reports,
    tagged,
    tunes,
)
from saccade.data.samples.seeded import Sample

SAMPLES: dict[str, Sample] = {
    entry.name: entry
    for entry in (
        dates.SAMPLE,
        *numbers.SAMPLES,
        *curves.SAMPLES,
        *docs.SAMPLES,
        tagged.SAMPLE,
        pairs.SAMPLE,
        questions.SAMPLE,
        ratings.SAMPLE,
        *pictures.SAMPLES,
        reports.SAMPLE,
        tunes.SAMPLE,
        molecules.SAMPLE,
        proteins.SAMPLE,
    )
}


def sample(name: str) -> Sample:
    """The sample of a name.

    >>> sample("pictures").tasks
    ('caption', 'paint')
    """
    if name in SAMPLES:
        return SAMPLES[name]
    raise ValueError(f"Unknown sample {name!r}; {nearest(name, list(SAMPLES))}")


__all__ = ["SAMPLES", "Sample", "sample"]
