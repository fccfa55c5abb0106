"""`data check`: what it counts is what a person would count by hand."""

import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.cli import main
from saccade.data import Example, Records, Splits, inspect_data
from saccade.data.example import LABEL, SOURCE, TAGS, TARGET, TEXT, TEXT_LINE, WORDS, X, Y
from saccade.errors import DataError
from saccade.tasks.infer_task import infer_task, task_for_data
from saccade.tasks.registry import TASKS


def table(*rows: tuple[str, str]) -> Records:
    return Records([Example({"text": text, "label": label}) for text, label in rows])


records = st.lists(
    st.tuples(st.sampled_from(["a", "a b", "c", "d e f"]), st.sampled_from("xyz")), min_size=1, max_size=12
)


@settings(deadline=None, max_examples=60)
@given(train=records, dev=records, limit=st.integers(0, 3))
def test_facts_by_brute_force(train, dev, limit):
    facts = inspect_data(Splits(table(*train), table(*dev), None), [TEXT, LABEL], max_length=limit)
    assert facts.record_counts == {"train": len(train), "dev": len(dev)}
    assert facts.label_counts["train"] == Counter(label for _, label in train)
    lengths = sorted(len(text.split()) for text, _ in train)
    for name, share in (("50%", 0.5), ("90%", 0.9), ("99%", 0.99), ("longest", 1.0)):
        wanted = next(n for n in lengths if sum(m <= n for m in lengths) >= share * len(lengths))
        assert facts.length_percentiles["train"][name] == wanted
    assert facts.truncated_fractions["train"] == pytest.approx(sum(n > limit for n in lengths) / len(lengths))
    assert facts.duplicate_counts["train"] == len(train) - len(set(train))
    both = set(train) | set(dev)
    assert facts.conflict_count == sum(
        len({label for t, label in both if t == text}) > 1 for text in {t for t, _ in both}
    )
    assert facts.overlap_counts == {"dev also occur in train": sum(text in {t for t, _ in train} for text, _ in dev)}


@pytest.mark.parametrize(
    ("train", "dev", "said"),
    [
        ([("a", "x"), ("b", "x")], [("c", "x")], "single class, 'x'"),
        ([("a", "x"), ("b", "y")] * 5, [("c", "z")], "dev has labels that do not occur in train: z"),
        ([("a", "x")] * 9 + [("b", "y")], [("c", "x")], "fewer than 5 examples in train: y"),
        ([("a", "x")] * 99 + [("b", "y")], [("c", "x")], "99% of train is 'x'"),
        ([("a", "1"), ("b", "2"), ("c", "4")], [("d", "1")], "with gaps: 3 do not occur"),
        ([(f"t{i}", f"l{i}") for i in range(30)], [("d", "l1")], "is this a column of ids?"),
        ([("a", "x"), ("b", "y")], [("a", "x")], "100.0% of the inputs of dev also occur in train"),
    ],
)
def test_what_it_warns_of(train, dev, said):
    facts = inspect_data(Splits(table(*train), table(*dev), None), [TEXT, LABEL])
    assert said in "\n".join(facts.warnings)
    assert any(line.startswith("warning: ") and said in line for line in facts.to_lines())


def test_a_length_of_ones_own_and_the_rejects():
    splits = Splits(
        Records(table(("abc", "x")).examples, rejects=[DataError("no")]), table(("b", "y")), table(("c", "y"))
    )
    facts = inspect_data(splits, [TEXT, LABEL], measure_length=lambda example: len(example["text"]), max_length=2)
    assert facts.length_percentiles["train"]["longest"] == 3
    assert facts.length_unit == "tokens"
    shown = "\n".join(facts.to_lines())
    assert "1 records, 1 skipped" in shown
    assert "100.0% are longer than 2" in shown
    assert json.loads(json.dumps(facts.as_dict()))["record_counts"] == {"train": 1, "dev": 1, "test": 1}


def test_tags_are_counted_by_span_and_running_text_is_not_compared():
    rows = [Example({"words": ["a", "b", "c"], "tags": ["B-X", "I-X", "B-Y"]})]
    facts = inspect_data(Splits(Records(rows), Records(rows), None), [WORDS, TAGS])
    assert facts.label_counts["train"] == {"X": 1, "Y": 1}
    lines = Records([Example({"text": "\n"})] * 3)
    assert inspect_data(Splits(lines, lines, None), [TEXT_LINE]).duplicate_counts == {}


