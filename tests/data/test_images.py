"""Pictures as data: what is read is what was painted, wherever pictures stand, and learning may move it a little."""

import io
import json
import struct
import tracemalloc
import zlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image

from saccade.cli import main
from saccade.data import Example, open_data, read_examples
from saccade.data.example import IMAGE, LABEL
from saccade.data.infer_task import infer_input_kind
from saccade.tasks.label import Label
from saccade.training.prepare import Job, prepare
from saccade.vision.augment import AUGMENTATIONS, get_augmentation, mirror, random_crop, random_flip, shift
from saccade.vision.load_image import ANIMATED_NOTE, TRANSPARENCY_NOTE, load_image
from saccade.vision.pixels import LazyImage, lazy_pixels, load_pixels


def encoded(image: Image.Image, form: str = "PNG", **more) -> bytes:
    made = io.BytesIO()
    image.save(made, form, **more)
    return made.getvalue()


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def first(array: np.ndarray) -> np.ndarray:
    """Channels first."""
    return array[None] if array.ndim == 2 else array.transpose(2, 0, 1)


SIDES = st.integers(1, 9)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["PNG", "BMP", "TIFF", "PPM"]), st.booleans(), SIDES, SIDES, st.data())
def test_bytes_survive(form, colour, rows, columns, data):
    array = data.draw(arrays(np.uint8, (rows, columns, 3) if colour else (rows, columns)))
    assert np.array_equal(load_pixels(encoded(Image.fromarray(array), form)), first(array))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["PNG", "TIFF", "PPM"]), SIDES, SIDES, st.data())
def test_of_sixteen_bits_the_upper_eight_survive(form, rows, columns, data):
    deep = data.draw(arrays(np.uint16, (rows, columns)))
    assert np.array_equal(load_pixels(encoded(Image.fromarray(deep), form)), (deep // 256)[None])


def test_widened_by_zeros_or_by_repetition_is_the_same():
    eight = np.arange(256, dtype=np.uint16).reshape(16, 16)
    for deep in (eight * 256, eight * 257):
        assert np.array_equal(load_pixels(encoded(Image.fromarray(deep)))[0], eight)


def test_colour_of_sixteen_bits():
    deep = noise(2, 3, 3).astype(">u2") * 257
    raw = b"".join(b"\0" + row.tobytes() for row in deep)
    header = struct.pack(">IIBBBBB", 3, 2, 16, 2, 0, 0, 0)
    chunks = [b"IHDR" + header, b"IDAT" + zlib.compress(raw), b"IEND"]
    png = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(c) - 4) + c + struct.pack(">I", zlib.crc32(c)) for c in chunks
    )
    assert np.array_equal(load_pixels(png), first(noise(2, 3, 3)))


TURNED = {  # what a viewer does to the stored picture, by the number in its EXIF
    1: lambda a: a,
    2: np.fliplr,
    3: lambda a: np.rot90(a, 2),
    4: np.flipud,
    5: np.transpose,
    6: lambda a: np.rot90(a, -1),
    7: lambda a: np.rot90(np.transpose(a), 2),
    8: np.rot90,
}


@pytest.mark.parametrize("number", TURNED)
def test_pictures_stand_upright(number):
    array, note = noise(3, 5), Image.Exif()
    note[0x112] = number
    assert np.array_equal(load_pixels(encoded(Image.fromarray(array), exif=note))[0], TURNED[number](array))


def test_a_damaged_note_of_the_camera_does_not_lose_the_picture():
    array = noise(3, 5)
    for note in (b"", b"Exif\0\0MM\0*\xff\xff\xff\xff", b"Exif\0\0II*\0\x08\0\0\0\xff\xff"):
        assert np.array_equal(load_pixels(encoded(Image.fromarray(array), exif=note))[0], array)


