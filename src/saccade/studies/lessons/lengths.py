"""The lesson on length: a translator with attention and one without, both trained, and what is right as texts grow."""

from functools import lru_cache
from pathlib import Path

from saccade.attention import Additive
from saccade.data import Example
from saccade.data.samples.numbers import LONGEST
from saccade.parts.recurrent import Recurrent
from saccade.studies.counting import DECODERS, agreeing, right, rows, undertrained
from saccade.studies.lessons.alignments import DEMO, missing
from saccade.studies.lessons.lesson import Control, Curves, Lesson, Shown, Table, counted
from saccade.tasks.answering import answers
from saccade.tasks.opening import open_run

NAMES = dict(zip(DECODERS, ("attention", "one fixed vector"), strict=True))
LENGTHS = (1, 2, 4, 6, 8, 10, 12, 14, 16)


def draw(given: dict[str, str]) -> Shown:
    """The share of numbers that each gets right, by the length of the row, and one row in full."""
    for name in NAMES:
        if not (DEMO / name / "model").is_dir():
            return missing(DEMO / name, "lengths")
    length = int(float(given["length"]))
    lines, table = {}, []
    (example,) = rows(length, 1)
    for name, said in NAMES.items():
        where = DEMO / name
        made = measured(str(where), (where / "model").stat().st_mtime_ns)
        lines[said] = list(made)
        task, model = open_run(where)
        written = answers(task, model, [Example({"source": example["source"]})])[0][0]
        table.append([said, written, f"{agreeing(example['target'], written):.0%}"])
    short, long = ({said: share for said, line in lines.items() for n, share in line if n == at} for at in (2.0, 16.0))
    first, second = lines
    under = undertrained(long[first])
    warning = f"These two are {under}. Have them trained again, to the end. " if under else ""
    return Shown(
        f"{warning}Of two numbers {short[first]:.0%} are right with attention and {short[second]:.0%} from one vector; of "
        f"sixteen, {long[first]:.0%} and {long[second]:.0%}. Below, a row of {counted(length, 'number')}: {example['source']}.",
        [
            Curves("numbers in their place", "numbers in the row", "share that is right", lines),
            Table(f"right would be {example['target']}", ["who", "writes", "right"], table),
        ],
        offer="lengths" if under else "",
    )


@lru_cache(maxsize=8)
def measured(where: str, written: int) -> tuple[tuple[float, float], ...]:
    """The share that is right at each length; kept as long as the model is the same one, which `written` tells."""
    task, model = open_run(Path(where))
    return tuple((float(length), right(task, model, length)) for length in LENGTHS)


LESSONS = (
    Lesson(
        name="lengths",
        title="Bahdanau against the fixed vector",
        said="Two recurrent translators learnt the same rows of one to sixteen numbers, from words to figures, in the same "
        "number of steps. One hands a single vector from its reader to its writer, the other looks back at all that was read "
        "before each figure. Short rows fit into a vector; of long ones little is left in it, and the rest is invented.",
        formula="one vector: s(0) = h(n);   attention: c(t) = Σᵢ a(t, i) h(i),   a(t, ·) = softmaxᵢ(uᵀ tanh(A s(t-1) + B h(i)))",
        code=(Recurrent, Additive, agreeing),
        controls=(Control("length", "Numbers in the row below", "range", "12", 1, LONGEST, 1),),
        draw=draw,
    ),
)
