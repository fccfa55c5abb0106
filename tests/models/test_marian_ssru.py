"""Marian's students: files written here in its layout, the model against its formulas in numpy, the SSRU against a loop."""

import json
import math
import random
import shutil
import struct
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from saccade import watch
from saccade.attention import CAUSAL, Sight
from saccade.cli import main
from saccade.data import Batch, Text
from saccade.decoding.loop import generate, teacher_forced_logits
from saccade.models.families.marian_ssru import Config, MarianSSRU, make_position, read_marian_ssru
from saccade.models.foreign.marian_bin import is_marian_bin, read_marian_bin
from saccade.models.load import load
from saccade.parts.ssru import SSRU
from saccade.parts.state import State

CONFIG = Config(vocab=19, width=8, layers=2, decoder_layers=3, heads=2, ffn_width=12)
SETTINGS = """dec-cell: ssru
dec-depth: 3
dim-emb: 8
dim-vocabs:
  - 19
  - 19
enc-depth: 2
tied-embeddings-all: true
transformer-decoder-autoreg: rnn
transformer-dim-ffn: 12
transformer-ffn-activation: relu
transformer-heads: 2
transformer-postprocess: dan
transformer-preprocess: ""
transformer-tied-layers: []
type: transformer
version: v1.9.56 2021-04-28 00:28:35 +0100
"""


# Marian's file, written by hand


def arrays(seed=0):
    """Weights of a student in Marian's names and shapes: matrices are (in, out), vectors (1, out)."""
    draw, w, inner = np.random.default_rng(seed), CONFIG.width, CONFIG.ffn_width
    out = {"Wemb": (CONFIG.vocab, w), "decoder_ff_logit_out_b": (1, CONFIG.vocab)}

    def looking(name):
        out.update({f"{name}_W{x}": (w, w) for x in "qkvo"} | {f"{name}_b{x}": (1, w) for x in "qkvo"})
        out.update({f"{name}_Wo_ln_scale": (1, w), f"{name}_Wo_ln_bias": (1, w)})

    def thinking(name):
        out.update({f"{name}_W1": (w, inner), f"{name}_b1": (1, inner), f"{name}_W2": (inner, w), f"{name}_b2": (1, w)})
        out.update({f"{name}_ffn_ln_scale": (1, w), f"{name}_ffn_ln_bias": (1, w)})

    for n in range(1, CONFIG.layers + 1):
        looking(f"encoder_l{n}_self")
        thinking(f"encoder_l{n}_ffn")
    for n in range(1, CONFIG.decoder_layers + 1):
        rnn = f"decoder_l{n}_rnn"
        out.update({f"{rnn}_W": (w, w), f"{rnn}_Wf": (w, w), f"{rnn}_bf": (1, w)})
        out.update({f"{rnn}_ffn_ln_scale": (1, w), f"{rnn}_ffn_ln_bias": (1, w)})
        looking(f"decoder_l{n}_context")
        thinking(f"decoder_l{n}_ffn")
    return {name: draw.normal(scale=0.6, size=shape).astype(np.float32) for name, shape in out.items()}


def float_item(name, x):
    return name, 0x404, x.shape, x.astype("<f4").tobytes()


def int8_item(name, x):
    """Column by column, unless it is a table of words; what it was multiplied by behind it; filled up to 256 bytes."""
    scale = np.float32(127 / np.abs(x).max())
    whole = np.round(x * scale).astype(np.int8)
    data = (whole if name == "Wemb" else whole.T).tobytes() + struct.pack("<f", scale)
    return (name, 0x4101, x.shape, data + b"\0" * (-len(data) % 256)), whole / scale


def yml(text=SETTINGS):
    return "special:model.yml", 0x101, (len(text) + 1,), text.encode() + b"\0"


def written(path, items, *, padding=24):
    head = struct.pack("<2Q", 1, len(items))
    head += b"".join(
        struct.pack("<4Q", len(name) + 1, kind, len(shape), len(data)) for name, kind, shape, data in items
    )
    head += b"".join(name.encode() + b"\0" for name, *_ in items)
    head += b"".join(struct.pack(f"<{len(shape)}i", *shape) for _, _, shape, _ in items)
    head += struct.pack("<Q", padding) + b"\0" * padding
    path.write_bytes(head + b"".join(data for *_, data in items))
    return path


def whole_file(path, found=None, text=SETTINGS):
    found = arrays() if found is None else found
    return written(path, [*(float_item(name, x) for name, x in found.items()), yml(text)])


