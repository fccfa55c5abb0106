"""A small trained classifier that several files of tests open."""

import pandas as pd
import pytest

import saccade

SIZES = {"width": 16, "layers": 1, "heads": 2, "ffn_width": 16}
WORDS = {"lovely": "good", "great": "good", "awful": "bad", "boring": "bad"}
ROWS = [
    {"id": f"{word}-{n}", "review": f"a {word} film {n}", "stars": WORDS[word]} for n in range(40) for word in WORDS
]


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """Two runs, of which the second has hardly learned anything."""
    home = tmp_path_factory.mktemp("trained")
    settings = {"columns": {"text": "review", "label": "stars"}, "architecture": SIZES}
    steps = {"good": {"max_steps": 40, "lr": 1e-2}, "poor": {"max_steps": 1, "lr": 1e-9}}
    frame = pd.DataFrame(ROWS)
    return {
        name: saccade.train("label", frame, out=home / name, train=train, **settings) for name, train in steps.items()
    }


@pytest.fixture
def reviews(tmp_path):
    """A file with columns that the model does not read, cells that need quotes, and some wrong labels."""
    rows = [
        {
            "id": row["id"],
            "note": f'"{n}", a\nb',
            "review": row["review"],
            "stars": "bad" if n % 9 == 0 else row["stars"],
        }
        for n, row in enumerate(ROWS)
    ]
    pd.DataFrame(rows).to_csv(tmp_path / "reviews.csv", index=False)
    return tmp_path / "reviews.csv"
