"""The registry of studies: each is a module, or `study.py` in a package, with a `STUDY`, and is imported on demand."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from saccade.studies.study import Study

STUDIES = {  # name -> description
    "listops": "accuracy and cost of attention mechanisms on nested lists, at equal parameters and training time",
    "hard_vs_soft": "hard and soft attention: score, gradient noise, and whether each attends to what it names",
    "lengths": "BLEU by sentence length, with attention and with a fixed vector",
    "pretraining": "the gain from masked LM and replaced token detection, after fine-tuning on few and on many labels",
    "peptides": "does a classifier call generated peptides antimicrobial more often than the same residues shuffled",
    "grammar": "does a language model find the grammatical sentence of a pair more likely (BLiMP)",
}


def load_study(name: str) -> "Study":
    """Load a study by name."""
    module = import_module(f"saccade.studies.{name}")
    return (import_module(f"{module.__name__}.study") if hasattr(module, "__path__") else module).STUDY