def test_palettes_with_and_without_glass():
    image = Image.fromarray(np.array([[0, 1, 2]], np.uint8), "L").convert("P")
    image.putdata([0, 1, 2])
    image.putpalette([255, 0, 0, 0, 255, 0, 0, 0, 255])
    solid = [[255, 0, 0], [0, 255, 0], [0, 0, 255]]
    assert load_pixels(encoded(image)).transpose(1, 2, 0)[0].tolist() == solid
    clear = load_image(encoded(image, transparency=1))
    assert np.asarray(clear.image)[0].tolist() == [solid[0], [255] * 3, solid[2]]
    assert clear.notes == (TRANSPARENCY_NOTE,)


def test_glass_shows_white_by_its_share_and_grey_stays_grey():
    half = Image.fromarray(np.array([[[100, 128], [100, 255]]], np.uint8), "LA")
    found = load_image(encoded(half))
    assert found.image.mode == "L"
    assert np.asarray(found.image)[0].tolist() == [pytest.approx(100 * 128 / 255 + 255 * 127 / 255, abs=1), 100]
    opaque = load_image(encoded(Image.fromarray(noise(2, 2, 3)).convert("RGBA")))
    assert opaque.notes == ()
    assert np.array_equal(np.asarray(opaque.image), noise(2, 2, 3))


def test_ink_becomes_light():
    ink = noise(4, 5, 4)
    cyan, magenta, yellow, black = ink.transpose(2, 0, 1).astype(float)
    wanted = np.stack([(255 - part) * (255 - black) / 255 for part in (cyan, magenta, yellow)])
    found = load_pixels(encoded(Image.fromarray(ink, "CMYK"), "TIFF"))
    assert np.abs(found - wanted).max() <= 1


@pytest.mark.parametrize("form", ["GIF", "PNG", "WEBP", "TIFF"])
def test_of_what_moves_the_first_frame(form):
    frames = [Image.fromarray(np.full((4, 3, 3), shade, np.uint8)) for shade in (10, 200)]
    more = {"lossless": True} if form == "WEBP" else {}
    found = load_image(encoded(frames[0], form, save_all=True, append_images=frames[1:], **more))
    assert np.abs(np.asarray(found.image).astype(int) - 10).max() <= 1
    assert found.notes == (ANIMATED_NOTE,)


def test_the_middle_is_kept_and_the_sides_are_cut():
    wide = noise(4, 10, 3)
    assert np.array_equal(load_pixels(wide, (3, 4, 4)), first(wide[:, 3:7]))
    assert np.array_equal(load_pixels(wide.transpose(1, 0, 2), (3, 4, 4)), first(wide.transpose(1, 0, 2)[3:7]))
    assert np.array_equal(load_pixels(encoded(Image.fromarray(wide)), (None, 4, 4)), first(wide[:, 3:7]))
    flat = np.full((6, 6), 77, np.uint8)
    assert (load_pixels(flat, (3, 24, 12)) == 77).all()


def test_a_dot_fills_the_square():
    assert (load_pixels(encoded(Image.new("L", (1, 1), 9)), (1, 8, 8)) == 9).all()


def test_a_large_jpeg_read_smaller_is_the_same_picture():
    ramp = np.add.outer(np.arange(600), np.arange(800)).astype(float)
    file = encoded(Image.fromarray((ramp / ramp.max() * 255).astype(np.uint8)), "JPEG", quality=95)
    assert load_image(file, target_side=32).image.size == (100, 75)
    whole = Image.open(io.BytesIO(file)).crop((100, 0, 700, 600)).resize((32, 32), Image.Resampling.BICUBIC)
    assert np.abs(load_pixels(file, (1, 32, 32))[0].astype(int) - np.asarray(whole)).max() <= 2


@pytest.mark.parametrize("wrong", [np.zeros((2, 2), np.float32), np.zeros((2, 2, 2), np.uint8), np.zeros(4, np.uint8)])
def test_arrays_that_are_no_pixels(wrong):
    with pytest.raises(ValueError, match="Pixels must be uint8"):
        load_pixels(wrong)


# many pictures


