"""All lessons, in the order of the lectures."""

from saccade.lessons import (
    alignments,
    bottleneck,
    costs,
    dictionaries,
    gates,
    gradients,
    heads,
    lengths,
    order,
    positions,
    scores,
)
from saccade.lessons.base import Lesson

LESSON_MODULES = (
    dictionaries,
    scores,
    bottleneck,
    lengths,
    alignments,
    order,
    positions,
    heads,
    gradients,
    gates,
    costs,
)
LESSONS: dict[str, Lesson] = {lesson.name: lesson for module in LESSON_MODULES for lesson in module.LESSONS}
