"""The readers: what is written is read back, whatever stands in it, and what a file is told by looking at it."""

import gzip
import json
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image

from saccade.data import (
    Example,
    Role,
    find_split_files,
    open_data,
    parse_columns,
    read_examples,
    stream_examples,
    write_examples,
    write_rejects,
)
from saccade.data.example import (
    ANSWERS,
    CONTEXT,
    IMAGE,
    LABEL,
    LABELS,
    QUESTION,
    SOURCE,
    TAGS,
    TARGET,
    TEXT,
    TEXT_LINE,
    WORDS,
    X,
    Y,
)
from saccade.data.read.tag_schemes import to_bio
from saccade.errors import DataError

quick = settings(deadline=None, max_examples=40)
alphabet = st.characters(exclude_categories=("Cs", "Cc")) | st.just("\x1f")  # a control character now and then
line = st.text(alphabet, min_size=1, max_size=30).filter(str.strip)
passage = st.text(alphabet | st.sampled_from('\t\r\n",;'), min_size=1, max_size=40)
passage = passage.map(lambda text: text.replace("\r\n", "\n").strip("\r\n")).filter(str.strip)
name = st.text(st.characters(categories=("L", "N")), min_size=1, max_size=8).filter(lambda text: text.lower() != "nan")
word = st.text(st.characters(categories=("L", "N", "P", "S")), min_size=1, max_size=8)


def rows(table):
    return [dict(example.values) for example in table.examples]


