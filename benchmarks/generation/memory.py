"""What a model holds of a machine's memory while it writes, and what it would need at least: two sides that can be compared.

Pages of program files, such as torch's own library, are not counted: they are touched when a part of the program runs for the
first time, whichever model it runs for. Nor are PyTorch's threads and what it takes for its first product, which are there before
a model is loaded. Weights that a rival maps from a file are counted.
"""

import json
import re
from collections import Counter
from contextlib import suppress
from pathlib import Path

from benchmarks.generation.workload import Work
from saccade.bench.measure import read_peak_memory

MAPPED = re.compile(
    r"[0-9a-f]+-[0-9a-f]+ (\S{4}) \S+ \S+ \S+ *(.*)"
)  # one mapping of a process: its rights, and its file
KEPT = {"int8": 2}  # bytes of a number in keys and values, by the precision of our weights; 4 where it is none of these


class Held:
    """Bytes that this process holds above what it held before its model was there; 0 where the system does not say."""

    def __init__(self) -> None:
        self.base, self.most = own(pages()), 0

    def begin(self) -> None:
        """Count the most that is held from now on."""
        self.most = max(self.most, read_peak_memory()[0] or 0)
        read_peak_memory(reset=True)

    def end(self) -> tuple[int, int]:
        """The most that was held since `begin`, above the base; and the most that the process ever held, program and all."""
        found, top = pages(), read_peak_memory()[0] or 0
        code = sum(found.values()) - own(found)
        self.most = max(self.most, top)
        return (max(0, top - code - self.base) if found else 0), self.most


def pages(listing: Path = Path("/proc/self/smaps")) -> Counter[tuple[str, bool]]:
    """Bytes in memory by the file that they were mapped from, "" for none, and whether that is a file of programs."""
    held: Counter[str] = Counter()
    programs, name = set[str](), ""
    lines: list[str] = []
    with suppress(OSError):
        lines = listing.read_text(encoding="utf-8", errors="replace").splitlines()
    for line in lines:
        if found := MAPPED.fullmatch(line):
            rights, name = found.groups()
            if "x" in rights and name.startswith("/"):
                programs.add(name)
        elif line.startswith("Rss:"):
            held[name] += 1024 * int(line.split()[1])
    return Counter({(name, name in programs): size for name, size in held.items()})


def own(found: Counter[tuple[str, bool]]) -> int:
    """All but the files of programs."""
    return sum(size for (_, program), size in found.items() if not program)


def keys_and_values(work: Work, precision: str) -> int:
    """Bytes of keys and values when all rows, as long as the longest, are written; 0 where sizes are not known.

    Of an encoder-decoder each beam has its own of what it wrote, and all beams of a sentence share those of the source.
    """
    path = Path(work.where) / "config.json"
    sizes = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    longest, each = 0 if work.lines else max(map(len, work.prompts())), KEPT.get(precision, 4)
    if "n_embd" in sizes:
        places = work.rows * work.beams * (longest + work.new - 1)  # the last token is not read
        return 2 * sizes["n_layer"] * sizes["n_embd"] * places * each
    if "decoder_layers" in sizes and longest:
        places = work.rows * (longest + work.beams * work.new)
        return 2 * sizes["decoder_layers"] * sizes["d_model"] * places * each
    return 0
