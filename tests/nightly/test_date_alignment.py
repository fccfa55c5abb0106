"""Where a translator of dates looks is where the date stands: the share of its figures whose look falls on the right part."""

import tomllib
from datetime import date
from importlib.resources import files
from random import Random

import pytest

import saccade
from saccade.data.samples.dates import LANGUAGES, list_date_formats
from saccade.tasks.runs.run import open_run
from saccade.training.prepare import Job, prepare
from saccade.training.run import run_training

PARTS = {0: 0, 1: 0, 2: 0, 3: 0, 5: 1, 6: 1, 8: 2, 9: 2}  # place in an ISO date -> year, month or day
DATES = 300


def drawn(random):
    """A date as somebody writes it, in ISO form, and where its parts stand."""
    day = date(random.randrange(1900, 2100), random.randrange(1, 13), random.randrange(1, 29))
    known = [one for one in list_date_formats(random.choice(LANGUAGES)) if day.day > 12 or not one.is_ambiguous]
    writing = random.choice(known)
    return writing.write(day), day.isoformat(), writing.places(day)


def rights(model, random):
    """Of each figure that is copied or told from a name, whether its look falls on the part it belongs to.

    A zero before a single figure stands nowhere in the source, so there is nothing to look at.
    """
    for _ in range(DATES):
        text, iso, places = drawn(random)
        seen = saccade.look(model, (text, iso)).most_informative()
        weights = seen.to_dense()[seen.find_sharpest_head()]
        rows, columns = (
            [i for i, special in enumerate(axis.special_tokens_mask) if not special] for axis in (seen.query, seen.key)
        )
        looked = weights[rows][:, columns].argmax(-1).tolist()
        for at, part in PARTS.items():
            start, end = places[part]
            added = at in (5, 8) and iso[at] == "0" and text[start:end].isdigit() and end - start == 1
            if not added:
                yield start <= looked[at] < end


@pytest.mark.nightly
def test_the_look_falls_on_the_part_that_is_written(tmp_path):
    raw = tomllib.loads((files("saccade") / "recipes" / "dates-bahdanau.toml").read_text(encoding="utf-8"))
    job = Job("translate", (), raw["run"]["family"], {}, "error", raw["model"], raw["task"], raw["train"])
    list(run_training(prepare(job), tmp_path / "run"))
    model = open_run(tmp_path / "run").model
    found = list(rights(model, Random(7)))
    assert len(found) > 7 * DATES
    assert sum(found) / len(found) >= 0.99
