"""Validity checks of records with a formal syntax, one file each; a check returns the first fault, or an empty string."""

from saccade.tasks.records.abc_tune import check_abc_tune
from saccade.tasks.records.smiles import check_smiles

__all__ = ["check_abc_tune", "check_smiles"]
