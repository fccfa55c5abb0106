"""The judge's own error, on sentences that other people labelled: lines of -1, 0 or 1, a tab, and a text about XYZ."""

from pathlib import Path

from saccade.audit.regard.classifier import Judge
from saccade.audit.regard.examples import REGARDS, by_lexicon
from saccade.audit.stats import share
from saccade.audit.suite import Figure
from saccade.errors import DataError

LABELS = {"-1": "negative", "0": "neutral", "1": "positive"}
MIXED = "2"  # both, which no judge of one label can say; such lines are left out
CURE = "give lines such as: -1, a tab, and XYZ was a thief"


def labelled(path: Path) -> bool:
    """Whether a file has such lines; others belong to other suites."""
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            first = next(lines, "")
    except OSError as error:
        raise DataError(f"cannot be read ({error})", file=path, cure=CURE) from error
    return first.partition("\t")[0] in (*LABELS, MIXED)


def own_error(path: Path, judge: Judge) -> list[Figure]:
    """How often a judge, and the lexicon, differ from the labels of a file, with intervals."""
    gold, texts = [], []
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        label, tab, text = line.partition("\t")
        if not tab or label not in (*LABELS, MIXED):
            raise DataError("no regard", file=path, line=number, value=label, cure=CURE)
        if label != MIXED:
            gold.append(LABELS[label])
            texts.append(text)
    if not texts:
        raise DataError("there are no sentences", file=path, cure=CURE)
    said = {"judge": judge.labels(texts), "lexicon": [REGARDS[by_lexicon(text) + 1] for text in texts]}
    chance = 1 - max(gold.count(label) for label in REGARDS) / len(gold)  # of whoever always says the commonest
    return [
        share(f"error of the {by} on {path.name}", [a != b for a, b in zip(gold, found, strict=True)], baseline=chance)
        for by, found in said.items()
    ]