# the student in numpy, from the formulas and Marian's names


def normed(x, found, name):
    centred = x - x.mean(-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-9)
    return scaled * found[f"{name}_ln_scale"] + found[f"{name}_ln_bias"]


def placed(x):
    """√width times the vector, and sines then cosines of position · 10000^(-i / (width/2 - 1))."""
    length, width = x.shape
    out = np.zeros_like(x)
    for p in range(length):
        for i in range(width // 2):
            angle = p * math.exp(-i * math.log(10_000) / (width / 2 - 1))
            out[p, i], out[p, i + width // 2] = math.sin(angle), math.cos(angle)
    return math.sqrt(width) * x + out


def looked(x, memory, found, name):
    q, k, v = (y @ found[f"{name}_W{a}"] + found[f"{name}_b{a}"] for a, y in (("q", x), ("k", memory), ("v", memory)))
    size, heads = CONFIG.width // CONFIG.heads, []
    for h in range(CONFIG.heads):
        part = slice(h * size, (h + 1) * size)
        weights = np.exp(q[:, part] @ k[:, part].T / math.sqrt(size))
        heads.append(weights / weights.sum(-1, keepdims=True) @ v[:, part])
    out = np.concatenate(heads, -1) @ found[f"{name}_Wo"] + found[f"{name}_bo"]
    return normed(x + out, found, f"{name}_Wo")


def thought(x, found, name):
    inner = np.maximum(x @ found[f"{name}_W1"] + found[f"{name}_b1"], 0)
    return normed(x + inner @ found[f"{name}_W2"] + found[f"{name}_b2"], found, f"{name}_ffn")


def remembered(x, found, name):
    cell, out = np.zeros(CONFIG.width), []
    for row in x:
        forget = 1 / (1 + np.exp(-(row @ found[f"{name}_Wf"] + found[f"{name}_bf"][0])))
        cell = forget * cell + (1 - forget) * (row @ found[f"{name}_W"])
        out.append(np.maximum(cell, 0))
    return normed(x + np.stack(out), found, f"{name}_ffn")


def reference(found, source, target):
    """Scores of each word of the target given those before it; a target begins with a vector of zeros."""
    memory = placed(found["Wemb"][source])
    for n in range(1, CONFIG.layers + 1):
        memory = thought(looked(memory, memory, found, f"encoder_l{n}_self"), found, f"encoder_l{n}_ffn")
    x = placed(np.concatenate([np.zeros((1, CONFIG.width)), found["Wemb"][target[:-1]]]))
    for n in range(1, CONFIG.decoder_layers + 1):
        x = remembered(x, found, f"decoder_l{n}_rnn")
        x = thought(looked(x, memory, found, f"decoder_l{n}_context"), found, f"decoder_l{n}_ffn")
    return x @ found["Wemb"].T + found["decoder_ff_logit_out_b"]


def student(path):
    config, tensors = read_marian_ssru(path)
    model = MarianSSRU(config)
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    assert (missing, unexpected) == (["target_words.vectors.weight", "head.score.weight"], [])
    return model.double().eval()


def test_the_student_computes_what_its_formulas_say(tmp_path):
    found = arrays()
    model = student(whole_file(tmp_path / "model.bin", found))
    exact = {name: x.astype(np.float64) for name, x in found.items()}
    source, target = [5, 7, 18, 7, 0], [3, 11, 2, 0]
    scores = teacher_forced_logits(model, Batch(Text(torch.tensor([source])), Text(torch.tensor([target]))))[0]
    assert_close(scores, torch.from_numpy(reference(exact, source, target)), rtol=1e-9, atol=1e-9)


def test_int8_comes_out_as_what_it_stands_for(tmp_path):
    """Every matrix in int8, tables row by row and the others column by column; alphas are no weights."""
    items, exact = [], {}
    for name, x in arrays().items():
        if name == "Wemb" or ("_W" in name and not name.endswith(("_scale", "_bias"))):
            item, exact[name] = int8_item(name, x)
            items += [item, float_item(f"{name}_QuantMultA", np.array([[17.0]]))]
        else:
            items.append(float_item(name, x))
            exact[name] = x
    path = written(tmp_path / "model.bin", [*items, yml()], padding=0)
    settings, tensors = read_marian_bin(path)
    assert settings["dim-vocabs"] == "19 19"
    assert settings["transformer-preprocess"] == settings["transformer-tied-layers"] == ""
    for name, x in exact.items():
        assert_close(tensors[name], torch.from_numpy(x.astype(np.float32)), rtol=1e-6, atol=0.0)
    scores = teacher_forced_logits(
        student(path), Batch(Text(torch.tensor([[4, 9, 0]])), Text(torch.tensor([[8, 2, 0]])))
    )[0]
    expected = reference({name: x.astype(np.float64) for name, x in exact.items()}, [4, 9, 0], [8, 2, 0])
    assert_close(scores, torch.from_numpy(expected), rtol=1e-5, atol=1e-5)


def test_positions_are_marians():
    table = make_position(8).encode(torch.arange(5)[None], torch.float64)[0]
    assert_close(table, torch.from_numpy(placed(np.zeros((5, 8)))), rtol=1e-12, atol=1e-12)
    with pytest.raises(ValueError, match="width of 4 or more; got 2"):
        make_position(2)


# the cell


def by_hand(unit, x):
    """The formula, one number at a time."""
    write, forget, shift = unit.write.weight.tolist(), unit.forget.weight.tolist(), unit.forget.bias.tolist()
    cell, out = [0.0] * len(shift), []
    for row in x.tolist():
        for j in range(len(cell)):
            f = 1 / (1 + math.exp(-shift[j] - sum(a * b for a, b in zip(forget[j], row, strict=True))))
            cell[j] = f * cell[j] + (1 - f) * sum(a * b for a, b in zip(write[j], row, strict=True))
        out.append([max(c, 0.0) for c in cell])
    return torch.tensor(out, dtype=torch.float64)


def test_ssru_is_its_formula_whole_and_step_by_step():
    unit, x = SSRU(5).double(), torch.randn(3, 7, 5).double()
    whole = unit(x, Sight(CAUSAL))
    for row in range(3):
        assert_close(whole[row], by_hand(unit, x[row]), rtol=1e-9, atol=1e-12)
    state, parts = State(), []
    for part in x.split([1, 3, 2, 1], dim=1):
        state.advance((3, part.size(1)))
        parts.append(unit(part, state.make_sight(CAUSAL), state=state.at("unit")))
    assert_close(torch.cat(parts, dim=1), whole, rtol=1e-12, atol=1e-12)
    assert unit(x[:, :0], Sight(CAUSAL)).shape == (3, 0, 5)


def test_padding_does_not_move_what_an_ssru_remembers():
    unit, x = SSRU(5).double(), torch.randn(2, 7, 5).double()
    keep = torch.tensor(
        [[False, True, True, False, True, False, True], [True, True, False, False, False, False, False]]
    )
    for sizes in ([7], [3, 1, 2, 1]):
        state, parts = State(), []
        for part, real in zip(x.split(sizes, dim=1), keep.split(sizes, dim=1), strict=True):
            state.advance((2, part.size(1)), real)
            parts.append(unit(part, state.make_sight(CAUSAL), state=state.at("unit")))
        out = torch.cat(parts, dim=1)
        for row in range(2):
            alone = by_hand(unit, x[row, keep[row]])
            assert_close(out[row, keep[row]], alone, rtol=1e-9, atol=1e-12)
            assert_close(state.at("unit").get("memory")[row].relu(), alone[-1], rtol=1e-9, atol=1e-12)


def test_the_gate_can_be_watched():
    unit, x = SSRU(5), torch.randn(2, 4, 5)
    before = unit(x, Sight(CAUSAL))
    with watch(unit) as looks:
        assert torch.equal(unit(x, Sight(CAUSAL)), before)
    assert looks[0].axes == ("batch", "time", "gate", "unit")
    assert_close(looks[0].weights, unit.forget(x).sigmoid()[:, :, None])


# the model among the others


def built(seed=1):
    torch.manual_seed(seed)
    model = MarianSSRU(CONFIG)
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.5)
    return model.double().eval()


def test_step_by_step_is_all_at_once_and_padding_changes_nothing():
    model, rows, goals = built(), [[5, 7, 11, 0], [3, 0]], [[8, 2, 17, 4, 0], [9, 0]]
    for left in (True, False):
        batch = Batch(Text.pad(rows, pad_left=left), Text.pad(goals))
        whole = teacher_forced_logits(model, batch)
        state, text = model.start(batch)
        parts = [model.step(text, state)]
        for t in range(4):
            keep = batch.target.keep[:, t : t + 1]
            parts.append(model.step(Text(batch.target.tokens[:, t : t + 1], keep), state))
        assert_close(torch.cat(parts, dim=1)[0], whole[0], rtol=1e-9, atol=1e-9)
        for i, (row, goal) in enumerate(zip(rows, goals, strict=True)):
            alone = teacher_forced_logits(model, Batch(Text(torch.tensor([row])), Text(torch.tensor([goal]))))[0]
            assert_close(whole[i, : len(goal)], alone, rtol=1e-9, atol=1e-9)
            assert_close(torch.cat(parts, dim=1)[i, : len(goal)], alone, rtol=1e-9, atol=1e-9)


def test_states_are_reordered_rewound_and_joined():
    model, source = built(), torch.tensor([[5, 7, 11, 0], [3, 8, 2, 0]])
    state, text = model.start(Batch(Text(source)))
    model.step(text, state)
    here = state.snapshot()
    first = model.step(Text(torch.tensor([[4], [9]])), state)
    state.restore(here)
    state.reorder(torch.tensor([1, 0, 1]))
    again = model.step(Text(torch.tensor([[9], [4], [9]])), state)
    assert_close(again, first[[1, 0, 1]], rtol=1e-12, atol=1e-12)
    alone, begin = model.start(Batch(Text(torch.tensor([[6, 0]]))))
    model.step(begin, alone)
    mark = alone.snapshot()
    last = model.step(Text(torch.tensor([[12]])), alone)
    alone.restore(mark)
    state.restore(here)
    state.append_rows(alone)
    both = model.step(Text(torch.tensor([[4], [9], [12]])), state)
    assert_close(both, torch.cat([first, last]), rtol=1e-9, atol=1e-9)


def test_every_look_can_be_watched():
    model = built()
    with watch(model, "*mechanism") as looks:
        teacher_forced_logits(model, Batch(Text(torch.tensor([[5, 7, 0]])), Text(torch.tensor([[4, 2, 9, 0]]))))
    assert [tuple(look.weights.shape) for look in looks] == [(1, 2, 3, 3)] * 2 + [(1, 2, 4, 3)] * 3
    for look in looks:
        assert_close(look.weights.sum(-1), torch.ones_like(look.weights[..., 0]))


def test_a_student_learns():
    torch.manual_seed(2)
    model = MarianSSRU(replace(CONFIG, width=16, dropout=0.0))
    rows = [[i + 1, (5 * i) % 18 + 1, (7 * i) % 18 + 1] for i in range(6)]
    batch = Batch(Text.pad([[*row, 0] for row in rows]), Text.pad([[*row[::-1], 0] for row in rows]))
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    for _ in range(300):
        loss = torch.nn.functional.cross_entropy(
            teacher_forced_logits(model, batch).flatten(0, 1), batch.target.tokens.flatten()
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if loss.item() < 0.02:
            break
    assert generate(model.eval(), batch, stop_ids=0, max_new_tokens=6) == [row[::-1] for row in rows]


# import


def trained(path, *, end, unknown, size=19):
    """A vocabulary of 19 pieces, or fewer, as Marian has them: an end and an unknown piece, no beginning and no padding."""
    import sentencepiece

    words = [
        "the cat sat",
        "a cat ate the hat",
        "the hat sat at a cat",
        "eat the tea",
        "that cheat teaches the chess test",
    ]
    options = {"vocab_size": size, "minloglevel": 2, "eos_id": end, "unk_id": unknown, "bos_id": -1, "pad_id": -1}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(words * 5), model_prefix=str(path), **options)
    return path.with_suffix(".model").rename(path.with_suffix(".spm"))


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("pieces") / "vocab", end=0, unknown=1)


