"""Both texts of a translation in one object, as sets on the Hugging Face hub have them."""

import json

import pytest

from saccade.data import read_examples
from saccade.data.example import SOURCE, TARGET
from saccade.errors import DataError


def written(path, *languages, whole=False):
    rows = [{"id": i, "translation": {name: f"{name} {i}" for name in languages}} for i in range(4)]
    path.write_text(json.dumps(rows) if whole else "".join(json.dumps(row) + "\n" for row in rows))
    return [path]


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("languages", [("en", "de"), ("de", "en"), ("en", "ro"), ("ro", "en")])
def test_english_is_the_source_and_the_other_language_the_target(tmp_path, languages, whole):
    table = read_examples(written(tmp_path / "pairs.json", *languages, whole=whole), (SOURCE, TARGET))
    (other,) = set(languages) - {"en"}
    assert [example.values for example in table.examples] == [
        {"source": f"en {i}", "target": f"{other} {i}"} for i in range(4)
    ]
    assert table.notes[-1] == f"pairs.json: source is column translation.en; target is column translation.{other}."


def test_naming_one_column_is_enough(tmp_path):
    files = written(tmp_path / "pairs.jsonl", "en", "ro")
    for columns in ({"source": "translation.ro"}, {"target": "translation.en"}):
        assert read_examples(files, (SOURCE, TARGET), columns=columns).examples[1].values == {
            "source": "ro 1",
            "target": "en 1",
        }


@pytest.mark.parametrize("languages", [("hu", "ro"), ("de", "fr")])
def test_where_the_direction_is_not_known_both_columns_are_offered(tmp_path, languages):
    cure = "Name both: --columns source=translation.{},target=translation.{}, or the other way round".format(*languages)
    with pytest.raises(DataError, match=cure):
        read_examples(written(tmp_path / "pairs.jsonl", *languages), (SOURCE, TARGET))


def test_a_source_alone_is_read_for_prediction(tmp_path):
    table = read_examples(written(tmp_path / "pairs.jsonl", "en", "ro"), (SOURCE,))
    assert table.examples[2].values == {"source": "en 2"}


def test_a_plain_column_of_that_name_is_still_a_target(tmp_path):
    (tmp_path / "flat.jsonl").write_text(json.dumps({"en": "a", "translation": "b"}) + "\n")
    assert read_examples([tmp_path / "flat.jsonl"], (SOURCE, TARGET)).examples[0].values == {
        "source": "a",
        "target": "b",
    }
