"""What is held out where no file is given: dev by which the checkpoint is chosen, test, and the folds of cross-validation."""

import random
from collections import Counter
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.model_selection import GroupKFold, StratifiedKFold

from saccade.data import Example, open_data
from saccade.data.example import LABEL, TEXT, TEXT_LINE, Records
from saccade.data.held_out import DEV_ONLY, MIN_TEST_EXAMPLES, HeldOut, split_by_hash
from saccade.data.splits import split_records
from saccade.errors import DataError, UsageError

ROLES = (TEXT, LABEL)
TENTH = HeldOut(test_size=0.1)


def numbered(count: int, repeat: int = 1) -> list[Example]:
    return [Example({"text": f"text {i // repeat}", "label": str(i % 3)}) for i in range(count)]


def texts(examples: list[Example] | None) -> list[str]:
    return [example["text"] for example in examples or []]


@pytest.mark.parametrize(("count", "test_size"), [(2000, 200), (2003, 200), (5574, 557), (1989, 0), (50, 0)])
def test_a_test_set_is_held_out_if_both_have_enough_rows(count, test_size):
    parts = split_by_hash(numbered(count), ROLES, TENTH)
    assert (len(texts(parts.dev)), len(texts(parts.test))) == (round(count / 10), test_size)
    assert parts.test_size == (0.1 if test_size else 0.0)
    assert sorted(texts(parts.train) + texts(parts.dev) + texts(parts.test)) == sorted(texts(numbered(count)))
    said = "as test, which is scored once at the end" if test_size else "there is no test set"
    assert said in parts.note
    assert f"{count:,} records" in parts.note


def test_dev_is_the_same_with_and_without_a_test_set():
    rows = numbered(3000)
    alone, both = split_by_hash(rows, ROLES, DEV_ONLY), split_by_hash(rows, ROLES, TENTH)
    assert texts(alone.dev) == texts(both.dev)
    assert alone.test is None
    assert sorted(texts(alone.train)) == sorted(texts(both.train) + texts(both.test))


def test_added_rows_never_move_between_dev_and_test():
    before, after = (split_by_hash(numbered(count), ROLES, TENTH) for count in (2500, 3500))
    assert not set(texts(before.dev)) & set(texts(after.test))
    assert not set(texts(before.test)) & set(texts(after.dev))


def test_the_order_of_the_rows_does_not_matter():
    rows = numbered(2400)
    mixed = random.Random(1).sample(rows, len(rows))
    one, other = split_by_hash(rows, ROLES, TENTH), split_by_hash(mixed, ROLES, TENTH)
    assert [sorted(texts(part)) for part in (one.dev, one.test)] == [
        sorted(texts(part)) for part in (other.dev, other.test)
    ]


def test_equal_inputs_and_equal_groups_stay_together():
    rows = numbered(4200, repeat=7)
    parts = split_by_hash(rows, ROLES, TENTH)
    sides = [set(texts(part)) for part in (parts.train, parts.dev, parts.test)]
    assert sum(map(len, sides)) == len(set.union(*sides)) == 600
    people = [Example({**row.values, "split_group": f"person {i % 90}"}) for i, row in enumerate(numbered(4500))]
    parts = split_by_hash(people, ROLES, HeldOut(0.1, "person"))
    sides = [{row["split_group"] for row in part or []} for part in (parts.train, parts.dev, parts.test)]
    assert [len(side) for side in sides] == [72, 9, 9]
    assert "column person" in parts.note


def test_few_large_groups_leave_no_test_set_and_the_note_says_so():
    rows = [Example({"text": f"text {min(i % 10, 2)}", "label": "a"}) for i in range(3000)]
    parts = split_by_hash(rows, ROLES, TENTH)
    assert parts.test is None
    assert "there is no test set" in parts.note
    assert texts(parts.train)


fold_rows = st.lists(st.tuples(st.integers(0, 11), st.sampled_from("abc")), min_size=30, max_size=90)


@settings(deadline=None, max_examples=40)
@given(rows=fold_rows, folds=st.integers(2, 5))
def test_folds_are_disjoint_and_complete_and_divide_no_group_as_those_of_scikit_learn(rows, folds):
    examples = [
        Example({"text": str(i), "label": label, "split_group": str(group)}) for i, (group, label) in enumerate(rows)
    ]
    groups = np.array([group for group, _ in rows])
    if len(set(groups.tolist())) < folds + 1:
        return
    tests = []
    for k in range(1, folds + 1):
        parts = split_by_hash(examples, ROLES, HeldOut(0.1, "person", f"{k}/{folds}"))
        sides = [[int(row["text"]) for row in part or []] for part in (parts.train, parts.dev, parts.test)]
        assert sorted(chain(*sides)) == list(range(len(rows)))
        held_groups = [set(groups[side].tolist()) for side in sides]
        assert sum(map(len, held_groups)) == len(set(groups.tolist()))
        assert all(sides)
        tests.append(sides[2])
    assert sorted(chain(*tests)) == list(range(len(rows)))
    theirs = [len(test) for _, test in GroupKFold(folds).split(rows, groups=groups)]
    assert len(theirs) == len(tests)
    assert max(map(len, tests)) <= max(theirs) + max(Counter(groups.tolist()).values())


