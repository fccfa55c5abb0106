"""All lessons, in the order of the lectures."""

from saccade.studies.lessons import (
    alignments,
    costs,
    dictionaries,
    gates,
    gradients,
    heads,
    lengths,
    memories,
    orders,
    places,
    scores,
)
from saccade.studies.lessons.lesson import Lesson

THEMES = (dictionaries, scores, memories, lengths, alignments, orders, places, heads, gradients, gates, costs)
LESSONS: dict[str, Lesson] = {lesson.name: lesson for theme in THEMES for lesson in theme.LESSONS}
