"""The tables of docs/studies.md, made from the records of the studies: never by hand.

    python -m saccade.studies.docs_page docs/studies.md docs/results/studies      # a record for each study, NAME.json

Between `<!-- study NAME -->` and `<!-- end -->` stands what the record says, or that there is none; and the plot, where NAME.png
lies beside the record, two directories below the page.
"""

import json
import re
import sys
from pathlib import Path

from saccade.errors import UsageError
from saccade.studies.registry import STUDIES, load_study

NOT_MEASURED = "Not measured yet."
STUDY_BLOCK = re.compile(r"(<!-- study (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def fill_page(text: str, records: Path) -> str:
    """A page with the tables of all records that there are."""

    def made(found: re.Match[str]) -> str:
        name = found[2]
        if name not in STUDIES:
            raise UsageError(f"the page has a place for the study {name!r}; known are {', '.join(STUDIES)}.")
        return f"{found[1]}{format_study(name, records / f'{name}.json')}\n{found[3]}"

    return STUDY_BLOCK.sub(made, text)


def format_study(name: str, path: Path) -> str:
    """What is known of one study, as Markdown."""
    if not path.is_file():
        return NOT_MEASURED
    record = json.loads(path.read_text(encoding="utf-8"))
    tables = [grid.to_markdown() for grid in load_study(name).make_tables(record)]
    picture = path.with_suffix(".png")
    drawn = [f"![{name}, as a picture]({picture.relative_to(path.parents[2])})"] if picture.is_file() else []
    return "\n\n".join([*tables, *drawn, f"Measured on {record['date']}, {record['machine']['cpu']}."])


if __name__ == "__main__":
    docs_path = Path(sys.argv[1])
    docs_path.write_text(fill_page(docs_path.read_text(encoding="utf-8"), Path(sys.argv[2])), encoding="utf-8")