def put(folder: Path, content: str | bytes, name: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def size(path: str) -> tuple[int, int]:
    with Image.open(path) as picture:
        return picture.size


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("read")


# what is written is read back


@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz", "csv", "csv.gz"])
@quick
@given(records=st.lists(st.tuples(passage, name), min_size=1, max_size=8))
def test_text_and_label_survive(folder, ending, records):
    wanted = [{"text": text, "label": label} for text, label in records]
    write_examples(folder / f"a.{ending}", [Example(values) for values in wanted])
    assert rows(read_examples([folder / f"a.{ending}"], [TEXT, LABEL])) == wanted


@pytest.mark.parametrize("ending", ["tsv", "tsv.gz"])
@quick
@given(records=st.lists(st.tuples(line, name), min_size=1, max_size=8))
def test_tsv_survives_with_its_quotes(folder, ending, records):
    wanted = [{"text": text, "label": label} for text, label in records]
    write_examples(folder / f"b.{ending}", [Example(values) for values in wanted])
    assert rows(read_examples([folder / f"b.{ending}"], [TEXT, LABEL])) == wanted


@quick
@given(
    records=st.lists(
        st.lists(st.tuples(word, st.sampled_from("OABab")), min_size=1, max_size=9), min_size=1, max_size=6
    )
)
def test_conll_survives(folder, records):
    made = []
    for sentence in records:
        tags, before = [], ""
        for _, letter in sentence:  # upper case begins a span of a type, lower case goes on with it if it can
            tags.append(
                "O"
                if letter == "O"
                else f"{'I' if letter.islower() and letter.upper() == before else 'B'}-{letter.upper()}"
            )
            before = letter.upper()
        made.append({"words": [word for word, _ in sentence], "tags": tags})
    if made[0]["words"][0].lower() in ("word", "words", "token", "tokens", "form", "-docstart-"):
        return
    write_examples(folder / "c.conll", [Example(values) for values in made])
    assert rows(read_examples([folder / "c.conll"], [WORDS, TAGS])) == made
    assert [row["words"] for row in rows(read_examples([folder / "c.conll"], [WORDS]))] == [
        row["words"] for row in made
    ]


@quick
@example(records=[("[", "[")])
@example(records=[(",", "[[1] a note")])
@given(records=st.lists(st.tuples(line, line), min_size=1, max_size=8))
def test_aligned_files_survive(folder, records):
    for end, side in (("en", 0), ("fr", 1)):
        put(folder, "".join(pair[side] + "\n" for pair in records), f"train.{end}")
    found = read_examples([folder / "train.en", folder / "train.fr"], [SOURCE, TARGET])
    assert rows(found) == [{"source": one, "target": other} for one, other in records]


@quick
@given(text=st.text(st.characters(exclude_characters="\0\r", exclude_categories=("Cs", "Cc")) | st.just("\n")))
def test_running_text_survives_with_its_line_ends(folder, text):
    text = "I say:" + text  # so that it does not begin as another format does
    found = "".join(example["text"] for example in stream_examples([put(folder, text, "d.txt")], [TEXT_LINE]))
    assert found == (text if text.endswith("\n") else text + "\n")


@quick
@given(values=st.lists(st.tuples(*[st.floats(allow_nan=False, allow_infinity=False)] * 3), min_size=2, max_size=8))
def test_numbers_survive(folder, values):
    put(folder, "a,b,y\n" + "".join(f"{a!r},{b!r},{y!r}\n" for a, b, y in values), "e.csv")
    assert rows(read_examples([folder / "e.csv"], [X, Y])) == [{"x": [a, b], "y": y} for a, b, y in values]
    found = read_examples([folder / "e.csv"], [X, Y], columns={"x": "3,1", "y": "b"})
    assert rows(found) == [{"x": [y, a], "y": b} for a, b, y in values]


@quick
@given(
    text=st.text("ab c.é", min_size=6, max_size=40).filter(lambda text: text.strip()),
    edges=st.lists(st.integers(0, 40), max_size=6, unique=True).map(sorted),
)
def test_spans_survive_the_way_through_words(folder, text, edges):
    pairs = [(a, b) for a, b in zip(edges[::2], edges[1::2], strict=False) if b <= len(text) and text[a:b].strip()]
    spans = [{"start": a, "end": b, "label": "PER"} for a, b in pairs]
    put(folder, json.dumps({"text": text, "spans": spans}) + "\n", "f.jsonl")
    (found,) = read_examples([folder / "f.jsonl"], [WORDS, TAGS]).examples
    assert [text[a:b] for a, b in found["offsets"]] == found["words"]
    assert "".join(found["words"]) == "".join(text.split())
    begun = [i for i, tag in enumerate(found["tags"]) if tag == "B-PER"]
    back = []
    for i in begun:
        end = i
        while end + 1 < len(found["tags"]) and found["tags"][end + 1] == "I-PER":
            end += 1
        back.append((found["offsets"][i][0], found["offsets"][end][1]))
    tight = [(a + len(text[a:b]) - len(text[a:b].lstrip()), a + len(text[a:b].rstrip())) for a, b in pairs]
    assert back == tight


def idx_bytes(array: np.ndarray) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


@pytest.mark.parametrize("shape", [(7, 5, 3), (3, 2, 5, 3)])
def test_idx_pictures_and_labels_survive(tmp_path, shape):
    pixels = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    labels = np.arange(shape[0], dtype=np.uint8)
    put(tmp_path, gzip.compress(idx_bytes(pixels)), "train-images-idx3-ubyte.gz")
    put(tmp_path, idx_bytes(labels), "train-labels-idx1-ubyte")
    found = read_examples(find_split_files([tmp_path], [IMAGE, LABEL])["train"], [IMAGE, LABEL])
    assert [example["label"] for example in found.examples] == [str(i) for i in labels]
    assert np.array_equal(np.stack([example["image"] for example in found.examples]), pixels)
    assert len(read_examples([tmp_path / "train-images-idx3-ubyte.gz"], [IMAGE]).examples) == shape[0]


def test_a_folder_for_each_class(tmp_path):
    put(tmp_path, "good\nfilm\n", "pos/1.txt")
    put(tmp_path, "bad", "neg/1.txt")
    found = read_examples([tmp_path], [TEXT, LABEL])
    assert rows(found) == [{"text": "bad", "label": "neg"}, {"text": "good\nfilm", "label": "pos"}]
    Image.new("RGB", (3, 2)).save(tmp_path / "pos" / "a.png")
    (picture,) = read_examples([tmp_path], [IMAGE, LABEL]).examples
    assert picture["label"] == "pos"
    assert size(picture["image"]) == (3, 2)


def test_parquet_and_a_dataset_directory(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import ipc, parquet

    table = pyarrow.table({"text": ["a", "b", "c"], "label": [1, 0, 1]})
    parquet.write_table(table, tmp_path / "train-00000-of-00001.parquet")
    wanted = [{"text": t, "label": n} for t, n in zip("abc", "101", strict=True)]
    assert rows(read_examples([tmp_path / "train-00000-of-00001.parquet"], [TEXT, LABEL])) == wanted

    names = {"info": {"features": {"label": {"names": ["bad", "good"], "_type": "ClassLabel"}}}}
    table = table.replace_schema_metadata({"huggingface": json.dumps(names)})
    for split in ("train", "validation"):
        put(tmp_path, "{}", f"set/{split}/state.json")
        with ipc.new_stream(tmp_path / "set" / split / "data-00000-of-00001.arrow", table.schema) as sink:
            sink.write_table(table)
    put(tmp_path, '{"splits": ["train", "validation"]}', "set/dataset_dict.json")
    found = open_data([tmp_path / "set"], [TEXT, LABEL])
    assert [example["label"] for example in found.dev.examples] == ["good", "bad", "good"]
    with ipc.new_file(tmp_path / "one.arrow", table.schema) as sink:
        sink.write_table(table)
    assert len(read_examples([tmp_path / "one.arrow"], [TEXT]).examples) == 3


def test_json_array_and_squad(tmp_path):
    path = put(tmp_path, '[\n {"text": "a", "label": 3},\n\n {"text": "b", "label": true}]', "a.json")
    found = read_examples([path], [TEXT, LABEL])
    assert rows(found) == [{"text": "a", "label": "3"}, {"text": "b", "label": "true"}]
    assert [example.line for example in found.examples] == [2, 4]
    asked = {"question": "Who?", "id": "1", "answers": [{"text": "Ann", "answer_start": 4}]}
    whole = {"version": "1", "data": [{"title": "t", "paragraphs": [{"context": "Hi, Ann", "qas": [asked]}]}]}
    whole["data"][0]["paragraphs"][0]["qas"][0]["answers"][0]["answer_start"] = 4
    path = put(tmp_path, json.dumps(whole), "squad.json")
    (found,) = read_examples([path], [CONTEXT, QUESTION, ANSWERS]).examples
    assert found["answers"] == [(4, "Ann")]


# tag schemes: the same spans in every scheme are the same BIO


@quick
@given(
    st.lists(
        st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["PER", "LOC", ""])), min_size=1, max_size=5), min_size=1
    )
)
def test_every_scheme_becomes_the_same_bio(sentences):
    for pieces in sentences:
        bio, bioes, bio1, before = [], [], [], ""
        for length, kind in pieces:
            if not kind:
                bio += ["O"] * length
                bioes += ["O"] * length
                bio1 += ["O"] * length
            else:
                bio += [f"B-{kind}"] + [f"I-{kind}"] * (length - 1)
                bioes += [f"S-{kind}"] if length == 1 else [f"B-{kind}"] + [f"I-{kind}"] * (length - 2) + [f"E-{kind}"]
                bio1 += [f"{'B' if before == kind else 'I'}-{kind}"] + [f"I-{kind}"] * (length - 1)
            before = kind
        assert to_bio(bio, "bio") == (bio, 0)
        assert to_bio(bioes, "bioes") == (bio, 0)
        assert to_bio(bio1, "bio1") == (bio, 0)
        assert to_bio([f"I{tag[1:]}" if tag != "O" else tag for tag in bio1 if "B" not in tag], "io")[1] == 0


