"""Names on the hub, through huggingface-hub: the only file that opens a socket.

`HF_HUB_OFFLINE` and the shared cache are honoured by huggingface-hub itself; a local path never gets here.
"""

import re
from pathlib import Path

FILES = ("*.json", "*.safetensors", "*.txt", "*.model", "*.spm")


def is_name(where: str) -> bool:
    """Whether this could be a name on the hub: `name` or `organisation/name`."""
    return re.fullmatch(r"[\w][\w.-]*(/[\w][\w.-]*)?", where) is not None


def fetch(name: str) -> Path:
    """The local directory of a model on the hub, downloaded if the cache does not have it."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

    try:
        return Path(snapshot_download(name, allow_patterns=list(FILES)))
    except (LocalEntryNotFoundError, OfflineModeIsEnabled) as error:
        raise ValueError(
            f"{name}: not in the cache, and the hub cannot be reached (or HF_HUB_OFFLINE is set). "
            "Give a local directory, or try again with a connection."
        ) from error
    except (HfHubHTTPError, OSError) as error:
        said = next(iter(str(error).splitlines()), type(error).__name__)  # some errors have no words
        raise ValueError(f"{name}: the hub does not give it ({said[:300]}); check the name.") from error
