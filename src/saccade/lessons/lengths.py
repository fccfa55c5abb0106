"""The lesson on length: a translator with attention and one without, both trained, and what is right as texts grow."""

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
    """The share of numbers that each gets right, by the length of the row, and one row in full."""
    for name in RUN_LABELS:
        if not (DEMO_DIR / name / "model").is_dir():
            return make_missing_result(DEMO_DIR / name, "lengths")
    length = int(float(settings["length"]))
    lines, table = {}, []
    (example,) = sample_rows(length, 1)
    for name, said in RUN_LABELS.items():
        where = DEMO_DIR / name
        made = measure_lengths(str(where), (where / "model").stat().st_mtime_ns)
        lines[said] = list(made)
        run = open_run(where)
        written = predict(run.task, run.model, [Example({"source": example["source"]})])[0][0]
        table.append([said, written, f"{position_accuracy(example['target'], written):.0%}"])
    short, long = ({said: share for said, line in lines.items() for n, share in line if n == at} for at in (2.0, 16.0))
    first, second = lines
    under = format_undertrained(long[first])
    warning = f"These two are {under}. Have them trained again, to the end. " if under else ""
    return LessonResult(
        f"{warning}Of two numbers {short[first]:.0%} are right with attention and {short[second]:.0%} from one vector; of "
        f"sixteen, {long[first]:.0%} and {long[second]:.0%}. Below, a row of {pluralize(length, 'number')}: {example['source']}.",
        [
            LineChart("numbers in their place", "numbers in the row", "share that is right", lines),
            Table(f"right would be {example['target']}", ["who", "writes", "right"], table),
        ],
        offered_demo="lengths" if under else "",
    )


@lru_cache(maxsize=8)
def measure_lengths(run_dir: str, modified_ns: int) -> tuple[tuple[float, float], ...]:
    """The share that is right at each length; kept as long as the model is the same one, which `written` tells."""
    run = open_run(run_dir)
    return tuple((float(length), measure_accuracy(run.task, run.model, length)) for length in LENGTHS)


LESSONS = (
    Lesson(
        name="lengths",
        title="Bahdanau against the fixed vector",
        description="Two recurrent translators learnt the same rows of one to sixteen numbers, from words to figures, in the same "
        "number of steps. One hands a single vector from its reader to its writer, the other looks back at all that was read "
        "before each figure. Short rows fit into a vector; of long ones little is left in it, and the rest is invented.",
        formula="one vector: s(0) = h(n);   attention: c(t) = Σᵢ a(t, i) h(i),   a(t, ·) = softmaxᵢ(uᵀ tanh(A s(t-1) + B h(i)))",
        code=(Recurrent, Additive, position_accuracy),
        controls=(Control("length", "Numbers in the row below", "range", "12", 1, MAX_NUMBERS_PER_ROW, 1),),
        compute=compute_lengths,
    ),
)
