"""The package's own data: the same for the same seed, and gold that another path agrees with."""

import ast
import math
import re
import time
from collections import Counter
from datetime import date, timedelta
from itertools import pairwise
from statistics import mean, stdev

import numpy as np
import pytest
from babel.dates import format_date, format_skeleton

from saccade.data.samples import SAMPLES, dates, docs, get_sample, names, number_words, shapes
from saccade.data.samples.points import evaluate_curve
from saccade.errors import UsageError

ROLES = {
    "translate": {"source", "target"},
    "summarize": {"source", "target"},
    "regress": {"x"},
    "language": {"text"},
    "pretrain": {"text"},
    "tag": {"words", "tags"},
    "caption": {"image", "caption"},
    "paint": {"image", "caption"},
    "transcribe": {"audio", "text"},
    "label": {"label"},
    "grade": {"text", "score"},
    "pair": {"first", "second", "label"},
    "span": {"context", "question", "answers"},
}


def plain(example):
    """An example that can be compared: pixels as bytes."""
    return {k: v.tobytes() if isinstance(v, np.ndarray) else v for k, v in example.values.items()}


@pytest.mark.parametrize("name", SAMPLES)
def test_the_same_seed_gives_the_same_examples_and_another_gives_others(name):
    make = get_sample(name).make
    first, again, other = make(60, 3), make(60, 3), make(60, 4)
    assert len(first) == len(other) == 60
    assert [plain(example) for example in first] == [plain(example) for example in again]
    assert [plain(example) for example in first] != [plain(example) for example in other]
    assert {example.file for example in first} == {f"sample:{name}"}
    assert [example.line for example in first] == list(range(1, 61))
    for task in get_sample(name).tasks:
        assert all(ROLES[task] <= example.values.keys() for example in first)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_count_that_cannot_be_had_is_refused(name):
    assert get_sample(name).make(0, 0) == []
    with pytest.raises(UsageError, match=rf"-1 examples of the sample {name} were requested; ask for 0 or more"):
        get_sample(name).make(-1, 0)


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match="Unknown sample 'scene'; did you mean 'scenes'"):
        get_sample("scene")


def test_text_that_ends_says_how_much_there_is():
    with pytest.raises(UsageError, match=r"The sample docs has \d\d,\d{3} examples, not 1,000,000; ask for fewer"):
        get_sample("docs").make(1_000_000, 0)


def test_default_counts_are_made_quickly():
    for name in ("dates", "numbers", "names", "curve", "moons"):
        start = time.process_time()
        made = get_sample(name).make(get_sample(name).default_count, 0)
        assert len(made) == get_sample(name).default_count
        assert time.process_time() - start < 6, name


# dates


@pytest.fixture(scope="module")
def dated():
    return get_sample("dates").make(8000, 11)


def clashes(first, last):
    """Writings that mean two days between a first and a last one."""
    seen, found = {}, []
    for day in (first + timedelta(days=days) for days in range((last - first).days + 1)):
        found += [
            (text, seen[text], day) for _, text in dates.iter_written_forms(day) if seen.setdefault(text, day) != day
        ]
    assert len(seen) > 1000
    return found


def test_no_writing_means_two_dates_in_any_language():
    """Two years prove it for all: years are written out, and how weekdays fall apart depends on leap years alone."""
    assert clashes(date(2023, 1, 1), date(2024, 12, 31)) == []


def test_the_proof_notices_figures_in_doubt(monkeypatch):
    careless = {
        name: tuple(w._replace(is_ambiguous=False) for w in dates.list_date_formats(name))
        for name in ("en", "en_GB", "fr")
    }
    monkeypatch.setattr(dates, "LANGUAGES", tuple(careless))
    monkeypatch.setattr(dates, "list_date_formats", careless.__getitem__)
    found = clashes(date(2024, 1, 1), date(2024, 12, 31))
    assert ("10/11/2024", date(2024, 10, 11), date(2024, 11, 10)) in found


def test_babel_itself_writes_the_gold_date_as_the_source(dated):
    """Babel's own formatter, which the sample does not use, must know the writing."""
    for example in dated[:2500]:
        day, language = date.fromisoformat(example["target"]), example["language"]
        known = [format_date(day, style, locale=language) for style in ("full", "long", "medium")]
        known += [format_skeleton(name, day, locale=language) for name in ("yMMMd", "yMMMEd", "yMd", "yMEd")]
        short = str(dates.Locale.parse(language).date_formats["short"].pattern)
        known.append(format_date(day, re.sub("y+", "y", short), locale=language))
        found = {re.sub(r"[\u00a0\u202f]", " ", text) for text in known}
        cased = {form(text) for text in found for form in (str, str.lower, str.upper)}
        assert example["source"] in cased, (dict(example.values), found)


