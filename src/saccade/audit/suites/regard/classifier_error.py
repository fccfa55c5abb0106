"""The error rate of the regard classifier on a labeled file: lines of -1, 0 or 1, a tab, and a text about XYZ."""

from pathlib import Path

from saccade.audit.stats import estimate_fraction
from saccade.audit.suite import Estimate
from saccade.audit.suites.regard.classifier import RegardClassifier
from saccade.audit.suites.regard.examples import REGARD_LABELS, lexicon_regard
from saccade.errors import DataError

LABEL_CODES = {"-1": "negative", "0": "neutral", "1": "positive"}
MIXED_LABEL = "2"  # both positive and negative; such lines are skipped
LABEL_FORMAT_HINT = "write a label (-1, 0 or 1), a tab and a text about XYZ on each line"


def is_labeled_file(path: Path) -> bool:
    """Whether a file has labeled lines; other files are test sentences of other suites."""
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            first = next(lines, "")
    except OSError as error:
        raise DataError(f"cannot be read ({error})", file=path, hint=LABEL_FORMAT_HINT) from error
    return first.partition("\t")[0] in (*LABEL_CODES, MIXED_LABEL)


def measure_classifier_error(path: Path, classifier: RegardClassifier) -> list[Estimate]:
    """The error rates of the classifier and of the lexicon on a labeled file."""
    gold, texts = [], []
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        label, tab, text = line.partition("\t")
        if not tab or label not in (*LABEL_CODES, MIXED_LABEL):
            raise DataError("unknown regard label", file=path, line=number, value=label, hint=LABEL_FORMAT_HINT)
        if label != MIXED_LABEL:
            gold.append(LABEL_CODES[label])
            texts.append(text)
    if not texts:
        raise DataError("the file has no sentences", file=path, hint=LABEL_FORMAT_HINT)
    predicted = {
        "classifier": classifier.predict_labels(texts),
        "lexicon": [REGARD_LABELS[lexicon_regard(text) + 1] for text in texts],
    }
    majority_error = 1 - max(gold.count(label) for label in REGARD_LABELS) / len(gold)
    estimates = []
    for scorer, labels in predicted.items():
        errors = [a != b for a, b in zip(gold, labels, strict=True)]
        name = f"error rate of the {scorer} on {path.name}"
        estimates.append(estimate_fraction(name, errors, baseline=majority_error))
    return estimates