def test_import_tells_files_apart_and_keeps_the_tokenizer(tmp_path, pieces, capsys):
    path = whole_file(tmp_path / "anything.dat")
    assert is_marian_bin(path)
    assert main(["import", str(path), str(tmp_path / "run"), "--tokenizer", str(pieces)]) == 0
    assert "as marian_ssru" in capsys.readouterr().out
    model = load(tmp_path / "run")
    assert (model.tokenizer.vocab, model.tokenizer.eos_id, model.config) == (19, 0, CONFIG)
    encoded = model.tokenizer.encode("the cat sat").ids
    assert encoded[-1] == 0
    assert model.tokenizer.decode(encoded) == "the cat sat"
    assert model.body.target_words.vectors.weight is model.body.words.vectors.weight is model.body.head.score.weight
    batch = Batch(Text(torch.tensor([encoded])))
    assert generate(model, batch, stop_ids=None, max_new_tokens=5) == generate(
        student(path).float(), batch, stop_ids=None, max_new_tokens=5
    )
    llama = tmp_path / "model.bin"  # the same name, other content
    llama.write_bytes(struct.pack("<7i", 8, 4, 1, 2, 2, 11, 5) + b"\0" * 12)
    assert not is_marian_bin(llama)
    assert main(["import", str(llama), str(tmp_path / "other")]) == 4
    assert "its header (Config(vocab=11" in capsys.readouterr().err


