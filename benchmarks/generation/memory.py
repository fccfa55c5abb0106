"""Memory of a model during generation: what the process holds, and the minimum that weights and KV cache need.

Pages of program files, such as torch's shared libraries, are not counted: they are loaded when some part of the program first
runs, whichever model it runs for. PyTorch's threads and the buffers of its first matrix product are not counted either, because
they exist before a model is loaded. Weights that a library maps from a file are counted.
"""

import json
import re
from collections import Counter
from contextlib import suppress
from pathlib import Path

from benchmarks.generation.workload import Workload
from saccade.bench.measure import read_peak_memory

MAPPING = re.compile(r"[0-9a-f]+-[0-9a-f]+ (\S{4}) \S+ \S+ \S+ *(.*)")  # a line of smaps: permissions and file name
CACHE_BYTES = {"int8": 2}  # bytes per number in the KV cache, by the precision of our weights; 4 for all others


class MemoryMeter:
    """Bytes that this process holds in addition to what it held before the model was loaded; 0 if the system has no smaps."""

    def __init__(self) -> None:
        self.baseline, self.process_peak = count_data_bytes(read_resident_pages()), 0

    def start(self) -> None:
        """Start measuring the peak."""
        self.process_peak = max(self.process_peak, read_peak_memory()[0] or 0)
        read_peak_memory(reset=True)

    def stop(self) -> tuple[int, int]:
        """The peak since `start` above the baseline, and the peak of the whole process so far, program files included."""
        pages, peak = read_resident_pages(), read_peak_memory()[0] or 0
        program_bytes = sum(pages.values()) - count_data_bytes(pages)
        self.process_peak = max(self.process_peak, peak)
        return (max(0, peak - program_bytes - self.baseline) if pages else 0), self.process_peak


def read_resident_pages(smaps: Path = Path("/proc/self/smaps")) -> Counter[tuple[str, bool]]:
    """Resident bytes by (mapped file, whether it is a program file); anonymous memory has an empty file name."""
    resident: Counter[str] = Counter()
    program_files, name = set[str](), ""
    lines: list[str] = []
    with suppress(OSError):
        lines = smaps.read_text(encoding="utf-8", errors="replace").splitlines()
    for line in lines:
        if match := MAPPING.fullmatch(line):
            permissions, name = match.groups()
            if "x" in permissions and name.startswith("/"):
                program_files.add(name)
        elif line.startswith("Rss:"):
            resident[name] += 1024 * int(line.split()[1])
    return Counter({(name, name in program_files): size for name, size in resident.items()})


def count_data_bytes(pages: Counter[tuple[str, bool]]) -> int:
    """Resident bytes without program files."""
    return sum(size for (_, is_program), size in pages.items() if not is_program)


def kv_cache_bytes(workload: Workload, precision: str) -> int:
    """Bytes of the KV cache once all rows are complete, padded to the longest; 0 if the model's sizes are not known.

    In an encoder-decoder each beam has its own cache of generated tokens, and all beams of a sentence share that of the source.
    """
    path = Path(workload.directory) / "config.json"
    config = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    longest = 0 if workload.sentences_file else max(map(len, workload.prompts()))
    number_bytes = CACHE_BYTES.get(precision, 4)
    if "n_embd" in config:
        # the last generated token is never fed to the model
        positions = workload.batch_size * workload.beams * (longest + workload.new_tokens - 1)
        return 2 * config["n_layer"] * config["n_embd"] * positions * number_bytes
    if "decoder_layers" in config and longest:
        positions = workload.batch_size * (longest + workload.beams * workload.new_tokens)
        return 2 * config["decoder_layers"] * config["d_model"] * positions * number_bytes
    return 0
