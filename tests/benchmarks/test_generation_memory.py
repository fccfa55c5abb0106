"""Memory during generation: resident pages from a handmade listing, peaks from an allocation, and KV cache sizes by hand."""

import json
import mmap
import sys
from dataclasses import replace

import pytest
from benchmarks.generation.memory import MemoryMeter, count_data_bytes, kv_cache_bytes, read_resident_pages
from benchmarks.generation.workload import Workload

LISTING = """\
55d0c0000000-55d0c0020000 r--p 00000000 fe:00 131 /usr/lib/libtorch.so
Size:                128 kB
Rss:                  64 kB
55d0c0020000-55d0c0040000 r-xp 00020000 fe:00 131 /usr/lib/libtorch.so
Rss:                  32 kB
7f0000000000-7f0000100000 r--s 00000000 fe:00 977 /models/a model.safetensors
Rss:                 512 kB
7f0000200000-7f0000300000 rw-p 00000000 00:00 0
Rss:                  16 kB
7f0000400000-7f0000500000 rw-p 00000000 00:00 0                          [heap]
Rss:                   8 kB
7ffd00000000-7ffd00001000 r-xp 00000000 00:00 0                          [vdso]
Rss:                   4 kB
"""


def test_program_files_do_not_count_as_data(tmp_path):
    listing = tmp_path / "smaps"
    listing.write_text(LISTING, encoding="utf-8")
    pages = read_resident_pages(listing)
    assert pages["/usr/lib/libtorch.so", True] == 96 * 1024
    assert pages["/models/a model.safetensors", False] == 512 * 1024
    assert count_data_bytes(pages) == (512 + 16 + 8 + 4) * 1024


def test_without_a_listing_there_are_no_pages(tmp_path):
    assert count_data_bytes(read_resident_pages(tmp_path / "absent")) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc/self/smaps")
def test_the_peak_includes_memory_that_was_freed_before_the_end():
    meter, size = MemoryMeter(), 48 * 2**20
    meter.start()
    with mmap.mmap(-1, size) as block:  # not from the heap, which may keep freed memory
        for page in range(0, size, mmap.PAGESIZE):
            block[page] = 1
    peak, process_peak = meter.stop()
    assert size * 0.9 < peak < size * 1.6
    assert process_peak >= peak
    meter.start()
    assert meter.stop()[0] < size * 0.6
    assert meter.stop()[1] >= process_peak


def test_the_size_of_the_kv_cache_by_hand(tmp_path):
    sizes = {"batch_size": 2, "prompt_tokens": 5, "new_tokens": 4, "vocab": 600}
    workload = Workload("generate", "saccade", "auto", str(tmp_path), **sizes)
    assert kv_cache_bytes(workload, "float32") == 0  # there is no config
    (tmp_path / "config.json").write_text(json.dumps({"n_embd": 10, "n_layer": 3}), encoding="utf-8")
    # keys and values, three layers, ten numbers of four bytes; two rows of 5 + 4 tokens, the last of which is not cached
    assert kv_cache_bytes(workload, "float32") == 2 * 3 * 10 * 4 * (2 * 8)
    (tmp_path / "config.json").write_text(json.dumps({"d_model": 10, "decoder_layers": 3}), encoding="utf-8")
    # two sources of 5 tokens; for each of them four beams, which are fed the start token and three of their own
    assert kv_cache_bytes(replace(workload, kind="translate", beams=4), "float32") == 2 * 3 * 10 * 4 * (
        2 * 5 + 2 * 4 * 4
    )
    assert kv_cache_bytes(workload, "float32") == 2 * kv_cache_bytes(workload, "int8")  # two bytes per number
