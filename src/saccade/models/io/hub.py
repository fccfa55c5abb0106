"""Downloads: models from the hub, by huggingface-hub, and files by URL. The only file that opens network connections.

huggingface-hub handles `HF_HUB_OFFLINE` and the shared cache; local paths never get here.
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
TIMEOUT_SECONDS = 30  # without data, after which a download fails
LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")  # this machine, where http is safe


def is_repo_id(name: str) -> bool:
    """Whether this could be a name on the hub: `name` or `organisation/name`."""
    return re.fullmatch(r"[\w][\w.-]*(/[\w][\w.-]*)?", name) is not None


def is_cached(name: str) -> bool:
    """Whether the config of this model is in the local cache of huggingface-hub."""
    return find_cached(name, "config.json") is not None


def find_cached(name: str, file: str) -> Path | None:
    """The path of a file of a model in the local cache of huggingface-hub; None if it is not there."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(name, file)
    return Path(found) if isinstance(found, str) else None


def fetch(name: str, files: Sequence[str] = MODEL_FILE_PATTERNS) -> Path:
    """The local directory of a model on the hub, or of some of its files; downloads what is not in the cache."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

    try:
        return Path(snapshot_download(name, allow_patterns=list(files)))
    except (LocalEntryNotFoundError, OfflineModeIsEnabled) as error:
        raise ModelError(
            f"{name}: not in the cache, and the hub cannot be reached (or HF_HUB_OFFLINE is set). "
            "Pass a local directory, or try again with a connection."
        ) from error
    except (HfHubHTTPError, OSError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)  # some errors have no message
        raise ModelError(f"{name}: cannot be downloaded from the hub ({reason[:300]}); check the name.") from error


@dataclass(frozen=True)
class Download:
    """A file to download: its URL, maximum size, and SHA-256 if known."""

    url: str
    max_bytes: int
    sha256: str = ""


def _require_https(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in LOOPBACK_HOSTS):
        raise ModelError(f"{url}: only https is allowed, so that the content cannot be changed on the way.")


def _open_url(url: str) -> Any:
    """Open a URL; redirects are followed to https only. Network modules are imported here and not before."""
    from urllib.request import HTTPRedirectHandler, Request, build_opener

    class HTTPSRedirectHandler(HTTPRedirectHandler):
        def redirect_request(self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
            _require_https(newurl)
            return super().redirect_request(req, fp, code, msg, headers, newurl)

    request = Request(url, headers={"User-Agent": f"saccade/{__version__}"})
    return build_opener(HTTPSRedirectHandler).open(request, timeout=TIMEOUT_SECONDS)


def download(source: Download, path: Path, on_progress: Callable[[int, int], None] = lambda done, all: None) -> None:
    """Download a file atomically and verify it; `on_progress` gets the bytes so far and the total (0 if unknown)."""
    from http.client import HTTPException
    from urllib.error import URLError

    _require_https(source.url)
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        raise ModelError(
            f"{source.url}: HF_HUB_OFFLINE is set, so nothing is downloaded; pass a copy with --mirror DIR."
        )
    part = path.with_name(f".{path.name}.part")
    try:
        with _open_url(source.url) as response:
            _stream_to_file(response, source, part, on_progress)
        part.replace(path)
    except (URLError, HTTPException, TimeoutError, ConnectionError) as error:
        reason = getattr(error, "reason", error)
        raise ModelError(
            f"{source.url}: cannot be downloaded ({reason}). Try again with a connection, or download it yourself and pass "
            "its directory with --mirror DIR."
        ) from error
    finally:
        part.unlink(missing_ok=True)


def _stream_to_file(response: Any, source: Download, part: Path, on_progress: Callable[[int, int], None]) -> None:
    """Write a response to a file; raises ModelError if it is too large, incomplete, or has the wrong SHA-256."""
    size = int(response.headers.get("Content-Length") or 0)
    digest, done = hashlib.sha256(), 0
    with part.open("wb") as file:
        while chunk := response.read(CHUNK_BYTES) if size <= source.max_bytes else b"":
            done += len(chunk)
            if done > source.max_bytes:
                break
            digest.update(chunk)
            file.write(chunk)
            on_progress(done, size)
    if max(done, size) > source.max_bytes:
        raise ModelError(
            f"{source.url}: has {max(done, size):,} bytes; at most {source.max_bytes:,} are expected, so the file has changed. "
            "Download it yourself, and pass its directory with --mirror DIR."
        )
    if size and done < size:
        raise ModelError(f"{source.url}: ended after {done:,} of {size:,} bytes; try again.")
    if source.sha256 and digest.hexdigest() != source.sha256:
        raise ModelError(
            f"{source.url}: its SHA-256 is {digest.hexdigest()} instead of {source.sha256}; "
            "the file has changed or was tampered with, and was deleted."
        )
