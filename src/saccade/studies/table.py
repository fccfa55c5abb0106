"""Every study by name: the module of that name has a `STUDY`, and is imported only when it is asked for."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from saccade.studies.study import Study

STUDIES = {  # name -> what it asks
    "listops": "which attention reads nested lists best at equal parameters and equal time, and what it costs",
    "gaze": "hard against soft attention: score, noise of the gradient, and whether each looks at what it names",
    "lengths": "attention against one fixed vector: BLEU by the length of the text",
    "pretraining": "what reading without labels is worth: masked and replaced words, then few labels and many",
    "peptides": "does a judge take invented peptides for antimicrobial, more often than the same residues shuffled",
    "grammar": "which of two sentences a language model finds likelier, the grammatical one or the other (BLiMP)",
}


def study(name: str) -> "Study":
    """The study of that name."""
    return import_module(f"saccade.studies.{name}").STUDY
