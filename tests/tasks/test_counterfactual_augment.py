"""Twins of training examples: right in grammar, tags and places, the same each time, and refused where they would lie."""

import json
import random
import re
import tomllib

import numpy as np
import pytest
from PIL import Image

from saccade.audit.card_sections import _describe_augmentation
from saccade.cli import main
from saccade.data import Example
from saccade.data.counterfactual import build_counterfactual
from saccade.data.streaming.text import StreamedExamples
from saccade.errors import DataError
from saccade.tasks.counterfactual_augment import augment_examples, unsupported_augment_reason
from saccade.tasks.label import Label
from saccade.tasks.language import Language
from saccade.tasks.pair import Pair
from saccade.tasks.registry import TASKS
from saccade.tasks.tag import Tag
from saccade.text.counterfactual_words import load_dimensions
from saccade.training.events import RunRefused
from saccade.training.prepare import Job, prepare
from saccade.training.run import run_training

GENDER, ORIGIN, RELIGION = load_dimensions("en")[:3]
COUNTERFACTUAL = {"augment": "counterfactual"}
TINY = {"width": 8, "layers": 1, "heads": 2, "ffn_width": 12, "dropout": 0.1}
SHORT = {"epochs": 2, "batch_tokens": 200, "lr": 3e-3, "save_every": 3, "save_minutes": 0.0}


# --- one twin


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("His aunt thanked her for her help.", "Her uncle thanked him for his help."),
        ("The prize was hers, not his.", "The prize was his, not hers."),
        ("SHE sang; He listened to Mary.", "HE sang; She listened to James."),
        ("John's mother and mr Gray's wife", "Jane's father and ms Gray's husband"),
    ],
)
def test_the_twin_of_a_text_is_right_and_keeps_its_label(text, other):
    found = augment_examples(
        Label(Label.Config(**COUNTERFACTUAL)), [Example({"text": text, "label": "good"}, "a.tsv", 7)]
    )
    first, second, *more = found.examples
    assert first.values == {"text": text, "label": "good"}
    assert second.values == {"text": other, "label": "good"}
    assert (second.file, second.line) == ("a.tsv", 7)
    assert found.counts == {"gender": 1} | ({"origin": 1} if more else {})  # a name says more than one thing


def test_the_words_of_a_cut_text_stay_where_they_stand():
    """By brute force: the text is written again, gap by gap and word by word, with each word looked up by itself."""
    draw, looked = random.Random(4), {}
    words = [
        "Mary",
        "American",
        "white",
        "man",
        "aunt",
        "Rome",
        "saw",
        ",",
        "mother",
        "-",
        "law",
        "she",
        "people",
        "an",
    ]
    for dimension in (GENDER, ORIGIN, RELIGION):
        for _ in range(300):
            some = [draw.choice(words) for _ in range(draw.randint(1, 9))]
            gaps = [draw.choice([" ", "  ", " (", ") "]) for _ in some]
            text = "".join(gap + word for gap, word in zip(gaps, some, strict=True))
            ends = np.cumsum([len(gap) + len(word) for gap, word in zip(gaps, some, strict=True)]).tolist()
            offsets = [(end - len(word), end) for word, end in zip(some, ends, strict=True)]
            tags = [draw.choice(["O", "B-X"]) for _ in some]
            values = {"words": some, "tags": tags, "text": text, "offsets": offsets}
            found = build_counterfactual(Example(values), ("words",), ("tags",), dimension)
            plain = dimension.swap(text)
            assert (found is None) == (not plain.edits)
            if found is None:
                continue
            after = found.counterfactual
            assert after["tags"] == tags
            assert after["words"] == [after["text"][start:end] for start, end in after["offsets"]]
            assert after["text"] == "".join(gap + word for gap, word in zip(gaps, after["words"], strict=True))
            assert after["text"] == plain.text
            looked[dimension.name] = looked.get(dimension.name, 0) + 1
    assert looked["gender"] > 200
    assert looked["origin"] > 100


