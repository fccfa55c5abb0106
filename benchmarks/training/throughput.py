"""Training throughput: the same model on the same data with each library, in processes that are measured alternately.

saccade runs its real training loop (`Learner`). The baselines are `transformers` with SDPA and the padded, shuffled batches of
its own collators, and a handwritten loop around a small GPT in the style of nanoGPT. Padding does not count as tokens.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.training.common import (
    Case,
    Step,
    batch_by_length,
    make_paragraphs,
    make_plain_step,
    make_saccade_step,
    make_sentences,
    shuffled_batches,
)
from benchmarks.training.masked_lm import train_masked_saccade, train_masked_transformers
from saccade.bench.measure import read_peak_memory

VOCAB = 4096
EOS_ID = 3
CONTEXT_LENGTH = 256
BATCH_SIZE = 12


def make_token_stream() -> np.ndarray:
    """One long text of random token ids; the training speed does not depend on their values."""
    return np.random.default_rng(0).integers(6, VOCAB, 200_000).astype(np.int32)


def train_windows_saccade(case: Case) -> Step:
    """GPT-2's architecture (6 layers, width 384) on windows of 256 tokens."""
    return _train_gpt2_saccade(case, make_token_stream())


def train_paragraphs_saccade(case: Case) -> Step:
    """The same model on paragraphs, concatenated and cut into windows."""
    return _train_gpt2_saccade(case, _concatenate(make_paragraphs(VOCAB)))


def train_sentences_saccade(case: Case) -> Step:
    """The same model on short texts, packed into windows."""
    return _train_gpt2_saccade(case, _concatenate(make_sentences(VOCAB)))


def _concatenate(texts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.append(text, EOS_ID) for text in texts])


def _train_gpt2_saccade(case: Case, ids: np.ndarray) -> Step:
    from saccade.models.build import new
    from saccade.models.families import gpt2
    from saccade.tasks.batches import window_batches
    from saccade.tasks.language import Language

    config = gpt2.Config(
        vocab=VOCAB, width=384, layers=6, heads=6, max_positions=CONTEXT_LENGTH, dropout=case.dropout,
        attention_dropout=case.dropout, use_attention_dropout=case.dropout > 0,
    )  # fmt: skip
    task = Language()
    batches = window_batches(task, ids, CONTEXT_LENGTH, batch_tokens=BATCH_SIZE * CONTEXT_LENGTH)
    return make_saccade_step(new("gpt2", config), task, batches)


def train_pairs_saccade(case: Case) -> Step:
    """Marian's architecture (3 + 3 layers, width 256) on sentence pairs, in batches of similar length."""
    from saccade.data import Example
    from saccade.models.build import new
    from saccade.models.families import marian
    from saccade.tasks.base import Item
    from saccade.tasks.translate import Translate

    config = marian.Config(
        vocab=VOCAB, width=256, layers=3, decoder_layers=3, heads=4, decoder_heads=4, ffn_width=1024, decoder_ffn_width=1024,
        decoder_start_id=0, max_positions=512, dropout=case.dropout, attention_dropout=case.dropout,
        use_attention_dropout=case.dropout > 0, activation="relu",
    )  # fmt: skip
    texts = make_sentences(VOCAB)
    items = [Item(Example({}), a, target=b) for a, b in zip(texts, _make_targets(texts), strict=True)]
    task = Translate()
    return make_saccade_step(new("marian", config), task, batch_by_length(task, items, 2 * 64 * 20))


def train_windows_transformers(case: Case) -> Step:
    import transformers

    ids = torch.from_numpy(make_token_stream()).long()
    model = _make_gpt2_transformers(case)
    collate = transformers.default_data_collator

    def batches() -> Iterator[dict[str, Tensor]]:
        generator = torch.Generator().manual_seed(0)
        while True:
            starts = torch.randint(len(ids) - CONTEXT_LENGTH, (BATCH_SIZE,), generator=generator).tolist()
            yield collate(
                [{"input_ids": ids[s : s + CONTEXT_LENGTH], "labels": ids[s : s + CONTEXT_LENGTH]} for s in starts]
            )

    return make_plain_step(model, batches(), lambda batch: batch["input_ids"].numel())


def train_paragraphs_transformers(case: Case) -> Step:
    return _train_texts_transformers(case, make_paragraphs(VOCAB), 2 * BATCH_SIZE)


def train_sentences_transformers(case: Case) -> Step:
    return _train_texts_transformers(case, make_sentences(VOCAB), 64)


def _train_texts_transformers(case: Case, texts: list[np.ndarray], size: int) -> Step:
    import transformers

    collate = transformers.DataCollatorForLanguageModeling(_make_tokenizer(transformers), mlm=False)
    rows = [{"input_ids": [*text.tolist(), EOS_ID][:CONTEXT_LENGTH]} for text in texts]
    count_tokens = lambda batch: int(batch["attention_mask"].sum())
    return make_plain_step(_make_gpt2_transformers(case), shuffled_batches(rows, collate, size), count_tokens)


