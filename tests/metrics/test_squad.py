"""SQuAD's numbers by a second path, the threshold by trying them all, and its files: what is read, and what is refused."""

import csv
import gzip
import json
import os
import string
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade import metrics
from saccade.cli import main
from saccade.data import open_data, write_examples
from saccade.data.example import ANSWERS, CONTEXT, QUESTION
from saccade.data.read import read_examples
from saccade.data.samples import get_sample

ROLES = [CONTEXT, QUESTION, ANSWERS]
REAL = Path(os.environ.get("SACCADE_DATA", "data")) / "squad"


def spelt(text):
    """The published rules read again, a character at a time: words are runs of letters, digits and _."""
    left = [c for c in text.lower() if c not in string.punctuation]
    words, run = [], ""
    for c in [*left, " "]:
        if c.isalnum() or c == "_":
            run += c
        else:
            words += ["" if run in ("a", "an", "the") else run, " " if run in ("a", "an", "the") else "", c]
            run = ""
    return "".join(words).split()


def published(gold, said):
    """(exact, F1) of one question, words taken away one by one."""
    best = (0.0, 0.0)
    for right in [g for g in gold if spelt(g)] or [""]:
        there, got, same = spelt(right), spelt(said), 0
        exact = float(" ".join(there) == " ".join(got))
        rest = list(there)
        for word in got:
            if word in rest:
                rest.remove(word)
                same += 1
        f1 = float(there == got) if not there or not got else 0.0
        if same:
            precision, recall = same / len(got), same / len(there)
            f1 = 2 * precision * recall / (precision + recall)
        best = (max(best[0], exact), max(best[1], f1))
    return best


PIECES = ["a", "an", "the", "The", "cat", "Cat's", "dog,", "2", "–", "“the”", "a–b", "re-do", "x.", "!", "the.cat"]
WORDS = st.lists(st.sampled_from(PIECES), max_size=6)
TEXTS = WORDS.map(" ".join) | st.text(st.sampled_from("aAn theT.,–’'\t \xa0é"), max_size=12)


@settings(max_examples=200, deadline=None)
@given(st.lists(TEXTS, max_size=3), TEXTS)
def test_any_answer_scores_what_the_published_rules_give_it(gold, said):
    assert (metrics.answer_match(gold, said), metrics.answer_f1(gold, said)) == pytest.approx(published(gold, said))


@pytest.mark.parametrize(
    ("gold", "said", "exact", "f1"),
    [
        (["Denver Broncos", "The Denver Broncos"], "denver broncos!", 1, 1),
        (["Saint Bernadette Soubirous"], "Bernadette Soubirous", 0, 0.8),  # 2 of 2 said, 2 of 3 gold
        (["gold gold"], "gold", 0, 2 / 3),  # a word counts as often as it stands there
        (["US$3"], "us3", 1, 1),
        (["1973–74"], "1973", 0, 0),  # a dash that is not ASCII parts no words
        (["the–end"], "–end", 1, 1),  # but ends the article before it
        ([], "", 1, 1),
        ([], "the", 1, 1),  # of which nothing is left
        ([], "Paris", 0, 0),
        (["Paris"], "", 0, 0),
        (["the"], "", 1, 1),
        (["the", "Paris"], "", 0, 0),  # a gold answer of which nothing is left does not count beside another
    ],
)
def test_answers_worked_by_hand(gold, said, exact, f1):
    assert metrics.answer_match(gold, said) == exact
    assert metrics.answer_f1(gold, said) == pytest.approx(f1)


def test_the_two_kinds_of_questions_are_scored_apart_and_together():
    gold, said = [["red boat"], ["Ann"], [], []], ["boat", "Ann", "", "two"]
    found = {score.name: score for score in metrics.squad(gold, said, bootstrap_samples=50)}
    assert {name: score.value for name, score in found.items()} == pytest.approx(
        {
            "f1": (2 / 3 + 1 + 1 + 0) / 4,
            "exact_match": 2 / 4,
            "answerable_f1": (2 / 3 + 1) / 2,
            "answerable_exact_match": 1 / 2,
            "unanswerable_accuracy": 1 / 2,
        }
    )
    assert [found[name].count for name in ("f1", "answerable_f1", "unanswerable_accuracy")] == [4, 2, 2]
    assert all(0 <= score.low <= score.value <= score.high <= 1 for score in found.values())
    assert [score.name for score in metrics.squad(gold[:2], said[:2])] == [
        "f1",
        "exact_match",
    ]  # SQuAD 1.1 has one kind
    with pytest.raises(ValueError, match="4 gold answers but 3 predictions"):
        metrics.squad(gold, said[:3])