def test_the_only_tokenizer_beside_a_file_is_taken_and_none_of_several(tmp_path, pieces, capsys):
    path = whole_file(tmp_path / "model.bin")
    assert main(["import", str(path), str(tmp_path / "none")]) == 0
    assert "none: no *.spm next to the weights; without --tokenizer the run cannot read text" in capsys.readouterr().err
    assert load(tmp_path / "none").tokenizer is None
    shutil.copy(pieces, tmp_path / "vocab.spm")
    assert main(["import", str(path), str(tmp_path / "one")]) == 0
    assert f"tokenizer  {tmp_path / 'vocab.spm'}, found next to the weights" in capsys.readouterr().out
    assert load(tmp_path / "one").tokenizer.vocab == 19
    other = trained(tmp_path / "larger", end=0, unknown=1, size=17)
    (tmp_path / "vocab.spm").unlink()
    assert main(["import", str(path), str(tmp_path / "left")]) == 0
    assert "tokenizer  skipped:" in (said := capsys.readouterr().err)
    assert "has 17 tokens, but" in said
    assert load(tmp_path / "left").tokenizer is None
    shutil.copy(other, tmp_path / "other.spm")
    assert main(["import", str(path), str(tmp_path / "two")]) == 0
    assert "tokenizer  none: 2 candidates next to the weights" in capsys.readouterr().err