def test_half_a_word_is_not_exchanged():
    values = {"words": ["grand", "mother"], "tags": ["O", "O"], "text": "grandmother", "offsets": [(0, 5), (5, 11)]}
    assert build_counterfactual(Example(values), ("words",), ("tags",), GENDER) is None
    joined = Example({"words": ["Mary's", "aunt Ann"], "tags": ["B-PER", "B-PER"]})
    found = build_counterfactual(joined, ("words",), ("tags",), GENDER)
    assert found is not None
    assert found.counterfactual["words"] == ["James's", "uncle Ann"]


def test_two_groups_do_not_become_one_in_a_pair():
    both = lambda first, second: Example({"first": first, "second": second, "label": "no"})
    swap = lambda example: build_counterfactual(example, ("first", "second"), ("label",), RELIGION)
    assert swap(both("A Jewish man sings.", "A Hindu man sings.")) is None
    kept = swap(both("A Jewish man sings.", "A Christian man sings."))
    assert kept is not None
    assert (kept.counterfactual["first"], kept.counterfactual["second"]) == (
        "A Christian man sings.",
        "A Muslim man sings.",
    )
    his = build_counterfactual(both("He saw his dog.", "A dog saw him."), ("first", "second"), ("label",), GENDER)
    assert his is not None
    assert (his.counterfactual["first"], his.counterfactual["second"]) == ("She saw her dog.", "A dog saw her.")


# --- all of them


def texts(count=60):
    draw = random.Random(2)
    who = ["he", "she", "the Christian", "an American", "a cat", "it"]
    return [f"{draw.choice(who)} saw {draw.choice(who)} on day {i}" for i in range(count)]


def test_every_example_has_a_twin_for_each_dimension_that_it_names():
    examples = [Example({"text": f"{text}\n"}) for text in texts()]
    found = augment_examples(Language(Language.Config(**COUNTERFACTUAL)), examples)
    slow = [
        Example({"text": dimension.swap(example["text"]).text})
        for dimension in load_dimensions("en")
        for example in examples
        if dimension.swap(example["text"]).text != example["text"]
    ]
    assert found.examples == [*examples, *slow]
    assert sum(found.counts.values()) == len(slow)
    assert found.counts["religion"] == sum("Christian" in text for text in texts())
    touched = sum(any(one.swap(text).edits for one in load_dimensions("en")) for text in texts())
    assert f"{len(slow)} copies of {touched} training examples (gender" in found.note
    long = StreamedExamples(lambda: iter(examples), len(examples), examples[:10])
    again = augment_examples(Language(Language.Config(**COUNTERFACTUAL)), long)
    assert isinstance(again.examples, StreamedExamples)
    assert list(again.examples) == found.examples
    assert len(again.examples) == len(found.examples)
    assert (again.resume_facts, again.note) == (found.resume_facts, found.note)


def test_without_the_setting_or_without_a_word_nothing_joins():
    examples = [Example({"text": "she ran", "label": "a"})]
    assert augment_examples(Label(), examples) is None
    found = augment_examples(Label(Label.Config(**COUNTERFACTUAL)), [Example({"text": "it rains", "label": "a"})])
    assert len(found.examples) == 1
    assert "no word of the lexicon is in the 1 training examples" in found.note


def test_pairs_join_themselves_in_the_other_order():
    examples = [Example({"first": f"a{i}", "second": f"b{i}", "label": str(i % 2)}, "f.tsv", i) for i in range(9)]
    task = Pair(Pair.Config(augment="swap_order"))
    found = augment_examples(task, examples)
    assert found.examples[:9] == examples
    for one, two in zip(examples, found.examples[9:], strict=True):
        assert (two["first"], two["second"], two["label"], two.line) == (
            one["second"],
            one["first"],
            one["label"],
            one.line,
        )
    assert found.resume_facts == {"swap_order": 9}
    assert (
        _describe_augmentation(found.resume_facts) == "all 9 pairs were trained on in both orders (task.augment)"
    )  # no claim of swapped groups
    assert "9 copies of training pairs in reverse order" in found.note
    long = augment_examples(task, StreamedExamples(lambda: iter(examples), len(examples), examples[:4]))
    assert list(long.examples) == found.examples
    assert len(long.examples) == 18
    assert long.examples.sample == [*examples[:4], *found.examples[9:13]]