# guessing what a file is for

FILES = {
    "label": ("a.tsv", "".join(f"film number {i}\t{i % 2}\n" for i in range(40))),
    "grade": ("a.tsv", "review\tstars\n" + "".join(f"film number {i}\t{i % 9 / 2}\n" for i in range(40))),
    "pair": ("a.tsv", "premise\thypothesis\tlabel\n" + "".join(f"a {i}\tb {i}\t{'yn'[i % 2]}\n" for i in range(40))),
    "tag": ("a.conll", "Ann\tB-PER\nis\tO\nhere\tO\n\nshe\tO\nis\tO\n"),
    "summarize": ("a.csv", "article,summary\n" + "".join(f"{'it rained ' * 20}{i},Rain {i}\n" for i in range(9))),
    "translate": ("a.txt", "".join(f"sentence {i}\tSatz {i} hier\n" for i in range(40))),
    "regress": ("a.csv", "".join(f"{i},{i * 0.5},{i * i}\n" for i in range(9))),
    "language": ("a.txt", "A line, and\nanother, or\nso\n"),
    "span": ("a.jsonl", '{"context": "a b", "question": "c", "answers": {"text": ["b"], "answer_start": [2]}}\n'),
}


@pytest.mark.parametrize("task", FILES)
def test_the_task_is_guessed_and_checked(tmp_path, capsys, task):
    name, content = FILES[task]
    (tmp_path / name).write_text(content)
    assert infer_task([tmp_path / name])[0].name == task
    assert main(["data", "check", str(tmp_path / name), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["task"] == task
    assert found["record_counts"]["train"] >= 1
    assert len(found["digest"]) == 64
    assert main(["data", "check", str(tmp_path / name)]) == 0
    assert f"task: {task}" in capsys.readouterr().out


def test_named_columns_say_the_task(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\nfine,x\nbad,y\n")
    task, roles = infer_task([tmp_path / "a.csv"], {"source": "a", "target": "b"})
    assert (task.name, roles) == ("translate", (SOURCE, TARGET))
    assert task_for_data("regress", [tmp_path / "a.csv"])[1] == (X, Y)
    # pretrain reads what `language` reads, and paint what `caption` does (test_caption), so nobody guesses them; recordings
    # are in tests/audio
    assert set(FILES) == {task.name for task in TASKS} - {"pretrain", "caption", "paint", "transcribe"}


def test_skipping_writes_the_rejects(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("text,label\n" + "".join(f"film {i},{i % 2}\n" for i in range(200)) + ",1\n")
    assert main(["data", "check", "a.csv"]) == 3
    assert "a.csv:202: the text is empty" in capsys.readouterr().err
    assert main(["data", "check", "a.csv", "--on-bad-record", "skip"]) == 0
    out = capsys.readouterr().out
    assert "1 skipped" in out
    assert "bad_records.jsonl" in out
    (reject,) = map(json.loads, (tmp_path / "bad_records.jsonl").read_text().splitlines())
    assert (reject["line"], reject["column"]) == (202, "text")
    assert main(["data", "check", "a.csv", "--on-bad-record", "skip", "--max-bad-fraction", "0.001"]) == 3
    assert "--max-bad-fraction" in capsys.readouterr().err


def test_a_sample_is_written_and_passes_the_check(tmp_path, capsys, monkeypatch):
    from saccade.data.samples import SAMPLES

    monkeypatch.chdir(tmp_path)
    for name in SAMPLES:
        assert main(["data", "get", name, f"{name}.jsonl", "--count", "12"]) == 0, name
        assert f"12 records of {name}" in capsys.readouterr().out
        first = json.loads((tmp_path / f"{name}.jsonl").read_text().splitlines()[0])
        for value in first.values():
            if isinstance(value, str) and value.endswith(".png"):
                assert (tmp_path / value).is_file()
    assert main(["data", "get", "dates", "dates.tsv", "--count", "40"]) == 0
    assert main(["data", "check", "dates.tsv", "--task", "translate"]) == 0
    assert main(["data", "get", "datse"]) == 2
    assert "dates" in capsys.readouterr().err
