"""The page: plain HTML, CSS and ES modules, as they stand in this folder; nothing is built, and nothing comes from elsewhere."""

from importlib.resources import files

KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


def pages() -> dict[str, tuple[bytes, str]]:
    """Every file of the page by its name, with its content and its kind; what is not in here is not served."""
    found = {}
    for file in sorted(files("saccade.viewer").iterdir(), key=lambda one: one.name):
        kind = KINDS.get("." + file.name.rpartition(".")[2])
        if kind is not None:
            found[file.name] = (file.read_bytes(), kind)
    return found
