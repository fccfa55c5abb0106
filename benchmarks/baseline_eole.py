"""Baseline: Eole on translation, in its own environment, run by its commands build_vocab, train and predict.

Each token is written as a word ("t" and its id), so that Eole has exactly the tokens of our tokenizer. It trains without a
pause and saves a checkpoint every SAVE_EVERY steps; at each time limit, the newest checkpoint on disk is scored.
"""

import json
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

TRAINING = {"learning_rate": 2, "warmup_steps": 1000, "adam_beta2": 0.998, "label_smoothing": 0.1, "dropout": 0.1}
SAVE_EVERY = 100  # steps between checkpoints
POLL_SECONDS = 0.5
START_LINE = "Start training loop"  # what Eole logs when data and model are ready


def settings(recipe: Any) -> dict[str, Any]:
    """The settings of the training, with their sources, as the record and the page state them."""
    sizes = recipe.tables["model"]
    return {
        "from": "the FAQ on the transformer and the recipe wmt17 in its documentation (Adam, Noam schedule, token batches, label "
        "smoothing, dropout, beam size 5)",
        "changed for two cores": "float32, model sizes and vocabulary of our recipe, 2,048 tokens per step, 1,000 warmup steps "
        "(the documented 8,000 would exceed the time), and the documented learning rate (a third of it scored lower after "
        "700 steps)",
        "model": {name: sizes[name] for name in ("layers", "width", "heads", "ffn_width", "vocab")},
        "training": TRAINING,
    }


def train(job: Any) -> Iterator[tuple[float, list[str]]]:
    """Train until the last time limit, then translate the test set with the checkpoint of each limit."""
    if job.eole is None or not job.eole.is_file():
        raise FileNotFoundError(
            f"{job.eole}: no such file; install eole in its own environment and pass the path of its command to --eole."
        )
    job.out.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(job.out / "model", ignore_errors=True)  # or the checkpoints of an older run would be scored
    tokenizer = train_tokenizer(job.splits.train.examples, job.recipe)
    for split, table in job.splits.as_dict().items():
        for side in ("source", "target"):
            _write_tokens(job.out / f"{split}.{side}", tokenizer, [example[side] for example in table.examples])
    config = job.out / "config.json"  # JSON is YAML
    config.write_text(json.dumps(make_config(job.out, job.recipe)), encoding="utf-8")
    _run(job.eole, job.out, "build_vocab", "-config", config, "-n_sample", "-1")
    checkpoints = train_timed(job, config)
    for minutes in job.minutes:
        saved = [path for saved_at, path in checkpoints if saved_at <= minutes]
        if saved:
            yield minutes, translate(job, tokenizer, saved[-1])


def train_tokenizer(examples: Sequence[Any], recipe: Any) -> Any:
    """The tokenizer that the recipe of saccade trains."""
    from saccade.tasks.learn_tokenizer import learn_tokenizer

    texts = [example[side] for example in examples for side in ("source", "target")]
    kind, vocab = recipe.tables["task"]["tokenizer"], recipe.tables["model"]["vocab"]
    return learn_tokenizer(texts, kind, vocab, token_template="t5", is_text_stream=False)


def _write_tokens(path: Path, tokenizer: Any, texts: Sequence[str]) -> None:
    encodings = tokenizer.encode_batch(list(texts), add_special_tokens=False)
    path.write_text("".join(" ".join(f"t{i}" for i in encoding.ids) + "\n" for encoding in encodings), encoding="utf-8")


