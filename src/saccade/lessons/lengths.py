"""The lesson on text length: the accuracy of a translation model with attention and of one without, by length."""

from functools import lru_cache

from saccade.attention import Additive
from saccade.data import Example
from saccade.data.samples.number_words import MAX_NUMBERS_PER_ROW
from saccade.lessons.alignments import DEMO_DIR, make_missing_result
from saccade.lessons.base import Control, Lesson, LessonResult, LineChart, Table, pluralize
from saccade.lessons.number_translators import (
    DECODER_CONFIGS,
    format_undertrained,
    measure_accuracy,
    position_accuracy,
    sample_rows,
)
from saccade.parts.recurrent import Recurrent
from saccade.tasks.predict import predict
from saccade.tasks.runs.run import open_run

RUN_LABELS = dict(zip(DECODER_CONFIGS, ("attention", "one fixed vector"), strict=True))
LENGTHS = (1, 2, 4, 6, 8, 10, 12, 14, 16)


def compute_lengths(settings: dict[str, str]) -> LessonResult:
    """Accuracy of both models by the length of the row, and their predictions for one row."""
    for name in RUN_LABELS:
        if not (DEMO_DIR / name / "model").is_dir():
            return make_missing_result(DEMO_DIR / name, "lengths")
    length = int(float(settings["length"]))
    lines, rows = {}, []
    (example,) = sample_rows(length, 1)
    for name, label in RUN_LABELS.items():
        run_dir = DEMO_DIR / name
        lines[label] = list(measure_lengths(str(run_dir), (run_dir / "model").stat().st_mtime_ns))
        run = open_run(run_dir)
        predicted = predict(run.task, run.model, [Example({"source": example["source"]})])[0][0]
        rows.append([label, predicted, f"{position_accuracy(example['target'], predicted):.0%}"])
    short, long = ({label: dict(line)[n] for label, line in lines.items()} for n in (2.0, 16.0))
    attention, fixed = lines
    problem = format_undertrained(long[attention])
    warning = f"These two models are {problem}. Train them again, to the end. " if problem else ""
    return LessonResult(
        f"{warning}In rows of two numbers, {short[attention]:.0%} are correct with attention and {short[fixed]:.0%} with one "
        f"fixed vector; in rows of sixteen, {long[attention]:.0%} and {long[fixed]:.0%}. The table shows the predictions for a "
        f"row of {pluralize(length, 'number')}: {example['source']}.",
        [
            LineChart("accuracy by length of the row", "numbers in the row", "share of correct numbers", lines),
            Table(f"reference: {example['target']}", ["model", "prediction", "correct"], rows),
        ],
        offered_demo="lengths" if problem else "",
    )


@lru_cache(maxsize=8)
def measure_lengths(run_dir: str, modified_ns: int) -> tuple[tuple[float, float], ...]:
    """Accuracy at each length; `modified_ns`, the modification time of the model, is part of the cache key."""
    run = open_run(run_dir)
    return tuple((float(length), measure_accuracy(run.task, run.model, length)) for length in LENGTHS)


LESSONS = (
    Lesson(
        name="lengths",
        title="Bahdanau attention and the fixed vector compared",
        description="Two recurrent encoder-decoders were trained on the same rows of one to sixteen numbers, to translate "
        "number words into digits, for the same number of steps. One passes a single vector from its encoder to its decoder; "
        "the other attends to all encoder states before each number it generates. A short row fits into one vector. Of a long "
        "row the vector keeps little, and the decoder makes up the rest.",
        formula="one vector: s(0) = h(n);   attention: c(t) = Σᵢ a(t, i) h(i),   a(t, ·) = softmaxᵢ(uᵀ tanh(A s(t-1) + B h(i)))",
        code=(Recurrent, Additive, position_accuracy),
        controls=(Control("length", "Numbers in the example row", "range", "12", 1, MAX_NUMBERS_PER_ROW, 1),),
        compute=compute_lengths,
    ),
)
