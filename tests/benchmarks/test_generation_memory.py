"""What a model holds of memory while it writes, by a listing made by hand, and by memory that is taken and let go."""

import json
import mmap
import sys
from dataclasses import replace

import pytest
from benchmarks.generation.memory import Held, keys_and_values, own, pages
from benchmarks.generation.workload import Work

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


def test_programs_are_told_from_what_a_model_holds(tmp_path):
    listing = tmp_path / "smaps"
    listing.write_text(LISTING, encoding="utf-8")
    found = pages(listing)
    assert found["/usr/lib/libtorch.so", True] == 96 * 1024
    assert found["/models/a model.safetensors", False] == 512 * 1024
    assert own(found) == (512 + 16 + 8 + 4) * 1024


def test_where_nothing_is_listed_nothing_is_held(tmp_path):
    assert own(pages(tmp_path / "absent")) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="the system does not say")
def test_the_most_of_a_turn_counts_also_when_it_was_let_go():
    held, size = Held(), 48 * 2**20
    held.begin()
    with mmap.mmap(-1, size) as taken:  # not from a heap, which may keep what was let go
        for page in range(0, size, mmap.PAGESIZE):
            taken[page] = 1
    most, ever = held.end()
    assert size * 0.9 < most < size * 1.6
    assert ever >= most
    held.begin()
    assert held.end()[0] < size * 0.6
    assert held.end()[1] >= ever


def test_keys_and_values_by_hand(tmp_path):
    work = Work("generate", "saccade", "auto", str(tmp_path), rows=2, prompt=5, new=4, vocab=600)
    assert keys_and_values(work, "float32") == 0  # nothing is known of its sizes
    (tmp_path / "config.json").write_text(json.dumps({"n_embd": 10, "n_layer": 3}), encoding="utf-8")
    # keys and values, three layers, ten numbers of four bytes; two rows of 5 + 4 tokens, of which the last is not read
    assert keys_and_values(work, "float32") == 2 * 3 * 10 * 4 * (2 * 8)
    (tmp_path / "config.json").write_text(json.dumps({"d_model": 10, "decoder_layers": 3}), encoding="utf-8")
    # two sources of 5, and of each four beams that read the token that begins and three of theirs
    assert keys_and_values(replace(work, kind="translate", beams=4), "float32") == 2 * 3 * 10 * 4 * (2 * 5 + 2 * 4 * 4)
    assert keys_and_values(work, "float32") == 2 * keys_and_values(work, "int8")  # whose keys have two bytes
