"""Decoding strategies: greedy, sampling, beam search, speculative decoding and others, in one loop for every model.

Names are imported on first use, because the command line reads `config`, which needs no torch, to print its help.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from saccade.decoding.beam import BeamConfig as BeamConfig
    from saccade.decoding.beam import Hypothesis as Hypothesis
    from saccade.decoding.beam import beam_search as beam_search
    from saccade.decoding.config import GenerationConfig as GenerationConfig
    from saccade.decoding.constraints.processors import ChoiceConstraint as ChoiceConstraint
    from saccade.decoding.constraints.processors import JsonSchemaConstraint as JsonSchemaConstraint
    from saccade.decoding.constraints.processors import RegexConstraint as RegexConstraint
    from saccade.decoding.generate_text import generate as generate
    from saccade.decoding.generator import generate_hypotheses as generate_hypotheses
    from saccade.decoding.logits_processors import BadWords as BadWords
    from saccade.decoding.logits_processors import CheckedProcessor as CheckedProcessor
    from saccade.decoding.logits_processors import ForcedTokens as ForcedTokens
    from saccade.decoding.logits_processors import MinNewTokens as MinNewTokens
    from saccade.decoding.logits_processors import NoRepeatNgram as NoRepeatNgram
    from saccade.decoding.logits_processors import RepetitionPenalty as RepetitionPenalty
    from saccade.decoding.logits_processors import TokenHistory as TokenHistory
    from saccade.decoding.loop import DecodingStep as DecodingStep
    from saccade.decoding.loop import SamplerFunction as SamplerFunction
    from saccade.decoding.loop import decoding_steps as decoding_steps
    from saccade.decoding.loop import teacher_forced_logits as teacher_forced_logits
    from saccade.decoding.sampling import Sampler as Sampler
    from saccade.decoding.sampling import greedy as greedy
    from saccade.decoding.stop_strings import GeneratedText as GeneratedText
    from saccade.decoding.stop_strings import generate_texts as generate_texts
    from saccade.decoding.stop_strings import stream_texts as stream_texts
    from saccade.decoding.stopping import StoppingCriteria as StoppingCriteria

_MODULE_OF = {
    "ChoiceConstraint": "constraints.processors",
    "BeamConfig": "beam",
    "StoppingCriteria": "stopping",
    "SamplerFunction": "loop",
    "GenerationConfig": "config",
    "Sampler": "sampling",
    "BadWords": "logits_processors",
    "ForcedTokens": "logits_processors",
    "Hypothesis": "beam",
    "JsonSchemaConstraint": "constraints.processors",
    "RegexConstraint": "constraints.processors",
    "MinNewTokens": "logits_processors",
    "NoRepeatNgram": "logits_processors",
    "RepetitionPenalty": "logits_processors",
    "CheckedProcessor": "logits_processors",
    "TokenHistory": "logits_processors",
    "DecodingStep": "loop",
    "GeneratedText": "stop_strings",
    "teacher_forced_logits": "loop",
    "generate": "generate_text",
    "greedy": "sampling",
    "beam_search": "beam",
    "decoding_steps": "loop",
    "stream_texts": "stop_strings",
    "generate_hypotheses": "generator",
    "generate_texts": "stop_strings",
}


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(import_module(f"saccade.decoding.{_MODULE_OF[name]}"), name)
    raise AttributeError(f"module 'saccade.decoding' has no attribute {name!r}; it has {', '.join(sorted(_MODULE_OF))}")