def test_small_pictures_take_the_memory_of_their_bytes():
    block = noise(5000, 28, 28)
    tracemalloc.start()
    found = lazy_pixels(list(block), (1, 28, 28))
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert np.array_equal(np.stack(found)[:, 0], block)  # type: ignore[arg-type]
    assert taken < 0.6 * block.nbytes  # the pixels themselves are not copied


def test_too_many_to_be_held_are_read_when_asked_for(tmp_path):
    paths = [tmp_path / f"{i}.png" for i in range(5)]
    for i, path in enumerate(paths):
        Image.fromarray(noise(9, 7, 3, seed=i)).save(path)
    now, later = lazy_pixels(paths, (3, 8, 8)), lazy_pixels(paths, (3, 8, 8), max_bytes=900)
    assert all(isinstance(entry, LazyImage) for entry in later)
    assert not any(isinstance(entry, LazyImage) for entry in now)
    for one, other in zip(now, later, strict=True):
        assert np.array_equal(one, np.asarray(other))  # type: ignore[arg-type]


def test_a_model_learns_the_same_from_pictures_read_late(tmp_path, monkeypatch):
    from saccade.tasks import label
    from saccade.tasks.batches import make_batches

    made = ready(shapes(tmp_path))
    examples = made.splits.train.examples
    now = make_batches(made.task, examples, made.model, batch_tokens=8).batches(0)[0].source
    monkeypatch.setattr(label, "lazy_pixels", lambda pictures, shape: lazy_pixels(pictures, shape, max_bytes=10))
    late = make_batches(made.task, examples, made.model, batch_tokens=8).batches(0)[0]
    assert isinstance(late.items[0].source, LazyImage)
    assert torch.equal(now.pixels, late.source.pixels)  # type: ignore[union-attr]


# where pictures stand


def shapes(folder, count=12, suffix="csv"):
    """A table of the built-in shapes, with its pictures beside it."""
    path = folder / f"shapes.{suffix}"
    assert main(["data", "get", "shapes", str(path), "--count", str(count)]) == 0
    return path


def ready(path, **task_fields):
    tiny = {"width": 16, "layers": 1, "heads": 2, "ffn_width": 16}
    return prepare(Job("label", (str(path),), model_fields=tiny, task_fields=task_fields))


def paint(folder, names):
    for i, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(noise(5, 6, 3, seed=i)).save(folder / name)


ROWS = [("img/a.png", "x"), ("img/b.png", "y"), ("img/c.png", "x")]


def csv(rows):
    return "".join(f"{name},{label}\n" for name, label in rows)


TABLES = {
    "csv": ("a.csv", "file_name,label\n" + csv(ROWS)),
    "any name of the column": ("a.csv", "photo,label\n" + csv(ROWS)),
    "no header": ("a.csv", csv(ROWS)),
    "tsv": ("a.tsv", ("image,class\n" + csv(ROWS)).replace(",", "\t")),
    "jsonl": ("a.jsonl", "".join(json.dumps({"path": name, "label": label}) + "\n" for name, label in ROWS)),
    "metadata.csv": ("metadata.csv", "file_name,label\n" + csv(ROWS)),
    "metadata.jsonl": (
        "metadata.jsonl",
        "".join(json.dumps({"file_name": name, "text": "a caption", "label": label}) + "\n" for name, label in ROWS),
    ),
}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("whole", [False, True], ids=["file", "directory"])
def test_tables_that_name_pictures(tmp_path, name, whole):
    file, content = TABLES[name]
    paint(tmp_path, [path for path, _ in ROWS])
    (tmp_path / file).write_text(content)
    given = [tmp_path if whole else tmp_path / file]
    columns = {"image": "photo"} if "any name" in name else None
    assert infer_input_kind(given, columns) == "image"
    roles = Label().roles([str(path) for path in given])
    assert roles == (IMAGE, LABEL)
    found = open_data(given, roles, columns=columns)
    examples = sorted([*found.train.examples, *found.dev.examples], key=lambda e: e["image"])
    assert [(e["image"], e["label"]) for e in examples] == [(str(tmp_path / path), label) for path, label in ROWS]