# --- what cannot take them


def test_every_task_takes_twins_or_says_why_not():
    able = [kind.name for kind in TASKS if kind.augment_roles]
    refused = {kind.name for kind in TASKS} - set(able)
    assert not any(unsupported_augment_reason(name) for name in able)
    assert all(
        "supported by tag, grade, label, pair and language" in unsupported_augment_reason(name) for name in refused
    )


def test_a_task_that_cannot_take_them_refuses(capsys, tmp_path):
    assert main(["train", "translate", "--task.augment", "counterfactual", "--out", str(tmp_path / "run")]) == 2
    assert (
        "translate has no counterfactual augmentation, as the translation would have to change"
        in capsys.readouterr().err
    )
    assert not (tmp_path / "run").exists()
    (tmp_path / "run.toml").write_text('[run]\ntask = "summarize"\n[task]\naugment = "counterfactual"\n')
    assert main(["train", str(tmp_path / "run.toml")]) == 2
    assert "summarize has no counterfactual augmentation" in capsys.readouterr().err


def test_pictures_have_no_words(tmp_path):
    for i in range(8):
        home = tmp_path / "set" / "ab"[i % 2]
        home.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 8, 3), 30 * i, np.uint8)).save(home / f"{i}.png")
    with pytest.raises(DataError, match=r"swaps words, and these examples have no text.*use flip, crop or flip_crop"):
        prepare(Job("label", (str(tmp_path / "set"),), task_fields=COUNTERFACTUAL))


# --- in a run


def write_tags(path):
    draw = random.Random(6)
    rows = []
    for i in range(40):
        who = draw.choice(["Mary", "Peter", "She", "It"])
        rows.append(f"{who} {'B-PER' if who in ('Mary', 'Peter') else 'O'}\nmet O\nhim O\nin O\ntown{i} O\n")
    path.write_text("\n".join(rows) + "\n")


@pytest.fixture
def jobs(tmp_path):
    rows = "".join(f"{text}\t{'ab'[len(text) % 2]}\n" for text in texts(80))
    (tmp_path / "label.tsv").write_text("text\tlabel\n" + rows)
    two = zip(texts(40), texts(40)[::-1], strict=True)
    rows = "".join(f"{a}\t{b}\t{'yes' if i % 3 else 'no'}\n" for i, (a, b) in enumerate(two))
    (tmp_path / "pair.tsv").write_text("sentence1\tsentence2\tlabel\n" + rows)
    write_tags(tmp_path / "tag.conll")
    (tmp_path / "language.txt").write_text("\n".join(texts(80)) + "\n")

    def job(name, augment="counterfactual", **given):
        file = str(next(tmp_path.glob(f"{name}.*")))
        told = {"augment": augment} | ({"max_tokens": 16} if name == "language" else {})
        return Job(name, (file,), "transformer", {}, "error", TINY, told, SHORT | given)

    return job


def rows_of(batches):
    return sorted(tuple(np.asarray(item.source).tolist()) for batch in batches for item in batch.items)


@pytest.mark.parametrize("name", ["label", "pair", "tag", "language"])
def test_batches_are_the_same_for_one_process_and_for_two(jobs, name):
    one, other, plain = prepare(jobs(name)), prepare(jobs(name)), prepare(jobs(name, "none"))
    assert one.augmented_examples.counts
    assert plain.augmented_examples is None
    for split in ("dev", "train"):
        assert one.splits.as_dict()[split].examples == plain.splits.as_dict()[split].examples
    first, second = one.make_batches(), other.make_batches()
    assert first.size > plain.make_batches().size
    for step in (0, 3, first.count_steps(1) - 1, first.count_steps(1) + 2):
        whole = rows_of(first.batches(step))
        shared = [row for rank in (0, 1) for row in rows_of(second.batches(step, rank=rank, world_size=2))]
        assert sorted(shared) == whole
    seeded = prepare(jobs(name, seed=1)).make_batches()
    assert [rows_of(seeded.batches(step)) for step in range(4)] != [rows_of(first.batches(step)) for step in range(4)]