@pytest.mark.parametrize(
    ("tags", "wanted", "said"),
    [
        ("O S-PER B-LOC E-LOC", "O B-PER B-LOC I-LOC", "BIOES"),
        ("O U-PER B-LOC L-LOC", "O B-PER B-LOC I-LOC", "BIOES"),
        ("O I-PER I-PER I-LOC", "O B-PER I-PER B-LOC", "IO"),
        ("O I-PER B-PER I-LOC", "O B-PER B-PER B-LOC", "BIO1"),
        ("B-PER O I-PER I-LOC", "B-PER O B-PER B-LOC", "2 tags"),
        ("O O O PER", "O O O B-PER", "without a prefix"),
        ("NOUN VERB DET NOUN", "NOUN VERB DET NOUN", "CoNLL"),
    ],
)
def test_a_scheme_is_recognised_and_said(tmp_path, tags, wanted, said):
    text = "-DOCSTART- X O\n\n" + "".join(f"w{i} X {tag}\n" for i, tag in enumerate(tags.split())) + "\n"
    found = read_examples([put(tmp_path, text, "a.conll")], [WORDS, TAGS])
    assert found.examples[0]["tags"] == wanted.split()
    assert found.examples[0].line == 3
    assert said in " ".join(found.notes)


# headers, columns, encodings, line ends


