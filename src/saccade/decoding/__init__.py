"""From scores to texts: one loop over `start` and `step` that serves every writer.

The names are imported when they are first used: the command line reads `settings`, which needs no torch, to explain itself.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from saccade.decoding.beam import Beams as Beams
    from saccade.decoding.beam import Hypothesis as Hypothesis
    from saccade.decoding.beam import search as search
    from saccade.decoding.bounds import Bounds as Bounds
    from saccade.decoding.choose import Draw as Draw
    from saccade.decoding.choose import greedy as greedy
    from saccade.decoding.constrain import Among as Among
    from saccade.decoding.constrain import JsonSchema as JsonSchema
    from saccade.decoding.constrain import Matching as Matching
    from saccade.decoding.loop import Choose as Choose
    from saccade.decoding.loop import Step as Step
    from saccade.decoding.loop import follow as follow
    from saccade.decoding.loop import steps as steps
    from saccade.decoding.rules import Forbid as Forbid
    from saccade.decoding.rules import Force as Force
    from saccade.decoding.rules import MinLength as MinLength
    from saccade.decoding.rules import NoRepeat as NoRepeat
    from saccade.decoding.rules import Repetition as Repetition
    from saccade.decoding.rules import Rule as Rule
    from saccade.decoding.rules import Sofar as Sofar
    from saccade.decoding.settings import Decoding as Decoding
    from saccade.decoding.stop import Written as Written
    from saccade.decoding.stop import stream as stream
    from saccade.decoding.stop import written as written
    from saccade.decoding.texts import generate as generate
    from saccade.decoding.ways import write_texts as write_texts

_HOME = {
    "Among": "constrain",
    "Beams": "beam",
    "Bounds": "bounds",
    "Choose": "loop",
    "Decoding": "settings",
    "Draw": "choose",
    "Forbid": "rules",
    "Force": "rules",
    "Hypothesis": "beam",
    "JsonSchema": "constrain",
    "Matching": "constrain",
    "MinLength": "rules",
    "NoRepeat": "rules",
    "Repetition": "rules",
    "Rule": "rules",
    "Sofar": "rules",
    "Step": "loop",
    "Written": "stop",
    "follow": "loop",
    "generate": "texts",
    "greedy": "choose",
    "search": "beam",
    "steps": "loop",
    "stream": "stop",
    "write_texts": "ways",
    "written": "stop",
}


def __getattr__(name: str):
    if name in _HOME:
        return getattr(import_module(f"saccade.decoding.{_HOME[name]}"), name)
    raise AttributeError(f"module 'saccade.decoding' has no attribute {name!r}; it has {', '.join(sorted(_HOME))}")
