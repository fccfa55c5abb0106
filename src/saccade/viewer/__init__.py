"""The web viewer: plain HTML, CSS and ES modules; no build step, and nothing is loaded from other hosts."""

from importlib.resources import files

MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


def read_page_files() -> dict[str, tuple[bytes, str]]:
    """The files of the page: name to (content, media type). Only these files are served."""
    page_files = {}
    for file in sorted(files("saccade.viewer").iterdir(), key=lambda file: file.name):
        media_type = MEDIA_TYPES.get("." + file.name.rpartition(".")[2])
        if media_type is not None:
            page_files[file.name] = (file.read_bytes(), media_type)
    return page_files