def test_an_absolute_path_into_the_folder_is_fine(tmp_path):
    paint(tmp_path, ["img/a.png"])
    (tmp_path / "a.csv").write_text(f"image,label\n{tmp_path / 'img/a.png'},x\n")
    assert read_examples([tmp_path / "a.csv"], [IMAGE, LABEL]).examples[0]["image"] == str(tmp_path / "img/a.png")


def test_folders_of_classes_and_what_lies_beside(tmp_path):
    paint(tmp_path, ["train/cat/1.png", "train/dog/2.jpeg", "test/cat/3.webp"])
    found = open_data([tmp_path], [IMAGE, LABEL])
    assert found.test is not None
    assert [example["label"] for example in found.test.examples] == ["cat"]
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "plot.png").write_bytes(encoded(Image.new("L", (2, 2))))
    (tmp_path / "plain" / "reviews.csv").write_text("text,label\nfine,1\nbad,0\n")
    assert infer_input_kind([tmp_path / "plain"]) == "text"


def test_a_folder_of_pictures_beside_a_table_is_no_class(tmp_path):
    paint(tmp_path, ["train/1.png", "train/2.png", "test/3.png"])
    (tmp_path / "train.csv").write_text("file,label\ntrain/1.png,x\ntrain/2.png,y\n")
    (tmp_path / "test.csv").write_text("file,label\ntest/3.png,x\n")
    found = open_data([tmp_path], [IMAGE, LABEL])
    assert found.test is not None
    assert [e["image"] for e in found.test.examples] == [str(tmp_path / "test/3.png")]


def test_metadata_in_each_split(tmp_path):
    paint(tmp_path, ["train/1.gif", "train/2.gif", "train/sub/3.gif", "test/4.gif"])
    (tmp_path / "train/metadata.csv").write_text("file_name,label\n1.gif,x\n2.gif,y\nsub/3.gif,x\n")
    (tmp_path / "test/metadata.csv").write_text("file_name,label\n4.gif,y\n")
    found = open_data([tmp_path], [IMAGE, LABEL])
    assert found.test is not None
    assert [e["label"] for e in found.test.examples] == ["y"]
    assert len(found.train.examples) + len(found.dev.examples) == 3
    assert len(read_examples([tmp_path / "train"], [IMAGE, LABEL]).examples) == 3


def test_pictures_inside_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    painted = [noise(4, 5, 3, seed=i) for i in range(3)]
    column = [{"bytes": encoded(Image.fromarray(array)), "path": f"{i}.png"} for i, array in enumerate(painted)]
    features = {"image": {"_type": "Image"}, "label": {"_type": "ClassLabel", "names": ["cat", "dog"]}}
    table = pyarrow.table({"image": column, "label": [0, 1, 0]})
    table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    parquet.write_table(table, tmp_path / "a.parquet")
    assert infer_input_kind([tmp_path / "a.parquet"]) == "image"
    found = read_examples([tmp_path / "a.parquet"], [IMAGE, LABEL]).examples
    assert [e["label"] for e in found] == ["cat", "dog", "cat"]
    for example, array in zip(found, painted, strict=True):
        assert np.array_equal(load_pixels(example["image"]), first(array))


def test_the_mark_of_the_data_is_of_the_pictures_too(tmp_path):
    path = shapes(tmp_path)
    before = open_data([path], [IMAGE, LABEL]).digest
    assert open_data([path], [IMAGE, LABEL]).digest == before
    paint(tmp_path, ["shapes_images/00003.png"])
    assert open_data([path], [IMAGE, LABEL]).digest != before


def test_what_was_done_to_pictures_is_said_once(tmp_path):
    (tmp_path / "x").mkdir()
    frames = [Image.new("L", (4, 3), shade) for shade in (0, 255)]
    for i in range(3):
        frames[0].save(tmp_path / "x" / f"{i}.gif", save_all=True, append_images=frames[1:])
        Image.new("RGBA", (4, 3), (0, 0, 0, 9)).save(tmp_path / "x" / f"{i}.png")
    said = read_examples([tmp_path], [IMAGE, LABEL]).notes
    assert [sum(note in line for line in said) for note in (ANIMATED_NOTE, TRANSPARENCY_NOTE)] == [1, 1]
    assert any("0.gif" in line for line in said)