@pytest.mark.parametrize(
    ("content", "name", "wanted", "said"),
    [
        ("text\tlabel\nfine\t1\n", "a.tsv", ("fine", "1"), "'text'"),
        ("\ufefftext,label\nfine,1\n", "a.csv", ("fine", "1"), "header"),
        ("fine\tgood\nbad film\tgood\n", "a.tsv", ("fine", "good"), "without a header"),
        ("good\tfine film\ngood\tbad\n", "a.txt", ("fine film", "good"), "label is column 1"),
        ('"fine"\t1\n', "a.tsv", ('"fine"', "1"), "TSV"),
        ('"fine, he\nsaid ""so""\t",1\n', "a.csv", ('fine, he\nsaid "so"\t', "1"), "CSV"),
        ("fine;1\nbad;2\n", "a.csv", ("fine", "1"), "';'"),
        ("text,label\r\nfine,1\r\n", "a.csv", ("fine", "1"), "CSV"),
        ("text,label\rfine,1\r", "a.csv", ("fine", "1"), "CSV"),
        ("fine\t1\nbad\t0\n", "a.csv", ("fine", "1"), "TSV"),
        ("Review\tStars\tid\nfine\t5\t1\n", "a.tsv", ("fine", "5"), "text is column Review"),
        ('{"meta": {"text": "fine"}, "label": 4}\n', "a.txt", ("fine", "4"), "meta.text"),
        ("1\tfine film\tx9\t3\n2\tbad film\ty7\t3\n", "a.tsv", ("fine film", "3"), "label is column 4"),
    ],
)
def test_what_a_table_is_and_which_column_is_which(tmp_path, content, name, wanted, said):
    found = read_examples([put(tmp_path, content, name)], [TEXT, LABEL])
    assert (found.examples[0]["text"], found.examples[0]["label"]) == wanted
    assert said in " ".join(found.notes)


def test_a_header_without_known_names_is_told_by_kind_and_columns_name_it(tmp_path):
    path = put(tmp_path, "remark\tpoints\nfine\t5\nbad\t1\nso so\t3\n", "a.tsv")
    with pytest.raises(DataError, match="--columns text="):
        read_examples([path], [TEXT, LABEL])
    found = read_examples([path], [TEXT, LABEL], columns=parse_columns("text=remark,label=2"))
    assert rows(found)[0] == {"text": "fine", "label": "5"}
    assert found.examples[0].line == 2


def test_prediction_needs_no_label(tmp_path):
    assert rows(read_examples([put(tmp_path, "a film, good\nbad\n", "a.txt")], [TEXT])) == [
        {"text": "a film, good"},
        {"text": "bad"},
    ]
    assert rows(read_examples([put(tmp_path, "x\tgood film\ny\tbad film\n", "a.tsv")], [TEXT]))[0] == {
        "text": "good film"
    }
    (found,) = read_examples([put(tmp_path, "Ann's here.\n", "b.txt")], [WORDS]).examples
    assert found["words"] == ["Ann", "'", "s", "here", "."]


def test_labels_kind_and_equal_lists(tmp_path):
    path = put(tmp_path, 'text,labels\na,x|y\nb,\nc,"x;x"\n', "a.csv")
    assert [row["labels"] for row in rows(read_examples([path], [TEXT, LABELS]))] == [["x", "y"], [], ["x"]]
    path = put(tmp_path, '{"tokens": ["a", "b"], "ner_tags": ["O", "B-X"]}\n', "a.jsonl")
    assert rows(read_examples([path], [WORDS, TAGS])) == [{"words": ["a", "b"], "tags": ["O", "B-X"]}]