def test_the_interval_is_that_of_the_mean_over_the_same_draws():
    gold, said = [["a b c d"[: 2 * i + 1]] for i in range(4)] * 5, ["b"] * 20
    (found, _) = metrics.squad(gold, said, bootstrap_samples=200, seed=7)
    each = np.array([published(g, s)[1] for g, s in zip(gold, said, strict=True)])
    draws = np.concatenate(list(metrics.resample_indices(20, 200, 7, width=2)))
    assert [found.low, found.high] == pytest.approx(np.quantile(each[draws].mean(1), [0.025, 0.975]))


ONE = st.tuples(st.integers(-6, 6).map(float), st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([0.0, 1.0]))


@settings(max_examples=150, deadline=None)
@given(st.lists(ONE, min_size=1, max_size=12))
def test_no_threshold_is_better_than_the_one_chosen(rows):
    def total(threshold):
        return sum(silent if margin > threshold else said for margin, said, silent in rows)

    chosen = metrics.best_threshold(*zip(*rows, strict=True))
    assert total(chosen) == pytest.approx(max(total(edge / 2) for edge in range(-16, 17)))


# files


def nested(*asked, context="Hi, Ann and Bob."):
    return json.dumps({"version": "v2.0", "data": [{"title": "t", "paragraphs": [{"context": context, "qas": asked}]}]})


def test_both_versions_are_read_and_what_is_plausible_is_no_answer(tmp_path):
    path = tmp_path / "dev.json"
    ann = {"text": "Ann", "answer_start": 4}
    path.write_text(
        nested(
            {"id": "1", "question": "Who?", "answers": [ann, ann]},
            {"id": "2", "question": "Where?", "is_impossible": True, "answers": [], "plausible_answers": [ann]},
            {"id": "3", "question": "When?", "is_impossible": True, "plausible_answers": [ann]},
        )
    )
    found = read_examples([path], ROLES).examples
    assert [example["answers"] for example in found] == [[(4, "Ann"), (4, "Ann")], [], []]
    assert found[0]["context"] is found[2]["context"]  # held once, however many questions there are


FLAT = {  # each a way to say that Ann stands at 4; the second question has no answer
    "as datasets writes it": (
        {"answers": {"text": ["Ann"], "answer_start": [4]}},
        {"answers": {"text": [], "answer_start": []}},
    ),
    "as SQuAD nests it": ({"answers": [{"text": "Ann", "answer_start": 4}]}, {"answers": []}),
    "one of each": ({"answers": {"text": "Ann", "answer_start": 4}}, {"answers": {"text": "", "answer_start": -1}}),
    "words and a start": ({"answer": "Ann", "start": 4}, {"answer": "", "start": None}),
    "words alone": ({"answer": "Ann"}, {"answer": None}),
    "a list of words": ({"answers": ["Ann"]}, {"answers": []}),
}


@pytest.mark.parametrize("name", FLAT)
def test_flat_lines_in_every_form(name, tmp_path):
    path = tmp_path / "a.jsonl"
    rows = [{"context": "Hi, Ann and Ann.", "question": "Who?"} | answers for answers in FLAT[name]]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert [example["answers"] for example in read_examples([path], ROLES).examples] == [[(4, "Ann")], []]


@pytest.mark.parametrize(("ending", "mark"), [("tsv", "\t"), ("csv", ",")])
def test_a_table_has_the_words_or_the_words_and_their_start(ending, mark, tmp_path):
    bare, placed = tmp_path / f"bare.{ending}", tmp_path / f"placed.{ending}"
    cells = [("Ann met Ann; Bob too", "Who?", "Ann"), ("Nobody came; a pity", "Who?", "")]
    for path, more in ((bare, []), (placed, ["answer_start"])):
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, delimiter=mark)
            writer.writerow(["context", "question", "answer", *more])
            for row in cells:
                writer.writerow([*row, *(["8" if row[2] else ""] if more else [])])
    assert [e["answers"] for e in read_examples([bare], ROLES).examples] == [[(0, "Ann")], []]
    assert [e["answers"] for e in read_examples([placed], ROLES).examples] == [[(8, "Ann")], []]