def make_config(out: Path, recipe: Any) -> dict[str, Any]:
    """The configuration file of Eole."""
    sizes = settings(recipe)["model"]
    data = {
        name: {"path_src": str(out / f"{split}.source"), "path_tgt": str(out / f"{split}.target")}
        for name, split in (("corpus_1", "train"), ("valid", "dev"))
    }
    training = {
        "model_path": str(out / "model"),
        "world_size": 1,
        "gpu_ranks": [],
        "train_steps": 10**6,
        "valid_steps": 10**6,
        "save_checkpoint_steps": SAVE_EVERY,
        "keep_checkpoint": -1,
        "batch_type": "tokens",
        "batch_size": 2048,
        "normalization": "tokens",
        "bucket_size": 32768,
        "num_workers": 0,
        "compute_dtype": "fp32",
        "optim": "adam",
        "decay_method": "noam",
        "max_grad_norm": 0,
        "param_init_method": "xavier_uniform",
        "learning_rate": TRAINING["learning_rate"],
        "warmup_steps": TRAINING["warmup_steps"],
        "adam_beta2": TRAINING["adam_beta2"],
        "label_smoothing": TRAINING["label_smoothing"],
        "dropout": [TRAINING["dropout"]],
        "attention_dropout": [TRAINING["dropout"]],
    }
    model = {
        "architecture": "transformer",
        "hidden_size": sizes["width"],
        "layers": sizes["layers"],
        "heads": sizes["heads"],
        "transformer_ff": sizes["ffn_width"],
        "share_embeddings": True,
        "share_decoder_embeddings": True,
        "embeddings": {"word_vec_size": sizes["width"], "position_encoding_type": "SinusoidalInterleaved"},
    }
    vocab = str(out / "vocab")
    general = {"src_vocab": vocab, "tgt_vocab": vocab, "share_vocab": True, "save_data": str(out), "overwrite": True}
    return {**general, "seed": 0, "report_every": 100, "data": data, "training": training, "model": model}


def _run(eole: Path, out: Path, *arguments: Any) -> None:
    with (out / f"{arguments[0]}.log").open("w") as log:
        subprocess.run([eole, *map(str, arguments)], check=True, stdout=log, stderr=subprocess.STDOUT)


def train_timed(job: Any, config: Path) -> list[tuple[float, Path]]:
    """Train until the last time limit; returns (minutes until it was complete, path) of each checkpoint that was kept."""
    log = job.out / "train.log"
    with log.open("w") as stream:
        process = subprocess.Popen([job.eole, "train", "-config", str(config)], stdout=stream, stderr=subprocess.STDOUT)
        try:
            return _collect_checkpoints(job, process, log)
        finally:
            process.terminate()
            process.wait()


def _collect_checkpoints(job: Any, process: subprocess.Popen[bytes], log: Path) -> list[tuple[float, Path]]:
    start, checkpoints = 0.0, list[tuple[float, Path]]()
    while True:
        time.sleep(POLL_SECONDS)
        if process.poll() is not None:
            raise RuntimeError(f"Eole exited with code {process.returncode}; see {log}.")
        if not start:
            if START_LINE in log.read_text(encoding="utf-8", errors="replace"):
                start = time.monotonic()
            continue
        now = (time.monotonic() - start) / 60
        newest = max((job.out / "model").glob("step_*"), key=_step_of, default=None)
        known = [path for _, path in checkpoints]
        if newest is not None and newest not in known and (newest / "vocab.json").is_file():
            checkpoints = remove_unneeded([*checkpoints, (now, newest)], job.minutes)
        if now >= job.minutes[-1]:
            return checkpoints


def _step_of(path: Path) -> int:
    return int(path.name.split("_")[1])


def remove_unneeded(checkpoints: list[tuple[float, Path]], limits: Sequence[float]) -> list[tuple[float, Path]]:
    """Delete the second newest checkpoint, unless it is the newest at a time limit: each takes more than 100 MB."""
    if len(checkpoints) < 2:
        return checkpoints
    (previous, path), (newest, _) = checkpoints[-2:]
    if any(previous <= limit < newest for limit in limits):
        return checkpoints
    shutil.rmtree(path, ignore_errors=True)
    return [*checkpoints[:-2], checkpoints[-1]]


def translate(job: Any, tokenizer: Any, checkpoint: Path) -> list[str]:
    """The test set, translated with the defaults of Eole and decoded by our tokenizer."""
    output = job.out / f"{checkpoint.name}.output"
    _run(job.eole, job.out, "predict", "-model_path", checkpoint, "-src", job.out / "test.source", "-output", output)
    lines = output.read_text(encoding="utf-8").splitlines()
    return [tokenizer.decode([int(word[1:]) for word in line.split() if word[1:].isdigit()]) for line in lines]
