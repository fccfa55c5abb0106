"""The network: names on the hub, through huggingface-hub, and files by their address. The only file that opens a socket.

`HF_HUB_OFFLINE` and the shared cache are honoured by huggingface-hub itself; a local path never gets here.
"""

import hashlib
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from saccade import __version__
from saccade.errors import ModelError

MODEL_FILE_PATTERNS = ("*.json", "*.safetensors", "*.txt", "*.model", "*.spm", "*.jinja")
CHUNK_BYTES = 1 << 18
TIMEOUT_SECONDS = 30  # without a byte, after which a download is given up
LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")  # where no one else listens


def is_repo_id(name: str) -> bool:
    """Whether this could be a name on the hub: `name` or `organisation/name`."""
    return re.fullmatch(r"[\w][\w.-]*(/[\w][\w.-]*)?", name) is not None


def fetch(name: str, files: Sequence[str] = MODEL_FILE_PATTERNS) -> Path:
    """The local directory of a model on the hub, or of some of its files, downloaded if the cache does not have them."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

    try:
        return Path(snapshot_download(name, allow_patterns=list(files)))
    except (LocalEntryNotFoundError, OfflineModeIsEnabled) as error:
        raise ModelError(
            f"{name}: not in the cache, and the hub cannot be reached (or HF_HUB_OFFLINE is set). "
            "Give a local directory, or try again with a connection."
        ) from error
    except (HfHubHTTPError, OSError) as error:
        said = next(iter(str(error).splitlines()), type(error).__name__)  # some errors have no words
        raise ModelError(f"{name}: the hub does not give it ({said[:300]}); check the name.") from error


@dataclass(frozen=True)
class Download:
    """A file to download: its address, the most bytes it may have, and the SHA-256 of them where that is known."""

    url: str
    max_bytes: int
    sha256: str = ""


def _require_https(url: str) -> None:
    where = urlsplit(url)
    if where.scheme != "https" and not (where.scheme == "http" and where.hostname in LOOPBACK_HOSTS):
        raise ModelError(f"{url}: only https is used, so that nobody on the way can change what comes.")


def _open_url(url: str) -> Any:
    """The answer of an address; redirects are followed to https only. What can open a socket is imported here and not before."""
    from urllib.request import HTTPRedirectHandler, Request, build_opener

    class Safe(HTTPRedirectHandler):
        def redirect_request(self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
            _require_https(newurl)
            return super().redirect_request(req, fp, code, msg, headers, newurl)

    asked = Request(url, headers={"User-Agent": f"saccade/{__version__}"})
    return build_opener(Safe).open(asked, timeout=TIMEOUT_SECONDS)


def download(source: Download, path: Path, on_progress: Callable[[int, int], None] = lambda done, all: None) -> None:
    """Bring a file here. It has its name only when it is whole and checked; `on_progress` hears bytes done, and all (or 0)."""
    from http.client import HTTPException
    from urllib.error import URLError

    _require_https(source.url)
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        raise ModelError(
            f"{source.url}: HF_HUB_OFFLINE is set, so nothing is downloaded; give a copy with --mirror DIR."
        )
    part = path.with_name(f".{path.name}.part")
    try:
        with _open_url(source.url) as answer:
            _stream_to_file(answer, source, part, on_progress)
        part.replace(path)
    except (URLError, HTTPException, TimeoutError, ConnectionError) as error:
        said = getattr(error, "reason", error)
        raise ModelError(
            f"{source.url}: cannot be downloaded ({said}). Try again with a connection, or fetch it yourself and give the "
            "directory with --mirror DIR."
        ) from error
    finally:
        part.unlink(missing_ok=True)


def _stream_to_file(answer: Any, source: Download, part: Path, on_progress: Callable[[int, int], None]) -> None:
    """The bytes of an answer into a file, as long as they are not too many; then whether they are all, and the right ones."""
    size = int(answer.headers.get("Content-Length") or 0)
    seen, done = hashlib.sha256(), 0
    with part.open("wb") as file:
        while chunk := answer.read(CHUNK_BYTES) if size <= source.max_bytes else b"":
            done += len(chunk)
            if done > source.max_bytes:
                break
            seen.update(chunk)
            file.write(chunk)
            on_progress(done, size)
    if max(done, size) > source.max_bytes:
        raise ModelError(
            f"{source.url}: sends {max(done, size):,} bytes where at most {source.max_bytes:,} are expected; "
            "it is not the file that it was. Fetch it yourself, and give the directory with --mirror DIR."
        )
    if size and done < size:
        raise ModelError(f"{source.url}: ended after {done:,} of {size:,} bytes; try again.")
    if source.sha256 and seen.hexdigest() != source.sha256:
        raise ModelError(
            f"{source.url}: its SHA-256 is {seen.hexdigest()}, not {source.sha256}; "
            "it has changed or was changed on the way, and is not kept."
        )