BAD = {
    "absent": (
        {"answer": "Cy"},
        (":1:", "column answers", "'Cy'", "does not occur in the context", "orrect or remove"),
    ),
    "other case": ({"answer": "ann"}, ("'Ann' at character 4", "rite it as in the context")),
    "wrong start": ({"answer": "Ann", "start": 5}, ("character 5", "'nn and Bob.'", "start to 4")),
    "start beyond": ({"answers": [{"text": "Ann", "answer_start": 400}]}, ("character 400", "start to 4")),
    "start no number": ({"answer": "Ann", "start": "x"}, ("not an integer", "'x'", "remove the column")),
    "two lengths": (
        {"answers": {"text": ["Ann"], "answer_start": []}},
        ("numbers of texts and starts differ", "rite {text"),
    ),
    "a number": ({"answers": 4}, ("list of answers", "rite [{")),
    "the id is named": ({"id": "q7", "answer": "Cy"}, ("(id q7)",)),
}


@pytest.mark.parametrize("name", BAD)
def test_an_answer_that_does_not_stand_there_is_refused_by_name(name, tmp_path, capsys):
    fields, said = BAD[name]
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"context": "Hi, Ann and Bob.", "question": "Who?"} | fields) + "\n")
    assert main(["data", "check", str(path), "--task", "span"]) == 3
    shown = capsys.readouterr().err
    assert all(part in shown for part in (str(path), *said)), shown


def test_articles_that_contradict_themselves_or_are_none(tmp_path):
    both = {"id": "7", "question": "Who?", "is_impossible": True, "answers": [{"text": "Ann", "answer_start": 4}]}
    for content, said in (
        (nested(both), "impossible but has an answer"),
        (nested({"answers": []}), "not a SQuAD article"),
        (nested({"question": "Who?", "id": "1"}), "no column for answers"),
    ):
        path = tmp_path / "a.json"
        path.write_text(content)
        with pytest.raises(ValueError, match=said):
            read_examples([path], ROLES)
    path.write_text(nested({"question": "Who?", "id": "1"}))
    assert read_examples([path], ROLES[:2]).examples[0]["question"] == "Who?"  # enough to be asked


def test_what_is_written_is_read_again_and_dev_has_other_passages(tmp_path):
    path = tmp_path / "q.jsonl"
    made = get_sample("questions").make(90, 1)
    write_examples(path, made)
    found = open_data([path], ROLES)
    read_again = [*found.train.examples, *found.dev.examples]
    assert sorted(map(repr, (e.values for e in made))) == sorted(map(repr, (e.values for e in read_again)))
    assert not {e["context"] for e in found.train.examples} & {e["context"] for e in found.dev.examples}


def test_the_sample_has_one_answer_that_stands_once_or_none_that_could():
    made = get_sample("questions").make(4_200, 5)
    assert len({(e["context"], e["question"]) for e in made}) == 4_200
    silent = [e for e in made if not e["answers"]]
    assert len(silent) / len(made) == pytest.approx(1 / 6, abs=0.025)  # three standard deviations are 0.017
    for example in made:
        for start, text in example["answers"]:
            assert example["context"][start : start + len(text)] == text
            assert Counter(_words(example["context"]))[text.split()[-1]] == 1, (text, example["context"])
    asked = Counter(e["question"].split()[0] for e in made)
    assert set(asked) == {"Who", "Whose", "What", "Which", "Where", "How", "When", "Since"}


def _words(text):
    return text.replace("'s", "").translate(str.maketrans("", "", ".,;")).split()


@pytest.mark.nightly
@pytest.mark.skipif(not REAL.is_dir(), reason=f"no {REAL}; set SACCADE_DATA")
@pytest.mark.parametrize("version", ["1.1", "2.0"])
def test_every_question_of_the_real_set_is_read_and_its_gold_scores_one(version):
    path = REAL / f"dev-v{version}.json.gz"
    found = read_examples([path], ROLES).examples
    articles = json.loads(gzip.decompress(path.read_bytes()))["data"]
    every = [one for article in articles for paragraph in article["paragraphs"] for one in paragraph["qas"]]
    assert [example["question"] for example in found] == [one["question"].rstrip("\r\n") for one in every]
    assert [len(example["answers"]) for example in found] == [len(one["answers"]) for one in every]
    gold = [[text for _, text in example["answers"]] for example in found]
    assert {
        score.value for score in metrics.squad(gold, [texts[0] if texts else "" for texts in gold], bootstrap_samples=2)
    } == {1.0}