@pytest.mark.parametrize("name", ["label", "language"])
def test_a_run_with_twins_goes_on_bit_for_bit(jobs, tmp_path, name):
    left = lambda out: [(out / "model" / "model.safetensors").read_bytes(), (out / "metrics.jsonl").read_bytes()]
    list(run_training(prepare(jobs(name)), tmp_path / "calm"))
    for stop in (5, 0):
        list(run_training(prepare(jobs(name, max_steps=stop)), tmp_path / "wild"))
    assert left(tmp_path / "calm") == left(tmp_path / "wild")
    assert len(left(tmp_path / "calm")[1].splitlines()) > 8
    with pytest.raises(RunRefused, match=r"task.augment was 'counterfactual' and is 'none'"):
        list(run_training(prepare(jobs(name, "none")), tmp_path / "wild"))


def test_a_run_says_and_writes_down_how_many_there_are(jobs, tmp_path, capsys):
    file = jobs("label").data[0]
    flags = [f"--model.{key}={value}" for key, value in TINY.items()]
    flags += ["--train.max-steps", "2", "--task.augment", "counterfactual"]
    assert main(["train", "label", "--data", file, "--out", str(tmp_path / "run"), *flags]) == 0
    said = re.search(r"augmentation  (\d+) copies of (\d+) training examples", capsys.readouterr().out)
    assert said is not None
    settings = tomllib.loads((tmp_path / "run" / "config.toml").read_text())
    twins = settings["run"]["augmentation"]
    assert len(twins.pop("lexicon")) == 12
    assert sum(twins.values()) == int(said[1])
    counts = json.loads((tmp_path / "run" / "result.json").read_text())["examples"]
    assert counts == {"train": 72, "dev": 8}  # as they were given
    assert main(["card", str(tmp_path / "run")]) == 0
    assert f"gender {twins['gender']}" in (tmp_path / "run" / "model" / "README.md").read_text()
    again = [str(tmp_path / "run" / "config.toml"), "--train.max-steps", "1", "--out", str(tmp_path / "again")]
    assert main(["train", *again]) == 0  # what is written down is a recipe


def test_numbers_of_pairs_are_learnt_in_the_units_of_the_data(tmp_path):
    rows = [f"he is {i}\tshe is {i}\t{i / 7:.3f}" for i in range(40)]
    (tmp_path / "a.tsv").write_text("sentence1\tsentence2\tscore\n" + "\n".join(rows) + "\n")
    one, other = (prepare(Job("pair", (str(tmp_path / "a.tsv"),), task_fields=told)) for told in (COUNTERFACTUAL, {}))
    assert isinstance(one.task, Pair)
    assert (one.task.config.target_mean, one.task.config.target_std) == (
        other.task.config.target_mean,
        other.task.config.target_std,
    )
    golds = [example["label"] for example in one.augmented_examples.examples]
    assert sorted(golds) == sorted(2 * golds[: len(golds) // 2])


def test_the_tags_of_a_twin_reach_the_tokens_of_its_words(jobs):
    made = prepare(jobs("tag"))
    assert isinstance(made.task, Tag)
    items = made.task.encode(made.augmented_examples.examples, made.model)
    for item in items:
        tags = [made.task.labels[item.gold[place]] for place in item.word_starts]
        assert tags == item.example["tags"]
    people = {item.example["words"][0] for item in items if item.example["tags"][0] == "B-PER"}
    assert {"Mary", "James", "Peter", "Anna"} <= people
