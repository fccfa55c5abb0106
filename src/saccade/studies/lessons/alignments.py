"""The lesson on alignment: where a translator of dates looked, shown with the models that `saccade demo` trained."""

from pathlib import Path

from saccade.attention import Additive
from saccade.data.samples import dates
from saccade.errors import UsageError
from saccade.explain.inputs import ask, opened
from saccade.explain.look import look_at
from saccade.explain.looks import Seen
from saccade.parts.multihead import Attention
from saccade.studies.lessons.lesson import Control, Lesson, Map, Shown, Table

DEMO = Path("demo")  # where `saccade demo` leaves its models unless it is told another place
MODELS = {"GRU with Bahdanau's attention": "dates-bahdanau", "transformer": "dates"}
FORMULAS = dict(
    zip(
        MODELS,
        (
            "c(t) = Σᵢ a(t, i) h(i),   a(t, ·) = softmaxᵢ(uᵀ tanh(A s(t-1) + B h(i)))",
            "c(t) = Σᵢ a(t, i) v(i),   a(t, ·) = softmaxᵢ(q(t)·k(i) / √d),   one for each head",
        ),
        strict=True,
    )
)
LONGEST = 60  # characters of a date


def draw(given: dict[str, str]) -> Shown:
    """What a trained model writes for a date, and which letters it looked at for each of its own."""
    where = DEMO / MODELS[given["model"]]
    if not (where / "model").is_dir():
        return missing(where)
    text = " ".join(given["text"].split())[:LONGEST]
    if not text:
        raise UsageError("'text' has no letter; type a date, such as 3. Oktober 1990.")
    looks = look_at(ask(*opened(where), text))
    seen = looks.telling()
    head = seen.sharpest()
    weights = seen.dense()[head]
    rows = pairs(seen, head)
    sharp = weights.amax(-1).mean().item()
    said = (
        f"It reads “{text}” and writes “{looks.written}”{verdict(text, looks.written)} For each character it writes, the one it "
        f"looks at most gets {sharp:.0%} of its attention on average."
    )
    if len(seen.heads) > 1:
        said += f" Shown is the sharpest of {len(seen.heads)} heads."
    return Shown(
        said,
        [
            Map(
                "a row for each character written, a column for each read",
                weights.tolist(),
                seen.rows,
                seen.columns,
                1.0,
            ),
            Table("looked at most", ["written", "read", "weight"], rows),
        ],
        formula=FORMULAS[given["model"]],
    )


def verdict(text: str, written: str) -> str:
    """Whether the answer is right, where the date can be read without the model."""
    known = dates.parse(text)
    if known is None:
        return (
            ". This is not written as any date that it was trained on (26 languages, years from 1900 to 2099), so nothing can be "
            "expected of the answer."
        )
    return ", which is right." if written == known.isoformat() else f", which is wrong: it is {known.isoformat()}."


def pairs(seen: Seen, head: int) -> list[list[str]]:
    """Each character written, the one it looked at most, with its place, and how much."""
    best = seen.dense()[head].max(-1)
    return [
        [row, f"{seen.columns[column]} (character {column + 1})", f"{share:.0%}"]
        for row, column, share in zip(seen.rows, best.indices.tolist(), best.values.tolist(), strict=True)
    ]


def missing(where: Path, demo: str = "dates") -> Shown:
    """How to come by the models; a page can have them trained."""
    command = "saccade demo" if demo == "dates" else f"saccade demo {demo}"
    said = (
        f"This lesson needs a trained model, and there is none in {where}. Have both trained here, or say `{command}` in this "
        "directory: it takes some minutes, shows how far it is, and needs no data and no network."
    )
    rows = [[command, "both models of this lesson"], [f"{command} --minutes 1", "both, less well trained"]]
    return Shown(said, [Table("how to train it", ["command", "what it leaves"], rows)], offer=demo)


LESSONS = (
    Lesson(
        name="alignment",
        title="Alignment: nobody told it where to look",
        said="Two small translators learned to write ISO dates from dates as people write them in many languages, from pairs "
        "alone. Which characters of the source belong to which of the target was never said; looking there was simply "
        "the way to be right. Type a date and see: the year is written first, wherever it stands, and the month comes from "
        "the letters that tell it from the other eleven.",
        formula=next(iter(FORMULAS.values())),
        code=(Additive, Attention),
        controls=(
            Control("text", "A date, in words or numbers", "text", "mardi 14 juillet 2026"),
            Control("model", "Who translates", "choice", next(iter(MODELS)), choices=tuple(MODELS)),
        ),
        draw=draw,
    ),
)