def test_folds_have_the_same_shares_of_labels_as_those_of_scikit_learn():
    draw = random.Random(5)
    labels = draw.choices("abc", (70, 25, 5), k=403)
    examples = [Example({"text": f"text {i}", "label": label}) for i, label in enumerate(labels)]
    ours = []
    for k in range(1, 6):
        test = split_by_hash(examples, ROLES, HeldOut(fold=f"{k}/5")).test or []
        ours.append(Counter(example["label"] for example in test))
    theirs = [Counter(labels[i] for i in test) for _, test in StratifiedKFold(5).split(labels, labels)]
    for label in "abc":
        counts, expected = ([fold[label] for fold in folds] for folds in (ours, theirs))
        assert max(counts) - min(counts) <= 1
        assert sum(counts) == sum(expected)
    assert max(fold.total() for fold in ours) - min(fold.total() for fold in ours) <= 1


def test_more_folds_than_groups_are_refused():
    rows = [Example({"text": f"text {i % 3}", "label": "a"}) for i in range(30)]
    with pytest.raises(DataError, match=r"5 folds need at least 5 groups, and the data have 3.*fewer folds"):
        split_by_hash(rows, ROLES, HeldOut(fold="1/5"))


@pytest.mark.parametrize("fold", ["0/5", "6/5", "1/1", "two", "1/5/2", "5"])
def test_a_fold_that_is_none_is_refused(fold):
    with pytest.raises(UsageError, match="write the fold and the number of folds, such as 2/5"):
        HeldOut(fold=fold)


@pytest.mark.parametrize("size", [-0.1, 0.6, float("nan")])
def test_a_test_size_that_leaves_too_little_is_refused(size):
    with pytest.raises(UsageError, match=r"from 0 to 0\.5"):
        HeldOut(test_size=size)


def write_table(path, count, start=0):
    lines = [f"text {i}\t{'odd' if i % 2 else 'even'}\tperson {i % 50}" for i in range(start, start + count)]
    path.write_text("\n".join(["text\tlabel\tperson", *lines]) + "\n", encoding="utf-8")
    return path


def test_files_of_the_user_win(tmp_path):
    train, dev, test = (
        write_table(tmp_path / f"{name}.tsv", 2500, 10_000 * i) for i, name in enumerate(("train", "dev", "test"))
    )
    alone = open_data([train], ROLES, held_out=TENTH)
    assert (len(alone.dev.examples), alone.test_size) == (250, 0.1)
    assert alone.test is not None
    assert len(alone.test.examples) == 250
    with_dev = open_data([train, dev], ROLES, held_out=TENTH)
    assert (len(with_dev.train.examples), len(with_dev.dev.examples), with_dev.test) == (2500, 2500, None)
    with_test = open_data([train, test], ROLES, held_out=TENTH)
    assert with_test.test is not None
    assert [len(table.examples) for table in with_test.as_dict().values()] == [2250, 250, 2500]
    assert with_test.test_size == with_dev.test_size == 0.0
    with pytest.raises(UsageError, match="there is a test file, too"):
        open_data([train, test], ROLES, held_out=HeldOut(fold="1/2"))
    fold = open_data([train, dev], ROLES, held_out=HeldOut(fold="1/2"))
    assert [len(table.examples) for table in fold.as_dict().values()] == [1250, 2500, 1250]


def test_the_digest_is_that_of_the_files_whatever_is_held_out(tmp_path):
    path = write_table(tmp_path / "all.tsv", 2500)
    plans = (DEV_ONLY, TENTH, HeldOut(0.1, "person"))
    assert len({open_data([path], ROLES, held_out=plan).digest for plan in plans}) == 1
    grouped = open_data([path], ROLES, held_out=plans[-1])
    people = [{row["split_group"] for row in table.examples} for table in grouped.as_dict().values()]
    assert sum(map(len, people)) == 50


def test_running_text_has_neither_folds_nor_groups():
    rows = Records([Example({"text": f"line {i}\n"}, "a.txt", i + 1) for i in range(5 * MIN_TEST_EXAMPLES)])
    plan = replace(TENTH, group_by="person")
    with pytest.raises(UsageError, match=r"Running text is one text.*train\.group_by"):
        split_records(rows, [TEXT_LINE], contiguous=True, held_out=plan)
    assert split_records(rows, [TEXT_LINE], contiguous=True, held_out=TENTH).test is None