def test_day_and_year_are_legible_and_figures_are_never_in_doubt(dated):
    for example in dated:
        day, text = date.fromisoformat(example["target"]), example["source"]
        figures = [int(number) for number in re.findall(r"\d+", text)]
        assert {day.year, day.day} <= set(figures), text
        if "/" in text and figures[0] < 1900:
            assert max(figures[:2]) > 12, text


def test_dates_are_many_and_mostly_recent(dated):
    years = [int(example["target"][:4]) for example in dated]
    assert 1900 <= min(years) < 1910
    assert 2090 < max(years) < 2100
    assert 0.5 < sum(1990 <= year < 2030 for year in years) / len(years) < 0.7
    assert len({example["source"] for example in dated}) == len(dated)
    assert {example["language"] for example in dated} == set(dates.LANGUAGES)
    assert len(dates.LANGUAGES) > 20


# numbers: read back by adding and multiplying, without the writer's rules

WORTH = {
    "en": dict(zip(number_words.ENGLISH_UNITS, range(20), strict=True))
    | {"twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90}
    | {"hundred": 100, "thousand": 1000, "and": 0},
    "de": dict(zip(number_words.GERMAN_UNITS, range(20), strict=True))
    | {
        "ein": 1,
        "zwanzig": 20,
        "dreißig": 30,
        "vierzig": 40,
        "fünfzig": 50,
        "sechzig": 60,
        "siebzig": 70,
        "achtzig": 80,
    }
    | {"neunzig": 90, "hundert": 100, "tausend": 1000, "und": 0},
    "fr": {word: value for value, word in enumerate(number_words.FRENCH_UNITS[:17])}
    | {"vingt": 20, "vingts": 20, "trente": 30, "quarante": 40, "cinquante": 50, "soixante": 60, "quatre-vingt": 80}
    | {"quatre-vingts": 80, "cent": 100, "cents": 100, "mille": 1000, "et": 0},
}


def value(words, language):
    """The number that words stand for: each hundred or thousand multiplies what has gathered before it."""
    known = WORTH[language]
    parts = re.findall("|".join(sorted(known, key=len, reverse=True)), words)
    assert "".join(parts) == re.sub(r"[ -]", "", words) or language == "fr", words
    done = gathered = 0
    for part in parts:
        if known[part] == 1000:
            done, gathered = 1000 * max(gathered, 1), 0
        elif known[part] == 100:
            gathered = 100 * max(gathered, 1)
        else:
            gathered += known[part]
    return done + gathered


@pytest.mark.parametrize("language", ["en", "de", "fr"])
def test_words_are_read_back_as_the_number_they_were(language):
    for number in [*range(2100), *range(2100, 1_000_000, 397), 80_000, 100_000, 200_080, 999_999]:
        assert value(number_words.SPELLERS[language](number), language) == number


def test_samples_of_numbers_agree_with_the_reader():
    for example in get_sample("numbers").make(1500, 5):
        assert value(example["source"], example["language"]) == int(example["target"])
    for example in get_sample("spelled").make(500, 5):
        language, figures = example["source"].split()
        assert value(example["target"], language) == int(figures)


@pytest.mark.parametrize(
    ("number", "english", "german", "french"),
    [
        (0, "zero", "null", "zéro"),
        (1, "one", "eins", "un"),
        (21, "twenty-one", "einundzwanzig", "vingt et un"),
        (71, "seventy-one", "einundsiebzig", "soixante et onze"),
        (81, "eighty-one", "einundachtzig", "quatre-vingt-un"),
        (91, "ninety-one", "einundneunzig", "quatre-vingt-onze"),
        (99, "ninety-nine", "neunundneunzig", "quatre-vingt-dix-neuf"),
        (101, "one hundred and one", "einhunderteins", "cent un"),
        (200, "two hundred", "zweihundert", "deux cents"),
        (1000, "one thousand", "eintausend", "mille"),
        (2016, "two thousand and sixteen", "zweitausendsechzehn", "deux mille seize"),
        (101_000, "one hundred and one thousand", "einhunderteintausend", "cent un mille"),
        (200_200, "two hundred thousand two hundred", "zweihunderttausendzweihundert", "deux cent mille deux cents"),
        (80_380, "eighty thousand three hundred and eighty", "achtzigtausenddreihundertachtzig",
         "quatre-vingt mille trois cent quatre-vingts"),
    ],
)  # fmt: skip
def test_numbers_as_a_grammar_book_has_them(number, english, german, french):
    assert [speak(number) for speak in number_words.SPELLERS.values()] == [english, german, french]


def test_no_words_mean_two_numbers():
    seen = {}
    for number in [*range(12_000), *range(12_000, 1_000_000, 1009)]:
        for text in (
            number_words.spell_english(number, " "),
            *(speak(number) for speak in number_words.SPELLERS.values()),
        ):
            assert seen.setdefault(text, number) == number, text


# curves


def test_points_lie_around_the_curve():
    points = get_sample("curve").make(4000, 1)
    rest = [point["y"] - evaluate_curve(point["x"][0]) for point in points]
    assert mean(rest) == pytest.approx(0, abs=4 * 0.5 / math.sqrt(4000))
    assert stdev(rest) == pytest.approx(0.5, rel=0.06)
    assert evaluate_curve(math.pi) == pytest.approx(math.pi**0.8)
    assert all(0 <= point["x"][0] <= 5 for point in points)


def test_moons_are_half_circles_and_equally_many():
    points = get_sample("moons").make(2000, 1)
    assert Counter(point["label"] for point in points) == {"upper": 1000, "lower": 1000}
    for label, (x, y), side in (("upper", (0, 0), 1), ("lower", (1, 0.5), -1)):
        moon = np.array([point["x"] for point in points if point["label"] == label])
        assert np.hypot(*(moon - (x, y)).T).mean() == pytest.approx(1, abs=0.03)
        assert (side * (moon[:, 1] - y) > -0.4).all()


# documentation


def test_lines_are_running_text_of_the_documents():
    made = get_sample("docs").make(get_sample("docs").default_count, 0)
    lines = [example["text"] for example in made]
    assert all(line.endswith("\n") and line.count("\n") == 1 for line in lines)
    text = "".join(lines)
    assert 500_000 < len(text) < 1_200_000
    assert sum(body in text for body in docs.load_documents().values()) > 0.6 * len(docs.load_documents())


def test_docstrings_are_those_that_python_shows():
    import textwrap

    shown = [textwrap.__doc__, textwrap.TextWrapper.__doc__, textwrap.dedent.__doc__]
    assert {ast.get_docstring(ast.parse(repr(text))) for text in shown} <= set(docs.extract_docstrings("textwrap"))


def test_topics_are_balanced_prose_and_each_stands_once():
    made = get_sample("topics").make(get_sample("topics").default_count, 0)
    found = Counter(example["label"] for example in made)
    assert set(found) == {*docs.MODULES_BY_TOPIC, "language"}
    assert max(found.values()) - min(found.values()) <= 1
    texts = [example["text"] for example in made]
    assert len(set(texts)) == len(texts)
    assert not any("\n" in text or ">>>" in text or len(text) < 60 for text in texts)


# names


def entities(example):
    """(kind, words) of every entity, read from the tags."""
    found, before = [], "O"
    for word, tag in zip(example["words"], example["tags"], strict=True):
        if tag[0] == "I":
            assert before[1:] == tag[1:], example  # what goes on has begun
            found[-1][1].append(word)
        elif tag[0] == "B":
            found.append((tag[2:], [word]))
        before = tag
    return [(kind, " ".join(words)) for kind, words in found]


def test_tags_mark_what_the_lists_know():
    made = get_sample("names").make(1500, 2)
    places = {
        *names.list_cities(),
        *(name for code in ("en", *names.FOREIGN_LANGUAGES) for name in names.list_countries(code)),
    }
    for example in made:
        assert len(example["words"]) == len(example["tags"])
        for kind, text in entities(example):
            if kind == "PER":
                assert {*text.split()} <= {
                    *names.FIRST_NAMES,
                    *names.LAST_NAMES,
                    *(f"{name[0]}." for name in names.FIRST_NAMES),
                }
            elif kind == "LOC":
                assert text in places
            elif kind == "DATE":
                assert re.search(r"\b(19|20)\d\d\b", text)
            else:
                assert re.search(r"\d", text), kind
    assert {kind for example in made for kind, _ in entities(example)} == {"PER", "LOC", "DATE", "MONEY"}


def test_nothing_that_is_surely_a_name_is_left_untagged():
    surely = {
        name
        for name in names.LAST_NAMES
        if name not in {word for name in names.list_languages() for word in name.split()}
    }
    for example in get_sample("names").make(1500, 3):
        for word, tag in zip(example["words"], example["tags"], strict=True):
            assert not (word in surely and tag == "O"), example["words"]


def test_a_test_split_has_names_never_seen_and_names_of_two_kinds():
    made = get_sample("names").make(6000, 0)
    seen = {entity for example in made[:4800] for entity in entities(example)}
    asked = [entity for example in made[4800:] for entity in entities(example)]
    assert sum(entity not in seen for entity in asked) > 0.4 * len(asked)
    kinds = {}
    for example in made:
        for word, tag in zip(example["words"], example["tags"], strict=True):
            kinds.setdefault(word, set()).add(tag[2:])
    assert {"PER", "LOC"} <= kinds["Jordan"] & kinds["London"]


# pictures


@pytest.fixture(scope="module")
def painted():
    return get_sample("scenes").make(600, 7)


def mask(image, colour):
    """Where a picture has a colour exactly."""
    return (image == np.array(shapes.COLORS[colour], np.uint8)).all(-1)


def test_the_pixels_show_what_the_caption_says(painted):
    for example in painted:
        image, words = example["image"], example["caption"].split()
        assert (image.shape, image.dtype) == ((32, 32, 3), np.uint8)
        said = [word for word in words if word in shapes.COLORS]
        assert {colour for colour in shapes.COLORS if mask(image, colour).any()} == set(said)
        if len(set(said)) == 2:
            (y0, x0), (y1, x1) = (np.argwhere(mask(image, colour)).mean(0) for colour in said)
            relation = next(name for name in shapes.RELATIONS if name in example["caption"])
            across, down = x1 - x0, y1 - y0
            clear = {"left of": across, "right of": -across, "above": down, "below": -down}
            assert clear[relation] == max(clear.values()) > 5, example["caption"]


def test_one_shape_stands_where_the_caption_says_and_is_as_large():
    areas = {}
    for example in get_sample("shapes").make(600, 7):
        ink = (example["image"] != np.array(shapes.BACKGROUND, np.uint8)).any(-1)
        rows, columns = np.nonzero(ink.any(1))[0], np.nonzero(ink.any(0))[0]
        y, x = (rows[0] + rows[-1] + 1) / 2, (columns[0] + columns[-1] + 1) / 2
        place = " ".join(word for word in (_third(y, "top", "bottom"), _third(x, "left", "right")) if word) or "centre"
        assert example["caption"].endswith(f"the {place}"), example["caption"]
        size = next((word for word in ("small", "large") if word in example["caption"]), "")
        areas.setdefault(example["label"], {}).setdefault(size, []).append(np.ptp(columns) + 1)
        assert f" {example['label']} " in example["caption"]
    for widths in areas.values():
        assert max(widths["small"]) < min(widths[""]) <= max(widths[""]) < min(widths["large"])


def _third(place, low, high):
    return low if place < 32 / 3 else high if place > 64 / 3 else ""


@pytest.mark.parametrize(
    ("shape", "share"), [("circle", math.pi / 4), ("square", 1), ("triangle", 0.5), ("cross", 5 / 9), ("ring", None)]
)
def test_shapes_cover_what_geometry_says(shape, share):
    share = math.pi / 4 * (1 - 0.55**2) if share is None else share
    thing = shapes.SceneObject(shape, "black", "large ", 16, 16)
    image = shapes.render_scene(shapes.Scene((thing,))).astype(float)
    ground, ink = np.array(shapes.BACKGROUND), np.array(shapes.COLORS["black"])
    covered = ((ground - image) / (ground - ink)).mean(-1).sum()
    assert covered == pytest.approx(share * (2 * shapes.SIZES["large "]) ** 2, rel=0.03)


def test_shapes_stay_inside_and_apart(painted):
    for example in painted:
        things = example["scene"].objects
        for thing in things:
            radius = shapes.SIZES[thing.size]
            assert radius <= min(thing.x, thing.y) <= max(thing.x, thing.y) <= 32 - radius
        if len(things) == 2:
            (a, b) = things
            reach = shapes.SIZES[a.size] + shapes.SIZES[b.size]
            assert max(abs(a.x - b.x), abs(a.y - b.y)) >= reach + 0.999
            assert (a.shape, a.color) != (b.shape, b.color)


def test_captions_parse_and_hold_for_their_own_scene_only(painted):
    for example, other in pairwise(painted):
        caption, scene = example["caption"], example["scene"]
        assert shapes.caption_is_true(caption, scene)
        assert shapes.caption_is_true(caption, other["scene"]) == (caption == other["caption"])
        if len(scene.objects) == 2:
            turned = shapes.Scene(scene.objects[::-1])
            assert shapes.caption_is_true(shapes.describe_scene(turned), scene)
    assert shapes.parse_caption("a red dog at the top") is None
    assert shapes.parse_caption("a red circle at the corner") is None
    assert not shapes.caption_is_true("two red circles", painted[0]["scene"])


def test_all_words_of_the_world_are_used(painted):
    words = Counter(word for example in painted for word in example["caption"].split())
    wanted = {*shapes.SHAPES, *shapes.COLORS, "small", "large", "above", "below", "left", "right", "top", "bottom"}
    assert wanted | {"centre", "an"} <= words.keys()
