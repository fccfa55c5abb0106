"""The result of an evaluation: scores, classes, confusion matrix, mistakes, a report as text, and the comparison of two runs."""

from saccade.training.evaluation.evaluation import Evaluation
from saccade.training.evaluation.mistakes import Mistake, Mistakes

__all__ = ["Evaluation", "Mistake", "Mistakes"]