def test_the_end_of_the_vocabulary_begins_a_target(tmp_path):
    path, vocab = whole_file(tmp_path / "model.bin"), trained(tmp_path / "vocab", end=1, unknown=0)
    assert main(["import", str(path), str(tmp_path / "run"), "--tokenizer", str(vocab)]) == 0
    model = load(tmp_path / "run")
    assert model.config.decoder_start_id == model.tokenizer.eos_id == 1
    assert not model.body.target_words(torch.tensor([1])).any()
    assert model.body.target_words(torch.tensor([0])).all()
    assert model.body.words(torch.tensor([1])).all()


def test_a_vocabulary_of_another_model_is_refused(tmp_path, pieces, capsys):
    found = arrays()
    found["Wemb"], found["decoder_ff_logit_out_b"] = found["Wemb"][:17], found["decoder_ff_logit_out_b"][:, :17]
    path = whole_file(tmp_path / "model.bin", found, SETTINGS.replace("- 19", "- 17"))
    assert main(["import", str(path), str(tmp_path / "run"), "--tokenizer", str(pieces)]) == 4
    assert "has 19 tokens" in capsys.readouterr().err
    assert main(["import", str(path), str(tmp_path / "run"), "--tokenizer", str(path)]) == 4
    assert "not a SentencePiece model" in capsys.readouterr().err


# files that lie


SMALL = [float_item("Wemb", np.ones((2, 3))), int8_item("encoder_l1_ffn_W1", np.ones((2, 3)))[0], yml("type: s2s\n")]


def changed(at, value, kind="<Q"):
    """A small file with one number written over."""

    def change(file):
        return file[:at] + struct.pack(kind, value) + file[at + struct.calcsize(kind) :]

    return change


