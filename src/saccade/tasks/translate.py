"""Translation and other text-to-text tasks: languages, dates, numbers, any pairs of source and target."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from saccade import metrics
from saccade.data import Batch, Example, Role, Text
from saccade.data.example import SOURCE, TARGET
from saccade.data.infer_task import are_numbers
from saccade.decoding.beam import BeamConfig, Hypothesis, beam_search
from saccade.decoding.generator import TextGenerator, vocab_processors
from saccade.decoding.loop import generate
from saccade.decoding.stopping import StoppingCriteria
from saccade.errors import UsageError
from saccade.metrics import Score
from saccade.models.capabilities import Generates, Modality
from saccade.models.model import Model
from saccade.tasks.base import (
    BaselineMethod,
    Defaults,
    ErrorRow,
    Item,
    Prompt,
    Task,
    encode_texts,
    pad_sources,
    require_tokenizer,
)
from saccade.tasks.baselines.sequences import translation_baselines
from saccade.tasks.interface.predictions import TextPrediction
from saccade.tasks.losses import seq2seq_loss
from saccade.tasks.needs import Needs

MAX_TARGETS_EXAMINED = 2_000  # targets from which the script is inferred, for BLEU


@dataclass(frozen=True)
class Config:
    max_tokens: int = 256
    """Maximum number of tokens per text, in source and target."""
    tokenizer: str = "auto"
    """Kind of tokenizer to train: bpe, wordpiece, unigram, words, characters or bytes; auto chooses by the data."""
    label_smoothing: float = 0.1
    """Label smoothing of the cross-entropy loss; 0 disables it."""
    metric: str = "bleu"
    """Metric that selects the best checkpoint: bleu, chrf or exact_match."""
    eval_beams: int = 1
    """Number of beams when held-out texts are scored; 1 is greedy decoding, more are slower."""
    bleu_tokenizer: str = "auto"
    """Tokenizer of BLEU: 13a, intl, zh, ja-mecab, ko-mecab or char; auto chooses by the script."""

    def __post_init__(self) -> None:
        check_beams(self.eval_beams)
        if self.bleu_tokenizer != "auto":
            metrics.check_bleu_tokenizer(self.bleu_tokenizer)


class Translate(Task):
    name = "translate"
    verb = "translate"
    gold_roles = ("target",)
    no_augment_reason = "the translation would have to change with its source, which no word list can do"
    hub_pipeline = "translation"
    prompt = Prompt((SOURCE, TARGET), "{source} => {target}\n")
    reads_sentences = True
    metric_names = ("bleu", "chrf", "exact_match")
    description = "translation: one text into another, such as a language, a date or a number"
    Config = Config
    needs = Needs(Modality.TEXT, Generates.TARGET)
    token_template = "t5"
    sample = "dates"

    def roles(self, paths: Sequence[str]) -> tuple[Role, ...]:
        return (SOURCE, TARGET)

    @classmethod
    def matches(cls, examples: Sequence[Example]) -> bool:
        return not are_numbers(examples, "source")

    def make_record(self, *texts: str) -> dict[str, Any]:
        return dict(zip(("source", "target"), texts, strict=False))  # a second text is the target

    def fit(self, examples: Sequence[Example]) -> None:
        """Choose the tokenizer of BLEU by the targets, so that every evaluation of the run uses the same one."""
        if self.config.bleu_tokenizer == "auto":
            tokenizer = metrics.bleu_tokenizer(example["target"] for example in examples[:MAX_TARGETS_EXAMINED])
            self.config = replace(self.config, bleu_tokenizer=tokenizer)

    def default_family(self) -> str:
        return "transformer"

    def defaults(self, examples: Sequence[Example], pretrained: bool) -> Defaults:
        if pretrained:
            return Defaults("", train={"lr": 1e-4, "batch_tokens": 2048, "epochs": 3})
        return Defaults(
            self.default_family(),
            {"width": 256, "layers": 3, "ffn_width": 1024},
            {"lr": 1e-3, "batch_tokens": 4096, "epochs": 20},
        )

    def max_target_tokens(self) -> int:
        """Maximum number of tokens of a target."""
        return self.config.max_tokens

    def baselines(self) -> Sequence[BaselineMethod]:
        return translation_baselines()

    def tokenizer_texts(self, examples: Iterable[Example]) -> Iterator[str]:
        for example in examples:
            yield example["source"]
            if "target" in example:
                yield example["target"]

    def encode(self, examples: Sequence[Example], model: Model) -> list[Item]:
        encodings = encode_texts([example["source"] for example in examples], model, self.config.max_tokens)
        targets: Iterable[Any] = [None] * len(examples)
        if examples and "target" in examples[0]:
            target_encodings = encode_texts(
                [example["target"] for example in examples], model, self.max_target_tokens(), target=True
            )
            targets = (ids for ids, _, _ in target_encodings)
        return [
            Item(example, ids, target=target)
            for example, (ids, _, _), target in zip(examples, encodings, targets, strict=True)
        ]

    def batch(self, items: Sequence[Item]) -> Batch:
        target = None
        if all(item.target is not None for item in items):
            target = Text.pad([item.target.tolist() for item in items if item.target is not None])
        return Batch(pad_sources(items), target, items=list(items))

    def count_targets(self, batch: Batch) -> int:
        return sum(len(item.target) for item in batch.items)

    def loss(self, model: Model, batch: Batch) -> Tensor:
        return seq2seq_loss(model, batch, self.config.label_smoothing if model.training else 0.0)

    def answer(self, model: Model, batch: Batch) -> list[str]:
        tokenizer = require_tokenizer(model).target
        stop, rules, beams = tokenizer.eos_id, vocab_processors(model, tokenizer), self.config.eval_beams

        def write(chunk: Batch, limit: int) -> list[list[int]]:
            if beams == 1:
                return generate(model, chunk, stop_ids=stop, max_new_tokens=limit, processors=rules)
            return [
                row[0].tokens
                for row in beam_search(model, chunk, StoppingCriteria(stop, limit, rules), BeamConfig(beams))
            ]

        return [tokenizer.decode(row) for row in self._generate_by_limit(model, batch, None, write)]

    def generate(self, generator: TextGenerator, batch: Batch) -> list[list[Hypothesis]]:
        write = lambda chunk, limit: generator.generate(chunk, max_new_tokens=limit)
        return self._generate_by_limit(generator.model, batch, generator.decoding.max_new_tokens, write)

    def _generate_by_limit(
        self, model: Model, batch: Batch, max_new_tokens: int | None, generate_rows: Callable[[Batch, int], list[Any]]
    ) -> list[Any]:
        """The output for each row; rows are grouped by their limit, so that the output does not depend on the batch."""
        source = batch.source
        assert isinstance(source, Text)
        limits = [
            min(max_new_tokens or self._default_limit(size), model.max_positions or sys.maxsize)
            for size in source.keep_mask.sum(1).tolist()
        ]
        out: list[Any] = [None] * len(limits)
        for limit in dict.fromkeys(limits):
            rows = [row for row, row_limit in enumerate(limits) if row_limit == limit]
            for row, output in zip(rows, generate_rows(Batch(_select_rows(source, rows)), limit), strict=True):
                out[row] = output
        return out

    def _default_limit(self, source_tokens: int) -> int:
        """The default limit of a target: twice the source tokens plus 20, rounded up to a power of two to form groups."""
        return min(max(64, 1 << (2 * source_tokens + 19).bit_length()), self.max_target_tokens())

    def score(self, answers: Sequence[str], examples: Sequence[Example]) -> list[Score]:
        gold = [example["target"] for example in examples]
        bleu = metrics.bleu(gold, answers, tokenizer=self.config.bleu_tokenizer)
        scores = [bleu, metrics.chrf(gold, answers), metrics.exact_match(gold, answers)]
        return sorted(scores, key=lambda score: score.name != self.config.metric)

    def to_prediction(self, answer: str, example: Example) -> TextPrediction:
        return TextPrediction(answer)

    def error_row(self, answer: str, example: Example) -> ErrorRow | None:
        if answer == example["target"]:
            return None
        return ErrorRow({"source": example["source"], "gold": example["target"], "answer": answer})


def check_beams(beams: int) -> None:
    if beams < 1:
        raise UsageError(f"task.eval_beams is {beams}; it must be at least 1 (1 is greedy decoding).")


def _select_rows(source: Text, indices: Sequence[int]) -> Text:
    """Some rows of a batch of texts, without columns that are padding in all of them."""
    if source.keep is None or len(indices) == len(source.tokens):
        return source
    keep = source.keep[list(indices)]
    used = keep.any(0)
    return Text(source.tokens[list(indices)][:, used], None if bool(keep[:, used].all()) else keep[:, used])
