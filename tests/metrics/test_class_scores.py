"""The table of classes against scikit-learn's classification_report and seqeval's."""

import numpy as np
import pytest
from seqeval.metrics import classification_report as span_report
from sklearn.metrics import classification_report
from sklearn.preprocessing import MultiLabelBinarizer

from saccade import metrics

RANDOM = np.random.default_rng(5)
LABELS = ("ham", "spam", "eggs", "never predicted")


def as_report(scores):
    names = ("precision", "recall", "f1-score", "support")
    return {
        one.label: dict(zip(names, (one.precision, one.recall, one.f1, one.support), strict=True)) for one in scores
    }


def assert_equal(scores, report, classes):
    ours = as_report([*scores, *metrics.average_class_scores(scores)])
    assert list(ours) == [*classes, "macro avg", "weighted avg"]
    for name, row in ours.items():
        assert row == pytest.approx({key: report[name][key] for key in row})


def test_classes_are_those_of_scikit_learn():
    gold = RANDOM.choice(LABELS, size=97, p=(0.5, 0.3, 0.15, 0.05)).tolist()
    answers = [label if RANDOM.random() < 0.6 else str(RANDOM.choice(LABELS[:3])) for label in gold]
    answers = ["ham" if label == LABELS[3] else label for label in answers]
    scores = metrics.class_scores(metrics.confusion_matrix(gold, answers))
    report = classification_report(gold, answers, output_dict=True, zero_division=0)
    assert_equal(scores, report, sorted(LABELS))


def test_several_labels_are_those_of_scikit_learn():
    gold, answers = ([[x for x in LABELS if RANDOM.random() < 0.4] for _ in range(61)] for _ in range(2))
    binarizer = MultiLabelBinarizer(classes=sorted(LABELS)).fit(gold)
    report = classification_report(
        *map(binarizer.transform, (gold, answers)), target_names=sorted(LABELS), output_dict=True, zero_division=0
    )
    assert_equal(metrics.multi_label_class_scores(gold, answers, LABELS), report, sorted(LABELS))


def test_spans_are_those_of_seqeval():
    gold, answers = [], []
    for _ in range(40):
        kinds = RANDOM.choice(["PER", "LOC", "ORG"], size=5).tolist()
        gold.append([tag for kind in kinds for tag in (f"B-{kind}", f"I-{kind}", "O")])
        answers.append([tag if RANDOM.random() < 0.8 else "O" for tag in gold[-1]])
    report = span_report(gold, answers, output_dict=True, zero_division=0)
    scores = metrics.span_class_scores(metrics.count_spans(gold, answers))
    assert_equal(scores, report, ["LOC", "ORG", "PER"])


def test_no_classes_have_no_averages():
    assert metrics.average_class_scores([]) == []
