"""The judge's own error, on sentences that other people labelled: lines of -1, 0 or 1, a tab, and a text about XYZ."""

from pathlib import Path

from saccade.audit.stats import estimate_fraction
from saccade.audit.suite import Estimate
from saccade.audit.suites.regard.classifier import RegardClassifier
from saccade.audit.suites.regard.examples import REGARD_LABELS, lexicon_regard
from saccade.errors import DataError

LABEL_CODES = {"-1": "negative", "0": "neutral", "1": "positive"}
MIXED_LABEL = "2"  # both, which no judge of one label can say; such lines are left out
LABEL_FORMAT_HINT = "give lines such as: -1, a tab, and XYZ was a thief"


def is_labeled_file(path: Path) -> bool:
    """Whether a file has such lines; others belong to other suites."""
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            first = next(lines, "")
    except OSError as error:
        raise DataError(f"cannot be read ({error})", file=path, hint=LABEL_FORMAT_HINT) from error
    return first.partition("\t")[0] in (*LABEL_CODES, MIXED_LABEL)


def measure_classifier_error(path: Path, classifier: RegardClassifier) -> list[Estimate]:
    """How often a judge, and the lexicon, differ from the labels of a file, with intervals."""
    gold, texts = [], []
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        label, tab, text = line.partition("\t")
        if not tab or label not in (*LABEL_CODES, MIXED_LABEL):
            raise DataError("no regard", file=path, line=number, value=label, hint=LABEL_FORMAT_HINT)
        if label != MIXED_LABEL:
            gold.append(LABEL_CODES[label])
            texts.append(text)
    if not texts:
        raise DataError("there are no sentences", file=path, hint=LABEL_FORMAT_HINT)
    said = {
        "classifier": classifier.predict_labels(texts),
        "lexicon": [REGARD_LABELS[lexicon_regard(text) + 1] for text in texts],
    }
    chance = 1 - max(gold.count(label) for label in REGARD_LABELS) / len(gold)  # of whoever always says the commonest
    return [
        estimate_fraction(
            f"error of the {by} on {path.name}", [a != b for a, b in zip(gold, found, strict=True)], baseline=chance
        )
        for by, found in said.items()
    ]
