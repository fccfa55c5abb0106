"""The web viewer: plain HTML, CSS and ES modules; no build step, and nothing is loaded from other hosts."""

from importlib.resources import files

MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


def read_page_files() -> dict[str, tuple[bytes, str]]:
    """Every file of the page by its name, with its content and its kind; what is not in here is not served."""
    found = {}
    for file in sorted(files("saccade.viewer").iterdir(), key=lambda one: one.name):
        kind = MEDIA_TYPES.get("." + file.name.rpartition(".")[2])
        if kind is not None:
            found[file.name] = (file.read_bytes(), kind)
    return found