def test_pictures_named_in_a_table(tmp_path):
    (tmp_path / "img").mkdir()
    Image.new("L", (2, 3)).save(tmp_path / "img" / "a.png")
    path = put(tmp_path, "file_name,label\nimg/a.png,x\n", "a.csv")
    (found,) = read_examples([path], [IMAGE, LABEL]).examples
    assert size(found["image"]) == (2, 3)


# splits


def test_splits_by_name(tmp_path):
    for name in ("train.tsv", "my-dev.tsv", "test_2.tsv", "extra.tsv", "readme.txt", "_about.txt", "LICENSE"):
        put(tmp_path, "a\t1\n", name)
    found = find_split_files([tmp_path], [TEXT, LABEL])
    assert {split: [path.name for path in files] for split, files in found.items()} == {
        "train": ["extra.tsv", "train.tsv"],
        "dev": ["my-dev.tsv"],
        "test": ["test_2.tsv"],
    }


def test_pairs_by_stem_in_the_order_given(tmp_path):
    for name in ("train.de", "train.en", "val.de", "val.en"):
        put(tmp_path, f"{name}\n", name)
    files = [tmp_path / name for name in ("train.de", "val.de", "train.en", "val.en")]
    found = find_split_files(files, [SOURCE, TARGET])
    assert [path.name for path in found["train"]] == ["train.de", "train.en"]
    assert rows(read_examples(found["dev"], [SOURCE, TARGET])) == [{"source": "val.de", "target": "val.en"}]
    assert [path.name for path in find_split_files([tmp_path], [SOURCE, TARGET])["train"]] == ["train.en", "train.de"]
    put(tmp_path, "fr\n", "train.fr")
    with pytest.raises(DataError, match=r"two aligned files, got 3.*--columns source="):
        find_split_files([tmp_path], [SOURCE, TARGET])
    found = find_split_files([tmp_path], [SOURCE, TARGET], {"source": "en", "target": "fr"})
    assert [path.name for path in found["train"]] == ["train.en", "train.fr"]


@quick
@given(texts=st.lists(name, min_size=2, max_size=60), seed=st.integers(0, 3))
def test_the_cut_is_a_tenth_and_never_splits_equal_inputs(folder, texts, seed):
    write_examples(folder / "g.jsonl", [Example({"text": text, "label": str(i % 2)}) for i, text in enumerate(texts)])
    found = open_data([folder / "g.jsonl"], [TEXT, LABEL], seed=seed)
    again = open_data([folder / "g.jsonl"], [TEXT, LABEL], seed=seed)
    train, dev = ([row["text"] for row in rows(table)] for table in (found.train, found.dev))
    assert (train, dev) == tuple([row["text"] for row in rows(table)] for table in (again.train, again.dev))
    if len(set(texts)) == 1:
        assert train == dev == texts
        return
    assert not set(train) & set(dev)
    assert sorted(train + dev) == sorted(texts)
    if len(set(texts)) == len(texts):
        assert len(dev) == max(1, round(len(texts) / 10))
    assert any("No dev file" in said for said in found.notes)


def test_running_text_is_cut_at_its_end(tmp_path):
    path = put(tmp_path, "".join(f"line {i:03}\n" for i in range(100)), "a.txt")
    found = open_data([path], [TEXT_LINE], contiguous=True)
    assert [row["text"] for row in rows(found.train)] == [f"line {i:03}\n" for i in range(90)]
    assert [row["text"] for row in rows(found.dev)] == [f"line {i:03}\n" for i in range(90, 100)]
    found = open_data([put(tmp_path, "abcdefghi\n", "b.txt")], [TEXT_LINE], contiguous=True)
    assert rows(found.train)[0]["text"] + rows(found.dev)[0]["text"] == "abcdefghi\n"


def test_the_digest_is_of_bytes_and_columns(tmp_path):
    path = put(tmp_path, "text,label,b\na,1,2\nb,1,2\n", "a.csv")
    found = open_data([path], [TEXT, LABEL]).digest
    assert found == open_data([path], [TEXT, LABEL]).digest
    assert found != open_data([path], [TEXT, LABEL], columns={"label": "b"}).digest
    assert found == open_data([put(tmp_path, path.read_bytes(), "other.csv")], [TEXT, LABEL]).digest
    put(tmp_path, "text,label,b\na,1,2\nb,1,3\n", "a.csv")
    assert found != open_data([path], [TEXT, LABEL]).digest


