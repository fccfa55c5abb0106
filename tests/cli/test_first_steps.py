"""What somebody meets who has a file and a mistyped name: tables told by looking at them, and errors that name the cure."""

import csv
import io
import random

import pytest

from saccade.cli import main
from saccade.data import read_examples
from saccade.data.example import LABEL, SOURCE, TARGET, TEXT
from saccade.errors import DataError
from saccade.tasks.infer_task import infer_task
from saccade.training.prepare import Job, prepare
from saccade.training.run import run_training

TINY = {"width": 8, "layers": 1, "ffn_width": 8, "heads": 2}
SHORT = {"max_steps": 2, "max_eval_examples": 5}
SURVEY = ["Id", "Reviewer Name", "What did you think?", "Stars (1-5)", "Date"]


def review(i: int) -> str:
    return f"The film was {('lovely', 'dull', 'slow')[i % 3]}, and the songs of number {i} were not"


def survey(count: int) -> list[list[str]]:
    return [[str(i), f"Ann {'KLM'[i % 3]}.", review(i), str(i % 5 + 1), f"{i % 9 + 1}/5/2019"] for i in range(count)]


def table(rows: list[list[str]], mark: str = ",") -> str:
    made = io.StringIO()
    csv.writer(made, delimiter=mark, lineterminator="\n").writerows(rows)
    return made.getvalue()


# headers that nobody knows


@pytest.mark.parametrize("count", [3, 240])
def test_a_survey_has_a_header_and_as_many_records_as_rows(tmp_path, count):
    path = tmp_path / "reviews.csv"
    path.write_text(table([SURVEY, *survey(count)]))
    found = read_examples([path], [TEXT, LABEL], columns={"text": "3"})
    assert [(row["text"], row["label"]) for row in found.examples] == [(row[2], row[3]) for row in survey(count)]
    assert "label is column Stars (1-5)" in " ".join(found.notes)
    with pytest.raises(DataError, match=r"no column for text.*--columns 'text=What did you think\?'"):
        read_examples([path], [TEXT])


HEADERS = {  # columns below the first line, and a first line that is unlike them
    "dates": (["When?", "What happened?"], lambda i: [f"{i % 9 + 1} Jan 2020", f"It was {i}!"], 3),
    "prices": (["Paid:", "For what?"], lambda i: [f"£{i}.50", f"a thing, number {i}"], 3),
    "labels": (["How was it?", "Feeling"], lambda i: [review(i), ("good", "bad")[i % 2]], 40),
    "lengths": (["Deutsch", "Suomi"], lambda i: [f"der Satz mit der Nummer {i} ist lang", review(i)], 40),
}


@pytest.mark.parametrize("kind", HEADERS)
def test_a_header_is_told_by_what_stands_below_it(tmp_path, kind):
    names, row, count = HEADERS[kind]
    path = tmp_path / "a.csv"
    roles = [SOURCE, TARGET] if kind == "lengths" else [TEXT, LABEL]
    given = dict(zip([role.name for role in roles], "12", strict=True))
    path.write_text(table([names, *map(row, range(count))]))
    found = read_examples([path], roles, columns=given)
    assert len(found.examples) == count
    assert "it differs from the lines below" in " ".join(found.notes)
    path.write_text(table([*map(row, range(count))]))  # the same without it
    found = read_examples([path], roles, columns=given)
    assert len(found.examples) == count
    assert "without a header" in " ".join(found.notes)


@pytest.mark.parametrize(
    "first",
    [
        ["So good!", "n/a", "good"],  # a figure is missing
        ["So good!", "none of them", "bad"],  # a label that comes again
        ["Good", "3", "fair"],  # a label found nowhere else, and a figure
        ["A text is no name, however rare its label may be: this one goes on and on", "", "fair"],
    ],
)
def test_a_record_that_is_a_little_odd_is_still_a_record(tmp_path, first):
    rows = [first, *([f"so {i}", str(i % 5), ("good", "bad")[i % 2]] for i in range(40))]
    path = tmp_path / "a.csv"
    path.write_text(table(rows))
    assert len(read_examples([path], [TEXT, LABEL], columns={"text": "1", "label": "3"}).examples) == 41