def test_a_picture_under_two_names_is_seen_twice(tmp_path, capsys):
    paint(tmp_path, ["train/x/1.png", "train/x/2.png", "train/y/3.png", "test/y/4.png"])
    for copy in ("train/y/5.png", "test/x/6.png"):
        (tmp_path / copy).parent.mkdir(exist_ok=True)
        (tmp_path / copy).write_bytes((tmp_path / "train/x/1.png").read_bytes())
    assert main(["data", "check", str(tmp_path), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["conflict_count"] == 1
    assert facts["overlap_counts"]["test also occur in train"] + facts["overlap_counts"]["test also occur in dev"] >= 1


def test_text_stays_text_unless_columns_say_otherwise(tmp_path):
    paint(tmp_path, ["a.png"])
    (tmp_path / "a.csv").write_text("text,img,label\nfine,a.png,1\n")
    assert infer_input_kind([tmp_path / "a.csv"]) == "text"
    assert infer_input_kind([tmp_path / "a.csv"], {"image": "img"}) == "image"
    assert infer_input_kind([tmp_path / "a.csv"], {"text": "img"}) == "text"


# the task


def test_colour_and_size_are_chosen_from_several_pictures(tmp_path):
    sizes = {"a": (300, 200, "L"), "b": (40, 60, "RGB"), "c": (500, 400, "L")}
    for name, (wide, high, mode) in sizes.items():
        (tmp_path / name).mkdir()
        Image.new(mode, (wide, high)).save(tmp_path / name / "1.png")
    task = Label()
    examples = read_examples([tmp_path], task.roles([str(tmp_path)])).examples
    task.fit(examples)
    chosen = task.defaults(examples, False).model
    assert (chosen["channels"], chosen["image_height"]) == (
        3,
        112,
    )  # the usual height is 200, which is more than a new model reads
    assert chosen["image_height"] % chosen["patch_size"] == 0


def test_a_table_of_pictures_is_learnt_and_asked_from_the_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shapes(tmp_path, 30)
    sizes = {"width": 16, "layers": 1, "heads": 2, "ffn_width": 16}
    small = [f"--model.{name}={value}" for name, value in sizes.items()] + ["--train.max-steps=2"]
    assert main(["data", "check", "shapes.csv"]) == 0
    assert "image is column image" in capsys.readouterr().out
    assert main(["train", "label", "--data", "shapes.csv", "--out", "run", "--task.augment", "flip_crop", *small]) == 0
    capsys.readouterr()
    assert main(["label", "run", "shapes_images/00000.png", str(tmp_path / "shapes_images/00001.png"), "--json"]) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert main(["label", "run", "--data", "shapes.csv", "--json"]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()][:2]
    assert records == [{"line": number} | answer for number, answer in enumerate(answers, 2)]
    assert main(["label", "run", "--data", "shapes_images", "--json"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 30
    assert main(["evaluate", "run", "--data", "shapes.csv"]) == 0


def test_pictures_of_several_sizes_need_a_model_that_scales(tmp_path):
    paint(tmp_path, ["x/1.png"])
    Image.new("RGB", (9, 9)).save(tmp_path / "x" / "2.png")
    from saccade.models.build import new
    from saccade.models.registry import get_family

    task = Label(labels=("x", "y"))
    senet = get_family("senet")
    model = new(senet, senet.config_class(width=16), head="label", labels=task.labels)
    examples = [Example({"image": str(tmp_path / "x" / f"{i}.png"), "label": "x"}) for i in (1, 2)]
    with pytest.raises(ValueError, match=r"5 x 6 and 9 x 9.*vit"):
        task.encode(examples, model)


# augmentation


BATCH = torch.from_numpy(noise(7, 3, 10, 11)).float()


def test_a_mirror_twice_is_nothing_and_once_is_left_for_right():
    which = torch.tensor([True, False, True, True, False, False, True])
    once = mirror(BATCH, which)
    assert torch.equal(mirror(once, which), BATCH)
    for before, after, turned in zip(BATCH, once, which, strict=True):
        assert torch.equal(after, before.flip(-1) if turned else before)


def test_a_shift_is_a_crop_of_the_picture_with_its_edges_drawn_out():
    down, right = torch.tensor([0, 1, -2, 3, -3, 2, 0]), torch.tensor([0, -1, 2, 3, 1, -3, 1])
    found = shift(BATCH, down, right)
    wide = torch.nn.functional.pad(BATCH, (3, 3, 3, 3), mode="replicate")
    for i, (y, x) in enumerate(zip(down.tolist(), right.tolist(), strict=True)):
        assert torch.equal(found[i], wide[i, :, 3 - y : 13 - y, 3 - x : 14 - x])


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_the_same_seed_draws_the_same_pictures(name):
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(get_augmentation(name)(BATCH))
    assert torch.equal(drawn[0], drawn[1])
    assert torch.equal(drawn[0], drawn[2]) == (name == "none")
    assert drawn[0].shape == BATCH.shape
    for before, after in zip(BATCH, drawn[0], strict=True):
        assert set(after.flatten().tolist()) <= set(before.flatten().tolist())


def test_half_are_mirrored_and_every_shift_is_drawn():
    torch.manual_seed(0)
    ramp = torch.arange(16.0).expand(4000, 1, 16, 16)
    turned = (random_flip(ramp)[:, 0, 0, 0] == 15).float().mean()
    assert turned == pytest.approx(0.5, abs=0.03)
    moved = random_crop(ramp)[:, 0, 0, 8]  # the middle shows how far: up to 16 / 8
    assert sorted(moved.unique().tolist()) == [6, 7, 8, 9, 10]


def test_an_unknown_augmentation_lists_the_known():
    with pytest.raises(ValueError, match="none, flip, crop, flip_crop"):
        get_augmentation("spin")


def test_a_learner_that_goes_on_sees_what_it_would_have_seen(tmp_path):
    from saccade.training.loop import Learner

    path = shapes(tmp_path)

    def learner():
        made = ready(path, augment="flip_crop")
        return Learner(made.model, made.task, made.make_batches(), made.config)

    whole, before, after = learner(), learner(), learner()
    losses = [whole.step().loss for _ in range(4)]
    assert [before.step().loss for _ in range(2)] == losses[:2]
    torch.rand(7)  # what others draw in between does not matter
    after.restore(before.checkpoint_tensors(), 2)
    assert [after.step().loss for _ in range(2)] == losses[2:]


def test_a_model_of_texts_is_no_reader_of_pictures(tmp_path):
    from saccade.models.build import new
    from saccade.models.registry import get_family

    kind = get_family("transformer_encoder")
    model = new(
        kind, kind.config_class(vocab=9, width=8, layers=1, heads=2, ffn_width=8), head="label", labels=("x", "y")
    )
    with pytest.raises(ValueError, match=r"data are images, and transformer_encoder encodes a text.*vit"):
        Label(labels=("x", "y")).encode([Example({"image": noise(4, 4), "label": "x"})], model)


def test_only_learning_sees_pictures_altered(tmp_path):
    from saccade.tasks.batches import make_batches

    plain, moved = ready(shapes(tmp_path)), ready(tmp_path / "shapes.csv", augment="flip_crop")
    model = plain.model  # both were drawn from one seed
    batch = make_batches(plain.task, plain.splits.train.examples, model, batch_tokens=8).batches(0)[0]

    def losses(task):
        torch.manual_seed(3)
        return task.loss(model, batch).item()

    model.eval()
    assert losses(moved.task) == losses(plain.task)
    assert moved.task.answer(model, batch) == plain.task.answer(model, batch)
    model.train()
    assert losses(moved.task) == losses(moved.task) != losses(plain.task)
