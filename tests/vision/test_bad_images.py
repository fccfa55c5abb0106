"""Pictures that are none, or not whole, or too large: each is named with a cure, exit 3, and is not unpacked."""

import io
import json
import os
import random
import struct
import subprocess
import sys
import textwrap
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from saccade.cli import main
from saccade.vision import load_image as opening
from saccade.vision.load_image import ImageError, load_image

GOOD = Image.fromarray(np.random.default_rng(0).integers(0, 256, (13, 17, 3), dtype=np.uint8))


def encoded(form: str = "PNG", image: Image.Image = GOOD, **more) -> bytes:
    made = io.BytesIO()
    image.save(made, form, **more)
    return made.getvalue()


def png(wide: int, high: int, rows: int = 1, bits: int = 8, kind: int = 0) -> bytes:
    """A PNG of a claimed size that holds so many empty rows; with all rows of one bit each, a small file and a large picture."""
    line = bytes(1 + (wide * bits + 7) // 8)
    squeeze = zlib.compressobj(1)
    packed = b"".join(squeeze.compress(line) for _ in range(rows)) + squeeze.flush()
    chunks = [b"IHDR" + struct.pack(">IIBBBBB", wide, high, bits, kind, 0, 0, 0), b"IDAT" + packed, b"IEND"]
    made = b"".join(struct.pack(">I", len(part) - 4) + part + struct.pack(">I", zlib.crc32(part)) for part in chunks)
    return b"\x89PNG\r\n\x1a\n" + made


def fits() -> bytes:
    cards = [
        "SIMPLE  =                    T",
        "BITPIX  =                    8",
        "NAXIS   =                    0",
        "END",
    ]
    return "".join(card.ljust(80) for card in cards).ljust(2880).encode()


FORMS = {
    "PNG": encoded(),
    "JPEG": encoded("JPEG"),
    "progressive JPEG": encoded("JPEG", progressive=True),
    "GIF": encoded("GIF"),
    "BMP": encoded("BMP"),
    "WebP": encoded("WEBP"),
    "TIFF": encoded("TIFF"),
    "PPM": encoded("PPM"),
    "16 bits": encoded("PNG", Image.fromarray(np.arange(300, dtype=np.uint16).reshape(15, 20) * 200)),
}
BAD: dict[str, tuple[bytes, tuple[str, ...]]] = (
    {  # what is in the file, and what must be said
        "0 bytes": (b"", ("0 bytes", "again")),
        "renamed text": (b"hello, I am text\n" * 9, ("not an image", "PNG, JPEG")),
        "a web page": (b"<!doctype html><html>404</html>", ("not an image", "again")),
        "FITS": (fits(), ("not an image", "PNG, JPEG")),
        "GD 2": (b"gd2\0" + struct.pack(">HHHHHHH", 2, 4, 4, 64, 1, 1, 1) + bytes(99), ("not an image", "PNG, JPEG")),
        "GD": (b"\xff\xfe" + struct.pack(">HHB", 4, 4, 1) + bytes(99), ("not an image", "PNG, JPEG")),
        "an icon": (encoded("ICO", GOOD.resize((16, 16))), ("not an image", "PNG, JPEG")),
        "PostScript": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", ("not an image", "PNG, JPEG")),
        "floating-point pixels": (encoded("TIFF", GOOD.convert("F")), ("floating-point", "8 or 16 bits")),
        "32 bits": (
            encoded("TIFF", Image.fromarray(np.array([[0, 1 << 20]], np.int32))),
            ("1,048,576", "8 or 16 bits"),
        ),
        "30,000 x 30,000": (png(30_000, 30_000), ("too large", "20,000,000", "smaller")),
        "5,000 x 5,000": (png(5_000, 5_000), ("too large", "5,000 x 5,000", "20,000,000", "smaller")),
        "1 x 50,000": (png(1, 50_000), ("too large", "1 x 50,000", "smaller")),
        "1 x 500": (png(1, 500, rows=500), ("1 x 500", "narrow", "crop")),
        "a note that unpacks to 70 MB": (
            encoded()[:33]
            + (lambda part: struct.pack(">I", len(part) - 4) + part + struct.pack(">I", zlib.crc32(part)))(
                b"zTXtk\0\0" + zlib.compress(bytes(70_000_000))
            )
            + encoded()[33:],
            ("damaged", "again"),
        ),
    }
    | {f"{name} cut off": (raw[: len(raw) * 3 // 5], ("damaged", "again")) for name, raw in FORMS.items()}
)


@pytest.mark.parametrize("name", BAD)
def test_bad_pictures_are_named_and_cured(tmp_path, capsys, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    content, said = BAD[name]
    Path("a.png").write_bytes(content)
    Path("a.csv").write_text("file_name,label\na.png,x\n")
    assert main(["data", "check", "a.csv"]) == 3
    message = capsys.readouterr().err
    assert message.startswith("saccade data: a.csv:2: "), message
    for words in (*said, "column file_name", "'a.png'"):
        assert words.lower() in message.lower(), message
    assert message.count("\n") == 1
    with pytest.raises(ImageError) as found:
        load_image("a.png")
    assert str(found.value).startswith("a.png: ")
    with pytest.raises(ImageError):
        load_image(content)


PATHS = {
    "up and out": ("../a.png", "leads out"),
    "in, up and out": ("img/../../a.png", "leads out"),
    "absolute": ("/etc/hostname", "leads out"),
    "a link": ("out.png", "leads out"),
    "a link to itself": ("loop.png", "cannot be resolved"),
    "missing": ("img/b.png", "no such image"),
    "a folder": ("img", "no such image"),
    "a pipe": ("pipe.png", "no such image"),
    "other slashes": ("img\\a.png", "instead of"),
    "an address": ("https://example.org/a.png", "ownload the images first"),
    "very long": ("a" * 5000 + ".png", "cannot be resolved"),
    "empty": ("", "path of an image is needed"),
}


@pytest.mark.parametrize("name", PATHS)
def test_names_that_lead_nowhere_or_out(tmp_path, capsys, monkeypatch, name):
    given, said = PATHS[name]
    home = tmp_path / "home"
    (home / "img").mkdir(parents=True)
    monkeypatch.chdir(home)
    for path in (tmp_path / "a.png", home / "img" / "a.png"):
        path.write_bytes(FORMS["PNG"])
    Path("out.png").symlink_to(tmp_path / "a.png")
    Path("loop.png").symlink_to("loop.png")
    os.mkfifo("pipe.png")
    Path("metadata.jsonl").write_text(json.dumps({"file_name": given, "label": "x"}) + "\n")
    assert main(["data", "check", str(home)]) == 3
    message = capsys.readouterr().err
    assert "metadata.jsonl:1: " in message
    assert said.lower() in message.lower(), message
    assert message.count("\n") == 1


def test_a_class_that_is_a_link_out(tmp_path, capsys):
    (tmp_path / "home" / "dog").mkdir(parents=True)
    (tmp_path / "cat").mkdir()
    for folder in (tmp_path / "cat", tmp_path / "home" / "dog"):
        (folder / "1.png").write_bytes(FORMS["PNG"])
    (tmp_path / "home" / "cat").symlink_to(tmp_path / "cat")
    assert main(["data", "check", str(tmp_path / "home")]) == 3
    assert "leads out of the directory" in capsys.readouterr().err


def test_one_table_for_several_splits_is_refused(tmp_path, capsys):
    for split in ("train", "test"):
        (tmp_path / split).mkdir()
        (tmp_path / split / "1.png").write_bytes(FORMS["PNG"])
    (tmp_path / "metadata.csv").write_text("file_name,label\ntrain/1.png,x\ntest/1.png,y\n")
    assert main(["data", "check", str(tmp_path)]) == 3
    assert "put one into each of test, train" in capsys.readouterr().err.lower()


def test_bad_bytes_in_parquet(tmp_path, capsys):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = [{"bytes": FORMS["PNG"], "path": "a.png"}, {"bytes": FORMS["PNG"][:200], "path": "b.png"}]
    parquet.write_table(pyarrow.table({"image": rows, "label": ["x", "y"]}), tmp_path / "a.parquet")
    assert main(["data", "check", str(tmp_path / "a.parquet"), "--task", "label"]) == 3
    message = capsys.readouterr().err
    assert "a.parquet:2: the image is damaged or truncated" in message
    assert "'b.png'" in message


def test_skipped_pictures_are_written_down(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for i in range(40):
        Path(f"{i % 2}").mkdir(exist_ok=True)
        Path(f"{i % 2}/{i}.png").write_bytes(FORMS["JPEG"])
    Path("0/0.png").write_bytes(FORMS["JPEG"][:300])
    sizes = {"width": 8, "layers": 1, "heads": 2, "ffn_width": 8}
    small = [f"--model.{name}={value}" for name, value in sizes.items()] + ["--train.max-steps=1", "--out=../run"]
    assert main(["train", "label", "--data", ".", *small]) == 3
    assert "0/0.png:1: the image is damaged or truncated" in capsys.readouterr().err
    skip = ["--on-bad-record", "skip", "--max-bad-fraction", "0.05"]
    assert main(["train", "label", "--data", ".", *small, *skip]) == 0
    (reject,) = map(json.loads, Path("../run/bad_records.jsonl").read_text().splitlines())
    assert reject["file"].endswith("0/0.png")
    assert "truncated" in reject["problem"]
    capsys.readouterr()
    assert main(["label", "../run", "1/1.png", "0/0.png"]) == 3
    assert capsys.readouterr().err.startswith("saccade label: 0/0.png: the image is damaged or truncated")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_picture_that_may_not_be_read(tmp_path):
    (tmp_path / "a.png").write_bytes(FORMS["PNG"])
    (tmp_path / "a.png").chmod(0)
    with pytest.raises(ImageError, match="chmod"):
        load_image(tmp_path / "a.png")


def test_no_decoder_runs_that_is_not_listed(monkeypatch):
    with pytest.raises(ImageError):
        load_image(encoded("ICO", GOOD.resize((16, 16))))
    assert Image.open(io.BytesIO(encoded("ICO", GOOD.resize((16, 16))))).format == "ICO"  # Pillow itself would read it
    assert set(opening.FORMATS) == {"PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF", "PPM"}


@pytest.mark.parametrize("name", FORMS)
def test_damage_anywhere_is_a_picture_or_a_refusal(name):
    """Warnings are errors here, so none gets out either."""
    draw, raw = random.Random(name), FORMS[name]
    for _ in range(150):
        damaged = bytearray(raw)
        for _ in range(draw.choice((1, 2, 9))):
            damaged[draw.randrange(min(len(raw), draw.choice((60, len(raw)))))] = draw.randrange(256)
        try:
            found = load_image(bytes(damaged[: draw.choice((len(raw), draw.randrange(1, len(raw))))]))
        except ImageError:
            continue
        assert found.image.mode in ("L", "RGB")


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path):
    """In a process of its own: the picture would take 900 MB, and refusing it takes almost nothing."""
    bomb = png(30_000, 30_000, rows=30_000, bits=1)
    assert len(bomb) < 1_000_000
    (tmp_path / "bomb.png").write_bytes(bomb)
    (tmp_path / "large.png").write_bytes(png(13_000, 13_000, rows=13_000, bits=1))  # below Pillow's own limit
    code = """
        import resource, sys
        from saccade.vision.load_image import ImageError, load_image
        def taken():
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        before = taken()
        for name in sys.argv[1:]:
            try:
                load_image(name)
            except ImageError as error:
                assert "too large" in error.problem
            else:
                raise SystemExit("unpacked")
        print(taken() - before)
    """
    names = [str(tmp_path / name) for name in ("bomb.png", "large.png")]
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code), *names], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 20_000  # kilobytes