def test_sentences_sorted_by_length_have_no_header(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("".join(f"{'go ' * n}on\t{'va ' * n}y\n" for n in range(1, 60)))
    assert len(read_examples([path], [SOURCE, TARGET]).examples) == 59


# what stands between cells


@pytest.mark.parametrize("mark", [";", "|", "\t"])
@pytest.mark.parametrize("headed", [True, False])
def test_another_mark_than_the_name_says_is_seen_and_said(tmp_path, mark, headed):
    wanted = [[f"A film, {'long, ' * (i % 3)}and number {i}", ("good", "bad")[i % 2]] for i in range(40)]
    path = tmp_path / "a.csv"
    path.write_text("".join(mark.join(row) + "\n" for row in ([["review", "sentiment"]] * headed + wanted)))
    found = read_examples([path], [TEXT, LABEL])
    assert [[row["text"], row["label"]] for row in found.examples] == wanted
    assert ("TSV" if mark == "\t" else f"CSV with {mark!r}") in " ".join(found.notes)


def test_one_comma_in_every_text_does_not_make_a_table_of_commas(tmp_path):
    wanted = [[f"A film, and number {i}", ("good", "bad")[i % 2]] for i in range(40)]
    path = tmp_path / "a.csv"
    path.write_text(table([["review", "sentiment"], *wanted], ";"))
    assert [[row["text"], row["label"]] for row in read_examples([path], [TEXT, LABEL]).examples] == wanted


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "text,labels\n" + "a film,x|y\n" * 20 + "bad\n"),
        ("a.csv", "text,label\n" + "a film; so so,x\n" * 20 + "bad\n"),
        ("a.tsv", "text, all\tlabel\n" + "a film, so so\tx\n" * 20 + "b, c\td\te\n"),
    ],
)
def test_a_bad_row_does_not_change_the_mark(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(DataError, match=r":22: expected 2 cells, got \d"):
        read_examples([path], [TEXT, LABEL], columns={"text": "1", "label": "2"})


# what a file is for

ENGLISH = ["the", "a", "cat", "dog", "bird", "sleeps", "eats", "sees", "red", "big"]
FRENCH = ["le", "un", "chat", "chien", "oiseau", "dort", "mange", "voit", "rouge", "grand"]
TAGS = ["DET", "DET", "NOUN", "NOUN", "NOUN", "VERB", "VERB", "VERB", "ADJ", "ADJ"]


def side_by_side(other: list[str], lengths: tuple[int, int], count: int = 200) -> str:
    draw = random.Random(0)
    rows = [[draw.randrange(len(ENGLISH)) for _ in range(draw.randint(*lengths))] for _ in range(count)]
    return "".join(" ".join(ENGLISH[i] for i in row) + "\t" + " ".join(other[i] for i in row) + "\n" for row in rows)


def test_sentences_with_equally_many_words_are_translated_and_not_tagged(tmp_path):
    path = tmp_path / "pairs.tsv"
    for lengths in ((3, 6), (3, 3)):
        path.write_text(side_by_side(FRENCH, lengths))
        assert infer_task([path])[0].name == "translate"
    path.write_text("the cat sleeps\tle chat dort\na dog eats\tun chien mange\n" * 50)  # two sentences, again and again
    assert infer_task([path])[0].name == "translate"
    path.write_text(side_by_side(TAGS, (3, 6)))
    assert infer_task([path])[0].name == "tag"


def test_small_letters_are_tags_where_words_are_many(tmp_path):
    path = tmp_path / "a.tsv"
    rows = ([f"w{i}", f"w{i + 1}", f"w{i + 2}"] for i in range(40))
    path.write_text("".join(f"{' '.join(row)}\tnoun verb noun\n" for row in rows))
    assert infer_task([path])[0].name == "tag"


# the column that is named as a cure


def test_the_nearest_column_for_a_text_is_the_one_with_the_longest(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(table([["review", "sentiment"], *([review(i), ("good", "bad")[i % 2]] for i in range(40))]))
    with pytest.raises(DataError, match="--columns source=review"):
        read_examples([path], [SOURCE])
    path.write_text(table([["opinion", "stern", "note"], *([review(i), str(i % 2), f"note {i}"] for i in range(9))]))
    with pytest.raises(DataError, match="--columns label=stern"):
        read_examples([path], [TEXT, LABEL], columns={"text": "opinion"})
    path.write_text(table([["opinion, in words", "stern"], *([review(i), str(i % 2)] for i in range(9))]))
    with pytest.raises(DataError, match=r"--columns text=1\b"):  # a comma cannot stand in --columns
        read_examples([path], [TEXT])


# runs


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A run that labels, and one that goes on with a text."""
    folder = tmp_path_factory.mktemp("newcomer")
    rows = [["text", "label"], *([review(i), ("good", "bad")[i % 2]] for i in range(30))]
    (folder / "reviews.csv").write_text(table(rows))
    (folder / "notes.txt").write_text("".join(review(i) + "\n" for i in range(60)))
    for task, data in (("label", "reviews.csv"), ("language", "notes.txt")):
        ready = prepare(Job(task, (str(folder / data),), model_fields=TINY, train_fields=SHORT))
        list(run_training(ready, folder / "runs" / data.split(".")[0]))
    return folder


@pytest.fixture
def ask(home, monkeypatch, capsys):
    """Call the command line in the folder of the runs; gives its code, and what it printed and said."""
    monkeypatch.chdir(home)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    def call(*argv):
        code = main(list(argv))
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


def test_labels_that_were_never_learnt_are_said(home, ask):
    rows = [[review(i), ("good", "fine", "poor")[i % 3]] for i in range(9)]
    (home / "mixed.csv").write_text(table([["text", "label"], *rows]))
    code, out, said = ask("evaluate", "runs/reviews", "--data", "mixed.csv")
    assert code == 0
    assert "accuracy" in out
    for words in (
        "6 of 9 rows have labels that the model was not trained on",
        "fine (3), poor (3)",
        "its labels are bad, good",
    ):
        assert words in said
    (home / "other.csv").write_text(table([["text", "label"], *(row for row in rows if row[1] != "good")]))
    code, out, said = ask("evaluate", "runs/reviews", "--data", "other.csv")
    assert (code, out) == (3, "")
    for words in (
        "other.csv:2",
        "these 6 rows",
        "fine (3), poor (3)",
        "its labels are bad, good",
        "--columns label=",
        "train",
    ):
        assert words in said
    code, _, said = ask("evaluate", "runs/reviews", "--data", "reviews.csv")
    assert code == 0
    assert "not trained on" not in said


@pytest.mark.parametrize("verb", ["predict", "label", "evaluate"])
def test_which_columns_were_read_is_said_once(ask, verb):
    for extra in ((), ("--json",)):
        code, out, said = ask(verb, "runs/reviews", "--data", "reviews.csv", *extra)
        assert code == 0
        assert said.count("text is column text") == 1
        assert said.count("the first line is a header") == 1
        assert "is column" not in out
        if verb != "evaluate":
            assert len(out.splitlines()) == 30


@pytest.mark.parametrize(
    "words", [("predict", "runs/reviewz", "x"), ("look", "runs/reviewz", "x"), ("look", "runs/reviewz")]
)
def test_a_run_that_is_not_there_is_said_with_the_nearest_before_the_hub(ask, words):
    code, _, said = ask(*words)
    assert code == 4
    assert "runs/reviewz: there is no such directory; did you mean runs/reviews?" in said
    assert said.index("no such directory") < said.index("hub")
    code, _, said = ask("evaluate", "./runs/nothing/like/it", "--data", "reviews.csv")
    assert code == 4
    assert "there is no such directory, and no runs/nothing/like either" in said
    assert "hub" not in said  # it could be no name there
    code, _, said = ask("label", "somebody/model", "x")
    assert code == 4
    assert "there is no such directory" in said
    assert "not in the cache" in said


def test_a_run_of_another_task_is_named_with_what_it_is_for(ask):
    code, _, said = ask("answer", "runs/notes", "--context", "Ann has boats", "Who?")
    assert code == 4
    for words in (
        "trained for the task language",
        "saccade generate runs/notes",
        "saccade answer needs",
        "train span",
    ):
        assert words in said
    code, _, said = ask("tag", "runs/reviews", "x")
    assert code == 4
    for words in ("trained for the task label", "saccade label runs/reviews", "saccade train tag"):
        assert words in said


def test_an_empty_text_is_answered_and_said(ask, monkeypatch):
    code, out, said = ask("label", "runs/reviews", "fine", "", " ")
    assert (code, len(out.splitlines())) == (0, 3)
    assert said.count("is empty") == 1
    assert "Text 2 is empty" in said
    monkeypatch.setattr("sys.stdin", io.StringIO("fine\nso\n\n"))
    code, out, said = ask("predict", "runs/reviews")
    assert (code, len(out.splitlines())) == (0, 3)
    assert "Line 3 is empty" in said
    assert "is empty" not in ask("label", "runs/reviews", "fine")[2]
