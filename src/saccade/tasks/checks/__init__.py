"""Checks of texts that have rules of their own, one file for each: what is wrong with a text, or an empty string."""

from saccade.tasks.checks.smiles import syntax
from saccade.tasks.checks.tune import bars

__all__ = ["bars", "syntax"]
