"""Eole on translation, in an environment of its own: its commands build_vocab, train and predict, with the pieces that we read.

A piece is written as a word, t and its number, so that Eole reads and writes exactly what our tokenizer makes. It trains without
a stop and leaves a checkpoint every so many steps; scored is the newest one that was on disk when a time had come.
"""

import json
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

TRAINING = {"learning_rate": 2, "warmup_steps": 1000, "adam_beta2": 0.998, "label_smoothing": 0.1, "dropout": 0.1}
EVERY = 100  # steps between checkpoints
POLL = 0.5  # seconds
BEGINS = "Start training loop"  # what it says when data and model are ready


def settings(recipe: Any) -> dict[str, Any]:
    """How it is trained, and why so."""
    sizes = recipe.tables["model"]
    return {
        "from": "its FAQ on the transformer and its recipe wmt17: adam, noam, token batches, smoothing, dropout, beams of 5",
        "changed for two cores": "float32, sizes and pieces of our recipe, 2,048 tokens a step, and 1,000 steps of warm-up, as "
        "the documented 8,000 would outlast the time; the documented rate, as a third of it was behind after 700 steps",
        "model": {name: sizes[name] for name in ("layers", "width", "heads", "ffn_width", "vocab")},
        "training": TRAINING,
    }


def train(asked: Any) -> Iterator[tuple[float, list[str]]]:
    """Train to the last of the times, then translate the test with the checkpoint of each."""
    if asked.eole is None or not asked.eole.is_file():
        raise FileNotFoundError(
            f"{asked.eole}: there is no Eole; pip install eole in an environment of its own, --eole PATH."
        )
    asked.out.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(asked.out / "model", ignore_errors=True)  # else an older run's checkpoints were scored
    tokenizer = learnt(asked.splits.train.examples, asked.recipe)
    for split, table in asked.splits.as_dict().items():
        for side in ("source", "target"):
            _write(asked.out / f"{split}.{side}", tokenizer, [example[side] for example in table.examples])
    config = asked.out / "config.json"  # JSON is YAML
    config.write_text(json.dumps(configured(asked.out, asked.recipe)), encoding="utf-8")
    _run(asked.eole, asked.out, "build_vocab", "-config", config, "-n_sample", "-1")
    saved = watched(asked, config)
    for minutes in asked.minutes:
        there = [(at, path) for at, path in saved if at <= minutes]
        if there:
            yield minutes, translated(asked, tokenizer, there[-1][1])


def learnt(examples: Sequence[Any], recipe: Any) -> Any:
    """The tokenizer that our recipe learns."""
    from saccade.tasks.learn_tokenizer import learn_tokenizer

    texts = [example[side] for example in examples for side in ("source", "target")]
    pieces, vocab = recipe.tables["task"]["tokenizer"], recipe.tables["model"]["vocab"]
    return learn_tokenizer(texts, pieces, vocab, token_template="t5", is_text_stream=False)


def _write(path: Path, tokenizer: Any, texts: Sequence[str]) -> None:
    read = tokenizer.encode_batch(list(texts), add_special_tokens=False)
    path.write_text("".join(" ".join(f"t{i}" for i in found.ids) + "\n" for found in read), encoding="utf-8")


def configured(out: Path, recipe: Any) -> dict[str, Any]:
    """Eole's configuration."""
    sizes, rates = settings(recipe)["model"], TRAINING
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
        "save_checkpoint_steps": EVERY,
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
        "learning_rate": rates["learning_rate"],
        "warmup_steps": rates["warmup_steps"],
        "adam_beta2": rates["adam_beta2"],
        "label_smoothing": rates["label_smoothing"],
        "dropout": [rates["dropout"]],
        "attention_dropout": [rates["dropout"]],
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
    whole = {"src_vocab": vocab, "tgt_vocab": vocab, "share_vocab": True, "save_data": str(out), "overwrite": True}
    return {**whole, "seed": 0, "report_every": 100, "data": data, "training": training, "model": model}


def _run(eole: Path, out: Path, *words: Any) -> None:
    with (out / f"{words[0]}.log").open("w") as log:
        subprocess.run([eole, *map(str, words)], check=True, stdout=log, stderr=subprocess.STDOUT)


def watched(asked: Any, config: Path) -> list[tuple[float, Path]]:
    """Train for all the time; the minute at which each checkpoint was whole, and the checkpoint."""
    log = asked.out / "train.log"
    with log.open("w") as stream:
        process = subprocess.Popen(
            [asked.eole, "train", "-config", str(config)], stdout=stream, stderr=subprocess.STDOUT
        )
        try:
            return _timed(asked, process, log)
        finally:
            process.terminate()
            process.wait()


def _timed(asked: Any, process: subprocess.Popen[bytes], log: Path) -> list[tuple[float, Path]]:
    began, found = 0.0, list[tuple[float, Path]]()
    while True:
        time.sleep(POLL)
        if process.poll() is not None:
            raise RuntimeError(f"Eole ended with code {process.returncode}; {log} says why.")
        if not began:
            if BEGINS in log.read_text(encoding="utf-8", errors="replace"):
                began = time.monotonic()
            continue
        now = (time.monotonic() - began) / 60
        newest = max((asked.out / "model").glob("step_*"), key=_step, default=None)
        if newest is not None and (not found or newest != found[-1][1]) and (newest / "vocab.json").is_file():
            found.append((now, newest))
            found = spared(found, asked.minutes)
        if now >= asked.minutes[-1]:
            return found


def _step(path: Path) -> int:
    return int(path.name.split("_")[1])


def spared(found: list[tuple[float, Path]], minutes: Sequence[float]) -> list[tuple[float, Path]]:
    """Remove the checkpoint before the newest, unless it was the newest when a time came: each takes 100 MB and more."""
    if len(found) < 2:
        return found
    (then, older), (now, _) = found[-2:]
    if any(then <= time < now for time in minutes):
        return found
    shutil.rmtree(older, ignore_errors=True)
    return [*found[:-2], found[-1]]


def translated(asked: Any, tokenizer: Any, checkpoint: Path) -> list[str]:
    """The test, translated as Eole does by default, and read back from pieces."""
    said = asked.out / f"{checkpoint.name}.said"
    _run(
        asked.eole, asked.out, "predict", "-model_path", checkpoint, "-src", asked.out / "test.source", "-output", said
    )
    lines = said.read_text(encoding="utf-8").splitlines()
    return [tokenizer.decode([int(word[1:]) for word in line.split() if word[1:].isdigit()]) for line in lines]
