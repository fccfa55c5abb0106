"""Links and images of the Markdown files lead to files and headings that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
MADE = ROOT / "docs" / "reference"  # `make docs` makes these pages
LINK = re.compile(r"\]\(([^)\s]+)\)")


def strip_code(text: str) -> str:
    return re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)


def anchors(text: str) -> set[str]:
    """The anchors of headings, as GitHub and MyST make them."""
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> list[str]:
    found = []
    for link in LINK.findall(strip_code(page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (
            anchor and target.suffix == ".md" and anchor not in anchors(target.read_text(encoding="utf-8"))
        ):
            found.append(link)
    return found


@pytest.mark.parametrize(
    "page", [page for page in PAGES if MADE not in page.parents], ids=lambda page: str(page.relative_to(ROOT))
)
def test_links_lead_somewhere(page):
    assert broken_links(page) == []


def test_a_broken_link_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# A heading\n[a](missing.md) [b](#a-heading) [c](#no-heading) `[d](code.md)` [e](https://x.org)\n")
    assert broken_links(page) == ["missing.md", "#no-heading"]


def test_every_page_is_in_the_table_of_contents():
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    pages = {str(page.relative_to(ROOT / "docs").with_suffix("")) for page in (ROOT / "docs").rglob("*.md")}
    pages = {name for name in pages if not name.startswith(("reference", "notebooks", "results/")) and name != "index"}
    listed = set(re.findall(r"^[\w/-]+$", index, re.MULTILINE))
    assert pages <= listed, pages - listed
