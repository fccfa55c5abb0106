"""The tables of docs/studies.md, generated from the records of the studies.

    python -m saccade.studies.docs_page docs/studies.md docs/results/studies      # one record per study, NAME.json

The text between `<!-- study NAME -->` and `<!-- end -->` is replaced by the tables of the record, or by a note that there is
none, and by the plot NAME.png, if it is in the directory of the record, two levels below the page.
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
    """The page with the tables of all records."""

    def replace_block(match: re.Match[str]) -> str:
        name = match[2]
        if name not in STUDIES:
            raise UsageError(f"the page has a block for the unknown study {name!r}; known are {', '.join(STUDIES)}.")
        return f"{match[1]}{format_study(name, records / f'{name}.json')}\n{match[3]}"

    return STUDY_BLOCK.sub(replace_block, text)


def format_study(name: str, path: Path) -> str:
    """The tables and the plot of one study as Markdown."""
    if not path.is_file():
        return NOT_MEASURED
    record = json.loads(path.read_text(encoding="utf-8"))
    tables = [table.to_markdown() for table in load_study(name).make_tables(record)]
    plot = path.with_suffix(".png")
    images = [f"![Plot of the study {name}]({plot.relative_to(path.parents[2])})"] if plot.is_file() else []
    return "\n\n".join([*tables, *images, f"Measured on {record['date']}, {record['machine']['cpu']}."])


if __name__ == "__main__":
    docs_path = Path(sys.argv[1])
    docs_path.write_text(fill_page(docs_path.read_text(encoding="utf-8"), Path(sys.argv[2])), encoding="utf-8")