def train_pairs_transformers(case: Case) -> Step:
    import transformers

    config = transformers.MarianConfig(
        vocab_size=VOCAB, d_model=256, encoder_layers=3, decoder_layers=3, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=1024, decoder_ffn_dim=1024, dropout=case.dropout,
        attention_dropout=case.dropout, activation_dropout=0.0, activation_function="relu", max_position_embeddings=512,
        pad_token_id=0, eos_token_id=EOS_ID, decoder_start_token_id=0, forced_eos_token_id=None,
    )  # fmt: skip
    model = transformers.MarianMTModel._from_config(config, attn_implementation="sdpa")
    collate = transformers.DataCollatorForSeq2Seq(_make_tokenizer(transformers), model=model)
    texts = make_sentences(VOCAB)
    rows = [{"input_ids": a.tolist(), "labels": b.tolist()} for a, b in zip(texts, _make_targets(texts), strict=True)]
    count_tokens = lambda batch: int(batch["attention_mask"].sum() + (batch["labels"] != -100).sum())
    return make_plain_step(model, shuffled_batches(rows, collate, 64), count_tokens)


def _make_gpt2_transformers(case: Case) -> Any:
    import transformers

    config = transformers.GPT2Config(
        vocab_size=VOCAB, n_positions=CONTEXT_LENGTH, n_embd=384, n_layer=6, n_head=6, resid_pdrop=case.dropout,
        embd_pdrop=case.dropout, attn_pdrop=case.dropout, bos_token_id=2, eos_token_id=EOS_ID,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel._from_config(config, attn_implementation="sdpa")


def _make_tokenizer(transformers: Any) -> Any:
    """A tokenizer for the collators, which need only its padding."""
    from tokenizers import Tokenizer, models

    tokenizer = Tokenizer(models.WordLevel({"<pad>": 0, "<unk>": 1}, unk_token="<unk>"))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>")


def _make_targets(texts: list[np.ndarray]) -> list[np.ndarray]:
    """Random targets about as long as their sources, as translations are."""
    rng = np.random.default_rng(2)
    lengths = [max(3, int(len(text) * rng.normal(1.05, 0.15))) for text in texts]
    return [rng.integers(6, VOCAB, length).astype(np.int32) for length in lengths]


class Block(nn.Module):
    """One layer of a handwritten GPT: a joint projection for q, k and v, SDPA, and a tanh GELU."""

    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.attention_norm, self.ffn_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.qkv(self.attention_norm(x)).chunk(3, -1)
        )
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.dropout)
        x = x + F.dropout(self.output(heads.transpose(1, 2).flatten(2)), self.dropout)
        return x + F.dropout(self.down(F.gelu(self.up(self.ffn_norm(x)), approximate="tanh")), self.dropout)


def train_windows_by_hand(case: Case) -> Step:
    token_embedding, position_embedding = nn.Embedding(VOCAB, 384), nn.Embedding(CONTEXT_LENGTH, 384)
    layers = nn.ModuleList(Block(384, 6, case.dropout) for _ in range(6))
    norm = nn.LayerNorm(384)
    model = nn.ModuleList([token_embedding, position_embedding, layers, norm])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ids = torch.from_numpy(make_token_stream()).long()
    generator = torch.Generator().manual_seed(0)

    def step() -> int:
        starts = torch.randint(len(ids) - CONTEXT_LENGTH - 1, (BATCH_SIZE,), generator=generator).tolist()
        tokens = torch.stack([ids[s : s + CONTEXT_LENGTH] for s in starts])
        gold = torch.stack([ids[s + 1 : s + CONTEXT_LENGTH + 1] for s in starts])
        x = F.dropout(token_embedding(tokens) + position_embedding.weight, case.dropout)
        for layer in layers:
            x = layer(x)
        loss = F.cross_entropy((norm(x) @ token_embedding.weight.T).flatten(0, 1), gold.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return tokens.numel()

    return step


CASES: dict[str, dict[str, Callable[[Case], Step]]] = {
    "causal": {"saccade": train_paragraphs_saccade, "transformers": train_paragraphs_transformers},
    "full windows": {
        "saccade": train_windows_saccade,
        "transformers": train_windows_transformers,
        "by hand": train_windows_by_hand,
    },
    "encoder-decoder": {"saccade": train_pairs_saccade, "transformers": train_pairs_transformers},
    "short texts": {"saccade": train_sentences_saccade, "transformers": train_sentences_transformers},
    "masked": {"saccade": train_masked_saccade, "transformers": train_masked_transformers},
}


def measure_in_child(case: Case, seconds: float) -> None:
    """Measure one case in this process and print the figures."""
    step = CASES[case.name][case.library](case)
    torch.manual_seed(0)
    for _ in range(2):
        step()
    tokens, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        tokens += step()
    peak = (read_peak_memory()[0] or 0) / 1e6
    print(json.dumps({"tokens_per_second": tokens / (time.perf_counter() - start), "peak_mb": peak}))


def compare(
    names: list[str], dropouts: list[float], *, rounds: int, seconds: float
) -> Iterator[tuple[Case, int, dict[str, float]]]:
    """Measure every case in its own process, the libraries alternately; yields (case, round, figures)."""
    for name in names:
        for dropout in dropouts:
            for number in range(rounds):
                libraries = list(CASES[name])
                for library in libraries if number % 2 == 0 else reversed(libraries):
                    case = Case(name, library, dropout)
                    arguments = [name, library, str(dropout), str(seconds)]
                    run = subprocess.run(
                        [sys.executable, "-W", "ignore", "-m", "benchmarks.training.throughput", *arguments],
                        capture_output=True,
                        text=True,
                    )
                    if run.returncode:
                        raise RuntimeError(f"{name} with {library} failed: {run.stderr.strip().splitlines()[-1:]}")
                    yield case, number, json.loads(run.stdout.splitlines()[-1])


if __name__ == "__main__":
    measure_in_child(Case(sys.argv[1], sys.argv[2], float(sys.argv[3])), float(sys.argv[4]))
