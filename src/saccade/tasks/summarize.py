"""Summarization: a short text generated from a long one, such as an article, a paper or a dialogue.

It is `translate` with separate maximum lengths for the source and the summary.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from saccade.data import Example, Role
from saccade.data.example import ARTICLE, SUMMARY, as_list
from saccade.metrics import Score, rouge, rouge_tokenizer
from saccade.models.model import Model
from saccade.tasks.base import BaselineMethod, Defaults, ErrorRow, Item
from saccade.tasks.baselines.sequences import summary_baselines
from saccade.tasks.translate import Translate, check_beams


@dataclass(frozen=True)
class Config:
    max_tokens: int = 512
    """Maximum number of tokens per text; longer texts are truncated."""
    max_summary_tokens: int = 128
    """Maximum number of tokens per summary, in training and generation."""
    tokenizer: str = "auto"
    """Kind of tokenizer to train: bpe, wordpiece, unigram, words, characters or bytes; auto chooses by the data."""
    label_smoothing: float = 0.1
    """Label smoothing of the cross-entropy loss; 0 disables it."""
    metric: str = "rouge_2"
    """Metric that selects the best checkpoint: rouge_1, rouge_2 or rouge_l."""
    eval_beams: int = 1
    """Number of beams when held-out texts are scored; 1 is greedy decoding, more are slower."""

    def __post_init__(self) -> None:
        check_beams(self.eval_beams)


class Summarize(Translate):
    name = "summarize"
    aliases = ("summarise",)
    verb = "summarize"
    no_augment_reason = "the summary would have to change with its text, even where it paraphrases it"
    hub_pipeline = "summarization"
    metric_names = ("rouge_1", "rouge_2", "rouge_l")
    description = "summarization: a long text in a few words"
    Config = Config
    sample = "reports"

    @classmethod
    def from_head(cls, model: Model) -> None:
        """None: an encoder-decoder loaded without a run gets the task `translate`."""

    def roles(self, paths: Sequence[str]) -> tuple[Role, ...]:
        return (ARTICLE, SUMMARY)

    @classmethod
    def matches(cls, examples: Sequence[Example]) -> bool:
        """Whether sources have at least 30 words and three times the words of their targets, on average."""
        source, target = (sum(len(as_list(e[name])[0].split()) for e in examples) for name in ("source", "target"))
        return source >= 30 * len(examples) and source >= 3 * target

    def fit(self, examples: Sequence[Example]) -> None:
        """Nothing: ROUGE chooses its tokenizer by the texts that it compares."""

    def defaults(self, examples: Sequence[Example], pretrained: bool) -> Defaults:
        if pretrained:
            return Defaults("", train={"lr": 1e-4, "batch_tokens": 4096, "epochs": 3})
        sizes = {"width": 256, "layers": 2, "ffn_width": 1024}
        return Defaults(self.default_family(), sizes, {"lr": 1e-3, "batch_tokens": 4096, "epochs": 10})

    def baselines(self) -> Sequence[BaselineMethod]:
        return summary_baselines()

    def tokenizer_texts(self, examples: Iterable[Example]) -> Iterator[str]:
        return super().tokenizer_texts(map(with_first_summary, examples))

    def encode(self, examples: Sequence[Example], model: Model) -> list[Item]:
        return super().encode([with_first_summary(example) for example in examples], model)

    def max_target_tokens(self) -> int:
        return self.config.max_summary_tokens

    def score(self, answers: Sequence[str], examples: Sequence[Example]) -> list[Score]:
        gold = [as_list(example["target"]) for example in examples]  # several references: the best match counts
        tokenizer = rouge_tokenizer(gold)
        scores = [rouge(gold, answers, kind, tokenizer=tokenizer) for kind in ("1", "2", "L")]
        return sorted(scores, key=lambda score: score.name != self.config.metric)

    def error_row(self, answer: str, example: Example) -> ErrorRow | None:
        gold = as_list(example["target"])
        if answer in gold:
            return None
        return ErrorRow({"source": example["source"], "gold": " / ".join(gold), "answer": answer})


def with_first_summary(example: Example) -> Example:
    """The example with its first summary only, which is the training target.

    >>> with_first_summary(Example({"source": "It rained all day.", "target": ["Rain.", "A wet day."]}))["target"]
    'Rain.'
    """
    target = example.values.get("target", "")
    return example if isinstance(target, str) else replace(example, values={**example.values, "target": target[0]})
