"""The lesson on alignment: where a translator of dates looked, shown with the models that `saccade demo` trained."""

from pathlib import Path

from saccade.attention import Additive
from saccade.data.samples import dates
from saccade.errors import UsageError
from saccade.explain.inputs import make_input, open_with_task
from saccade.explain.look import look_at
from saccade.explain.maps import AttentionMap
from saccade.lessons.base import Control, Heatmap, Lesson, LessonResult, Table
from saccade.parts.multihead_attention import Attention

DEMO_DIR = Path("demo")  # where `saccade demo` leaves its models unless it is told another place
MODEL_RUNS = {"GRU with Bahdanau's attention": "dates-bahdanau", "transformer": "dates"}
FORMULAS = dict(
    zip(
        MODEL_RUNS,
        (
            "c(t) = Σᵢ a(t, i) h(i),   a(t, ·) = softmaxᵢ(uᵀ tanh(A s(t-1) + B h(i)))",
            "c(t) = Σᵢ a(t, i) v(i),   a(t, ·) = softmaxᵢ(q(t)·k(i) / √d),   one for each head",
        ),
        strict=True,
    )
)
MAX_DATE_CHARACTERS = 60  # characters of a date


def compute_alignment(settings: dict[str, str]) -> LessonResult:
    """What a trained model writes for a date, and which letters it looked at for each of its own."""
    where = DEMO_DIR / MODEL_RUNS[settings["model"]]
    if not (where / "model").is_dir():
        return make_missing_result(where)
    text = " ".join(settings["text"].split())[:MAX_DATE_CHARACTERS]
    if not text:
        raise UsageError("'text' has no letter; type a date, such as 3. Oktober 1990.")
    looks = look_at(make_input(*open_with_task(where), text))
    seen = looks.most_informative()
    head = seen.find_sharpest_head()
    weights = seen.to_dense()[head]
    rows = list_aligned_pairs(seen, head)
    sharp = weights.amax(-1).mean().item()
    said = (
        f"It reads “{text}” and writes “{looks.generated_text}”{format_verdict(text, looks.generated_text)} For each character it writes, the one it "
        f"looks at most gets {sharp:.0%} of its attention on average."
    )
    if len(seen.heads) > 1:
        said += f" Shown is the sharpest of {len(seen.heads)} heads."
    return LessonResult(
        said,
        [
            Heatmap(
                "a row for each character written, a column for each read",
                weights.tolist(),
                seen.query_names,
                seen.key_names,
                1.0,
            ),
            Table("looked at most", ["written", "read", "weight"], rows),
        ],
        formula=FORMULAS[settings["model"]],
    )


def format_verdict(text: str, predicted: str) -> str:
    """Whether the answer is right, where the date can be read without the model."""
    known = dates.parse_date(text)
    if known is None:
        return (
            ". This is not written as any date that it was trained on (26 languages, years from 1900 to 2099), so nothing can be "
            "expected of the answer."
        )
    return ", which is right." if predicted == known.isoformat() else f", which is wrong: it is {known.isoformat()}."


def list_aligned_pairs(attention_map: AttentionMap, head_index: int) -> list[list[str]]:
    """Each character written, the one it looked at most, with its place, and how much."""
    best = attention_map.to_dense()[head_index].max(-1)
    return [
        [row, f"{attention_map.key_names[column]} (character {column + 1})", f"{share:.0%}"]
        for row, column, share in zip(
            attention_map.query_names, best.indices.tolist(), best.values.tolist(), strict=True
        )
    ]


def make_missing_result(run_dir: Path, demo: str = "dates") -> LessonResult:
    """How to come by the models; a page can have them trained."""
    command = "saccade demo" if demo == "dates" else f"saccade demo {demo}"
    said = (
        f"This lesson needs a trained model, and there is none in {run_dir}. Have both trained here, or say `{command}` in this "
        "directory: it takes some minutes, shows how far it is, and needs no data and no network."
    )
    rows = [[command, "both models of this lesson"], [f"{command} --minutes 1", "both, less well trained"]]
    return LessonResult(said, [Table("how to train it", ["command", "what it leaves"], rows)], offered_demo=demo)


LESSONS = (
    Lesson(
        name="alignment",
        title="Word alignment, learned without supervision",
        description="Two small translators learned to write ISO dates from dates as people write them in many languages, from pairs "
        "alone. Which characters of the source belong to which of the target was never said; looking there was simply "
        "the way to be right. Type a date and see: the year is written first, wherever it stands, and the month comes from "
        "the letters that tell it from the other eleven.",
        formula=next(iter(FORMULAS.values())),
        code=(Additive, Attention),
        controls=(
            Control("text", "A date, in words or numbers", "text", "mardi 14 juillet 2026"),
            Control("model", "Who translates", "choice", next(iter(MODEL_RUNS)), choices=tuple(MODEL_RUNS)),
        ),
        compute=compute_alignment,
    ),
)