# bad records


def test_skipping_keeps_the_good_and_writes_the_bad_down(tmp_path):
    text = "".join(f'{{"text": "t{i}", "label": {i % 2}}}\n' for i in range(99)) + '{"text": "", "label": 1}\n'
    path = put(tmp_path, text, "a.jsonl")
    found = read_examples([path], [TEXT, LABEL], on_bad_record="skip", max_bad_fraction=0.01)
    assert len(found.examples) == 99
    write_rejects(found.rejects, tmp_path / "bad_records.jsonl")
    (reject,) = map(json.loads, (tmp_path / "bad_records.jsonl").read_text().splitlines())
    assert (reject["line"], reject["column"], reject["value"]) == (100, "text", "")
    with pytest.raises(DataError, match=r"1 of 100 records are bad, more than 0\.5%"):
        read_examples([path], [TEXT, LABEL], on_bad_record="skip", max_bad_fraction=0.005)
    with pytest.raises(ValueError, match="'error' or 'skip'"):
        read_examples([path], [TEXT, LABEL], on_bad_record="ignore")


def test_an_open_quote_costs_one_record_not_the_rest(tmp_path):
    path = put(tmp_path, 'text,label\n"open,1\ngood,1\nfine,0\n', "a.csv")
    found = read_examples([path], [TEXT, LABEL], on_bad_record="skip", max_bad_fraction=0.5)
    assert [(row["text"], example.line) for row, example in zip(rows(found), found.examples, strict=True)] == [
        ("good", 3),
        ("fine", 4),
    ]
    assert found.rejects[0].line == 2


def test_streaming_does_not_wait_for_the_end(tmp_path):
    path = put(tmp_path, b"good\n" * 10_000 + b"\xff\n", "a.txt")
    found = stream_examples([path], [TEXT_LINE])
    assert next(found)["text"] == "good\n"
    with pytest.raises(DataError, match=r"a\.txt:10001: not UTF-8"):
        list(found)


def test_ids_that_stand_twice_are_said(tmp_path):
    path = put(tmp_path, "id,text\n1,a\n2,b\n1,c\n", "a.csv")
    assert "1 duplicate values of id, the first is 1 in line 4" in " ".join(read_examples([path], [TEXT]).notes)


def test_a_role_of_ones_own(tmp_path):
    path = put(tmp_path, '{"prem": "a", "hyp": "b"}\n', "a.jsonl")
    roles = [Role("premise", "text", ("prem",)), Role("hypothesis", "text", ("hyp",))]
    assert rows(read_examples([path], roles)) == [{"premise": "a", "hypothesis": "b"}]


@pytest.mark.parametrize(
    ("ending", "values"),
    [("tsv", {"text": "a\tb"}), ("txt", {"text": "a\nb"}), ("csv", {"x": {}}), ("xml", {"text": "a"})],
)
def test_a_writer_refuses_what_it_cannot_hold(tmp_path, ending, values):
    with pytest.raises(DataError, match=r"JSON lines|jsonl"):
        write_examples(tmp_path / f"a.{ending}", [Example(values)])


@pytest.mark.parametrize("name", ["short.csv", "short.txt"])
@pytest.mark.parametrize("rows", [1, 2])
def test_a_short_table_with_a_text_column_has_a_header_when_words_are_needed(tmp_path, name, rows):
    lines = ["id,text", "7,Ada was here", '8,"Bob, too"'][: rows + 1]
    path = put(tmp_path, "\n".join(lines) + "\n", name)
    examples = list(stream_examples([path], (WORDS,), keep_fields=True))
    assert [example["text"] for example in examples] == ["Ada was here", "Bob, too"][:rows]
    assert examples[0].fields == {"id": "7", "text": "Ada was here"}
    assert examples[0]["words"] == ["Ada", "was", "here"]


def test_prose_with_commas_is_still_split_into_words_line_by_line(tmp_path):
    path = put(tmp_path, "Ada was here, Bob too\nThe text, he said\n", "prose.txt")
    assert [example["text"] for example in stream_examples([path], (WORDS,))] == [
        "Ada was here, Bob too",
        "The text, he said",
    ]
