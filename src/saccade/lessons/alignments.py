"""The lesson on word alignment: the attention of a date translation model, trained by `saccade demo`."""

from pathlib import Path

from saccade.attention import Additive
from saccade.data.samples import dates
from saccade.errors import UsageError
from saccade.explain.inputs import make_input, open_with_task
from saccade.explain.look import look_at
from saccade.explain.maps import AttentionMap
from saccade.lessons.base import Control, Heatmap, Lesson, LessonResult, Table
from saccade.parts.multihead_attention import Attention

DEMO_DIR = Path("demo")  # the default output directory of `saccade demo`
MODEL_RUNS = {"GRU with Bahdanau's attention": "dates-bahdanau", "transformer": "dates"}
FORMULAS = dict(
    zip(
        MODEL_RUNS,
        (
            "c(t) = Σᵢ a(t, i) h(i),   a(t, ·) = softmaxᵢ(uᵀ tanh(A s(t-1) + B h(i)))",
            "c(t) = Σᵢ a(t, i) v(i),   a(t, ·) = softmaxᵢ(q(t)·k(i) / √d),   for each head",
        ),
        strict=True,
    )
)
MAX_DATE_CHARACTERS = 60


def compute_alignment(settings: dict[str, str]) -> LessonResult:
    """The translation of a date, and the cross-attention from each generated character to the source characters."""
    run_dir = DEMO_DIR / MODEL_RUNS[settings["model"]]
    if not (run_dir / "model").is_dir():
        return make_missing_result(run_dir)
    text = " ".join(settings["text"].split())[:MAX_DATE_CHARACTERS]
    if not text:
        raise UsageError("'text' is empty; type a date, such as 3. Oktober 1990.")
    maps = look_at(make_input(*open_with_task(run_dir), text))
    attention_map = maps.most_informative()
    head = attention_map.find_sharpest_head()
    weights = attention_map.to_dense()[head]
    rows = list_aligned_pairs(attention_map, head)
    mean_weight = weights.amax(-1).mean().item()
    summary = (
        f"The model reads “{text}” and generates “{maps.generated_text}”{format_verdict(text, maps.generated_text)} For each "
        f"generated character, the largest weight of a source character is {mean_weight:.0%} on average."
    )
    if len(attention_map.heads) > 1:
        summary += f" The figure shows the sharpest of {len(attention_map.heads)} heads."
    title = "attention weights: one row per generated character, one column per source character"
    return LessonResult(
        summary,
        [
            Heatmap(title, weights.tolist(), attention_map.query_names, attention_map.key_names, 1.0),
            Table("source character with the largest weight", ["generated", "source", "weight"], rows),
        ],
        formula=FORMULAS[settings["model"]],
    )


def format_verdict(text: str, predicted: str) -> str:
    """Whether the prediction is correct, for dates that can be parsed without the model."""
    date = dates.parse_date(text)
    if date is None:
        return (
            ". This is not a date in any format of the training data (26 languages, years 1900 to 2099), so the prediction "
            "is not meaningful."
        )
    if predicted == date.isoformat():
        return ", which is correct."
    return f", which is wrong; the correct date is {date.isoformat()}."


def list_aligned_pairs(attention_map: AttentionMap, head_index: int) -> list[list[str]]:
    """Each generated character with the source character of the largest weight, its position, and the weight."""
    best = attention_map.to_dense()[head_index].max(-1)
    pairs = zip(attention_map.query_names, best.indices.tolist(), best.values.tolist(), strict=True)
    return [
        [target, f"{attention_map.key_names[index]} (character {index + 1})", f"{weight:.0%}"]
        for target, index, weight in pairs
    ]


def make_missing_result(run_dir: Path, demo: str = "dates") -> LessonResult:
    """How to train the missing models; a page can offer to do it."""
    command = "saccade demo" if demo == "dates" else f"saccade demo {demo}"
    summary = (
        f"This lesson needs a trained model, and there is none in {run_dir}. Train both models here, or run “{command}” in this "
        "directory: it takes a few minutes, shows its progress, and needs no data and no network."
    )
    rows = [[command, "both models of this lesson"], [f"{command} --minutes 1", "both models, trained for less time"]]
    return LessonResult(summary, [Table("how to train the models", ["command", "result"], rows)], offered_demo=demo)


LESSONS = (
    Lesson(
        name="alignment",
        title="Word alignment, learned without supervision",
        description="Two small sequence-to-sequence models learned to translate dates from many languages into ISO dates, from "
        "pairs of source and target alone. The training data do not say which source characters belong to which target "
        "characters: the models learned this alignment because it lowers the loss. Type a date to see it. The year is "
        "generated first, wherever it is in the source, and the month depends on the letters that distinguish its name from "
        "the other eleven.",
        formula=next(iter(FORMULAS.values())),
        code=(Additive, Attention),
        controls=(
            Control("text", "Date, in words or numbers", "text", "mardi 14 juillet 2026"),
            Control("model", "Model", "choice", next(iter(MODEL_RUNS)), choices=tuple(MODEL_RUNS)),
        ),
        compute=compute_alignment,
    ),
)