FIRST = 16  # the table begins here: length of the name, kind, rank, bytes
NAMES = FIRST + 3 * 32
SHAPES = NAMES + sum(len(name) + 1 for name, *_ in SMALL)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (changed(0, 2), "not a Marian .bin file of version 1"),
        (changed(8, 2**60), "a table of 1,152,921,504,606,846,976 items needs"),
        (changed(FIRST, 2**63), "a name has 9,223,372,036,854,775,808 bytes"),
        (changed(FIRST, 0), "a name has 0 bytes"),
        (changed(FIRST + 8, 0x1101), "has type 0x1101.*marian-conv"),
        (changed(FIRST + 16, 2**40), "has 1,099,511,627,776 axes"),
        (changed(FIRST + 24, 2**62), "the data of Wemb needs"),
        (changed(FIRST + 24, 8), "needs 24 bytes, but has 8"),
        (changed(NAMES, 0x07, "<B"), "is not a valid name"),
        (changed(SHAPES, -1, "<i"), "sizes must be positive"),
        (changed(SHAPES, 2**31 - 1, "<i"), "needs 25,769,803,764 bytes, but has 24"),
        (lambda file: file.replace(struct.pack("<f", 127), struct.pack("<f", math.nan)), "has the scale nan"),
        (lambda file: file.replace(struct.pack("<f", 127), struct.pack("<f", 0)), "has the scale 0"),
        (lambda file: file.replace(b"type: s2s", b"type: \xff\xfe\xfd"), "is not UTF-8"),
        (lambda file: file.replace(b"special:model.yml", b"special:model.xml"), "has type 0x101"),
        (lambda file: b"", "the version needs 8 bytes"),
    ],
)
def test_files_that_lie_are_refused(tmp_path, change, said):
    path = written(tmp_path / "model.bin", SMALL)
    read_marian_bin(path)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ValueError, match=said):
        read_marian_bin(path)


def test_every_cut_is_noticed_and_no_flip_breaks_the_reader(tmp_path):
    path = written(tmp_path / "model.bin", SMALL)
    whole = path.read_bytes()
    for length in [*range(0, len(whole), 5), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"model\.bin"):
            read_marian_bin(path)
    draw = random.Random(0)
    for _ in range(150):
        at = draw.randrange(len(whole))
        path.write_bytes(whole[:at] + bytes([draw.randrange(256)]) + whole[at + 1 :])
        with pytest.raises(ValueError, match=r"model\.bin"):  # two tensors are no student, whatever they hold
            read_marian_ssru(path)


def test_what_stands_twice_or_lacks_settings_is_refused(tmp_path):
    with pytest.raises(ValueError, match="Wemb occurs twice"):
        read_marian_bin(written(tmp_path / "a.bin", [SMALL[0], SMALL[0], SMALL[2]]))
    with pytest.raises(ValueError, match="its architecture is unknown"):
        read_marian_bin(written(tmp_path / "b.bin", SMALL[:2]))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("dec-cell: ssru", "dec-cell: gru", "dec-cell = 'gru' is not supported; only 'ssru' is"),
        ("postprocess: dan", "postprocess: da", "transformer-postprocess = 'da'"),
        ('preprocess: ""', "preprocess: n", "transformer-preprocess = 'n'"),
        ("activation: relu", "activation: gelu", "transformer-ffn-activation = 'gelu'"),
        ("enc-depth: 2", "enc-depth: 999999999", "tensors are too few for 999999999 \\+ 3 layers"),
        ("enc-depth: 2", "enc-depth: 3", "Missing weights: encoder.layers.2.attention"),
        ("enc-depth: 2", "enc-depth: 1", "unexpected weights: encoder.layers.1.attention"),
        ("enc-depth: 2", "enc-depth: -2", "layers is '-2' in the settings"),
        ("dim-emb: 8", "dim-emb: 999999998", "width = 999999998; a number from 1 to 16,384"),
        ("dim-emb: 8", "dim-emb: 7", "A width of 7 is not divisible by 2 heads"),
        ("ffn: 12", "ffn: 13", r"has shape \(12, 8\); its settings need \(13, 8\)"),
        ("  - 19\n  - 19", "  - 19\n  - 21", "dim-vocabs has 19, 21"),
    ],
)
def test_other_models_are_refused_by_name(tmp_path, old, new, said):
    assert old in SETTINGS
    with pytest.raises(ValueError, match=said):
        read_marian_ssru(whole_file(tmp_path / "model.bin", text=SETTINGS.replace(old, new)))


def test_the_list_of_families_says_where_weights_come_from(capsys):
    """A student is read from Marian's file, and nobody else reads or writes what we write of it."""
    assert main(["models"]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("marian_ssru"))
    assert line.split("  ")[0] == "marian_ssru"
    assert "none" not in line
    assert "  import  " in line
    assert main(["models", "--json"]) == 0
    found = {row["name"]: row["weights"] for row in json.loads(capsys.readouterr().out)}
    assert found["marian_ssru"] == "import"
    assert {name: found[name] for name in ("marian", "rnn")} == {"marian": "import and export", "rnn": "none"}
