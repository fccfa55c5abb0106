"""`saccade.look` for texts, pairs, images and records: its output, files and plots."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from torch.testing import assert_close

import saccade
from saccade.attention.watch import watch
from saccade.cli import main
from saccade.data import Batch, Text
from saccade.decoding.config import GenerationConfig
from saccade.explain.axis import make_input_axis, make_output_axis
from saccade.explain.maps import AttentionMaps
from saccade.explain.overlay import render_overlays
from saccade.explain.plots import save_attention_plot
from saccade.explain.word_contexts import compare_contexts
from saccade.models.build import new
from saccade.models.families import captioner, longformer, rnn, senet, vit
from saccade.models.families.transformer import Config
from saccade.text import train_tokenizer

TEXTS = ["the bank of the river", "the bank raised its rates, unseen", "ab abc שלום 注意力 ünïcode"]
TINY = {"layers": 2, "heads": 2, "ffn_width": 8, "dropout": 0.0}


def tokens(kind="bpe", frame="bos_eos", vocab=300):
    return train_tokenizer(TEXTS * 3, kind, vocab, token_template=frame)


def made(family, frame="bos_eos", config=None, **head):
    torch.manual_seed(2)
    tokenizer = tokens(frame=frame)
    model = new(family, config or Config(tokenizer.vocab, 8, **TINY), **head).eval()
    model.tokenizer = tokenizer
    return model


@pytest.fixture(scope="module")
def reader():
    return made("transformer_encoder", head="label", labels=("good", "bad"))


@pytest.fixture(scope="module")
def translator():
    return made("transformer", frame="t5")


def test_tokens_have_their_spans(reader):
    """Every token of a text is the characters it names, and all of them together are the text."""
    for text in TEXTS:
        looks = saccade.look(reader, text)
        axis = looks[0].query
        assert looks.texts == (text,)
        covered = set()
        for token in axis.tokens:
            if token.text_index is not None:
                start, end = token.span
                covered |= set(range(start, end))
        assert all(text[i].isspace() for i in set(range(len(text))) - covered)
        assert axis.names[0] == "<s>"
        assert axis.special_tokens_mask[0]
        assert not axis.special_tokens_mask[1]


def test_a_pair_has_two_texts(reader):
    looks = saccade.look(reader, ("the bank", "of the river"))
    assert looks.texts == ("the bank", "of the river")
    of = [token.text_index for token in looks[0].query.tokens if token.text_index is not None]
    assert of == sorted(of)
    assert set(of) == {0, 1}
    words = looks.merge_subwords()[0].query_names
    assert [word for word in words if not word.startswith("<")] == ["the", "bank", "of", "the", "river"]


def test_words_are_sums_over_keys_and_means_over_queries(reader):
    looks = saccade.look(reader, TEXTS[1])
    one, joined = looks[1], looks.merge_subwords()[1]
    names, groups = one.query.group_words(looks.texts)
    assert joined.query_names == names.names
    assert "unseen" in joined.query_names
    for i, rows in enumerate(groups):
        for j, columns in enumerate(groups):
            wanted = torch.stack([one.weights[:, r, c] for r in rows for c in columns]).sum(0) / len(rows)
            assert_close(joined.weights[:, i, j], wanted)
    assert joined.sums_to_one


def test_the_prediction_is_that_of_the_task_and_does_not_change(reader):
    from saccade.data import Example
    from saccade.tasks.label import Label
    from saccade.tasks.predict import predict

    task = Label(labels=reader.labels)
    example = Example({"text": TEXTS[0]})
    (answer,), _ = predict(task, reader, [example])
    assert saccade.look(reader, TEXTS[0]).answer == str(task.to_prediction(answer, example))
    assert saccade.look(reader, {"text": TEXTS[0]}).answer == str(task.to_prediction(answer, example))


def test_an_encoder_decoder_is_watched_over_its_output(translator):
    greedy = saccade.look(translator, TEXTS[0], decoding=GenerationConfig(max_new_tokens=9))
    across = greedy.select("cross", layers=[-1])[0]
    assert (
        across.query_names
        == saccade.look(translator, TEXTS[0], decoding=GenerationConfig(max_new_tokens=9))[-1].query_names
    )
    assert across.weights.shape == (2, len(across.query_names), len(greedy[0].query_names))
    own = greedy.select("self", "decoder")[0]
    assert own.query_names[1:] == across.query_names[:-1]  # the decoder input is the shifted output
    assert own.query_names == own.key_names
    forced = saccade.look(translator, (TEXTS[0], "the rates"))
    assert forced.generated_text == "the rates"
    assert forced.texts == (TEXTS[0], "the rates")
    spans = [forced.texts[t.text_index][slice(*t.span)] for t in forced[-1].query.tokens if t.text_index is not None]
    assert "".join(spans) == "the rates"
    assert forced[-1].query_names[-1] == "</s>"


def test_the_best_beam_is_watched(translator):
    from saccade.decoding.generator import TextGenerator

    ids = translator.tokenizer.encode(TEXTS[1]).ids
    generator = TextGenerator(GenerationConfig(beams=3, max_new_tokens=6), translator, translator.tokenizer)
    best = generator.generate(Batch(Text(torch.tensor([ids]))), max_new_tokens=6)[0][0]
    looks = saccade.look(translator, TEXTS[1], decoding=GenerationConfig(beams=3, max_new_tokens=6))
    assert looks.generated_text == best.text


def test_the_continuation_of_a_language_model_follows_its_text():
    model = made("transformer_lm", frame="none")
    looks = saccade.look(model, "the bank", decoding=GenerationConfig(max_new_tokens=5))
    assert looks.texts[0].startswith("the bank")
    assert len(looks[0].query_names) == len(model.tokenizer.encode("the bank", add_special_tokens=False).ids) + 5
    forced = saccade.look(model, ("the bank", " of the river"))
    assert forced.texts == ("the bank of the river",)
    assert "".join(forced.texts[0][slice(*token.span)] for token in forced[0].query.tokens) == forced.texts[0]
    assert bool((forced[0].weights.triu(1) == 0).all())


def test_local_and_global_attention_of_longformer_are_one_map():
    tokenizer = tokens()
    torch.manual_seed(0)
    sizes = longformer.Config(tokenizer.vocab, 8, **TINY, max_positions=40, attention_windows=(4,))
    model = new("longformer", sizes).eval()
    ids = torch.randint(5, tokenizer.vocab, (1, 11), generator=torch.Generator().manual_seed(0))
    marked = torch.zeros(1, 11, dtype=torch.bool)
    marked[0, [2, 7]] = True
    batch = Batch(Text(ids, global_mask=marked))
    one = saccade.look(model, batch)[0]
    with torch.no_grad(), watch(model) as seen:
        model(batch)
    near, far = (look.weights[0] for look in seen[:2])
    wanted = near.clone()
    wanted[:, [2, 7]] = far
    assert torch.equal(one.weights, wanted)
    assert one.sums_to_one
    some = saccade.look(model, batch, queries=[7, 9])[0]
    assert_close(some.weights, wanted[:, [7, 9]])


def test_gates_and_cells_and_channels_have_names():
    torch.manual_seed(0)
    tokenizer = tokens(frame="t5")
    model = new("rnn", rnn.Config(tokenizer.vocab, 8, cell="gru", dropout=0.0)).eval()
    model.tokenizer = tokenizer
    looks = saccade.look(model, (TEXTS[0], "the rates"))
    assert [one.title for one in looks] == ["encoder layer 0, gate", "decoder layer 0, cross", "decoder layer 0, gate"]
    gate = looks[0]
    assert (gate.head_name(0), gate.head_name(1)) == ("reset gate", "update gate")
    assert len(gate.query_names) == gate.weights.size(1)
    picture = np.random.default_rng(0).integers(0, 255, (12, 12, 3)).astype(np.uint8)
    sizes = vit.Config(image_height=12, patch_size=4, width=8, layers=1, heads=2, ffn_width=8)
    seen = saccade.look(new("vit", sizes, head="label", labels=("a", "b")).eval(), picture)
    assert seen[0].key_names[:2] == ["[image]", "0,0"]
    assert seen[0].key.grid == (3, 3)
    assert np.array_equal(seen.image, picture)
    channels = saccade.look(
        new("senet", senet.Config(width=8, stages=2, blocks_per_stage=1, se_reduction=2)).eval(), picture
    )
    assert {one.kind for one in channels} == {"channel"}


def test_every_word_of_a_caption_has_its_grid(tmp_path):
    torch.manual_seed(0)
    tokenizer = tokens(frame="t5")
    model = new(
        "captioner_rnn", captioner.Config(tokenizer.vocab, 16, image_size=12, cell_size=4, max_positions=8)
    ).eval()
    model.tokenizer = tokenizer
    file = tmp_path / "picture.png"
    Image.fromarray(np.full((20, 20, 3), 200, np.uint8)).save(file)
    for given in (str(file), Image.open(file), {"image": str(file)}):
        assert saccade.look(model, given).select("image")[0].key.grid == (3, 3)
    looks = saccade.look(model, (file, "the river"))
    one = looks.select("image")[0]
    assert one.weights.shape == (1, len(one.query_names), 9)
    assert len(render_overlays(looks)) == len(one.query_names)
    assert save_attention_plot(looks, tmp_path / "words.png").read_bytes()[:4] == b"\x89PNG"


def test_layers_heads_and_kinds_are_selected_or_refused_by_name(translator, reader):
    looks = saccade.look(translator, (TEXTS[0], "the rates"), layers=[0], heads=[1])
    assert {one.layer for one in looks} == {0}
    assert {one.heads for one in looks} == {(1,)}
    with pytest.raises(ValueError, match="Layer 5 does not exist; the model has 2 layers, numbered from 0"):
        saccade.look(reader, "the", layers=[5])
    with pytest.raises(ValueError, match="2 heads, numbered from 0"):
        saccade.look(reader, "the", heads=[9])
    with pytest.raises(ValueError, match=r"No map of kind gate.*layer 0, self"):
        looks.select("gate")
    with pytest.raises(ValueError, match=r"transformer_encoder reads text.*got int"):
        saccade.look(reader, 7)
    with pytest.raises(ValueError, match="path of a run; got NoneType"):
        saccade.look(None, "the")


def test_a_file_of_another_format_is_refused(reader, tmp_path):
    path = saccade.look(reader, TEXTS[2]).save(tmp_path / "a.looks")
    assert path.stat().st_size < 10_000
    again = AttentionMaps.load(path)
    assert again.texts == (TEXTS[2],)
    (tmp_path / "b.looks").write_bytes(b"something else")
    with pytest.raises(ValueError, match=r"b\.looks has no attention maps"):
        AttentionMaps.load(tmp_path / "b.looks")
    reader.save(tmp_path / "model")
    with pytest.raises(ValueError, match="saccade attention-maps 1"):
        AttentionMaps.load(tmp_path / "model" / "model.safetensors")


def test_long_inputs_are_pooled_and_bounded():
    model = new("transformer_encoder", Config(30, 4, 1, 2, 4, dropout=0.0)).eval()
    batch = Batch(Text(torch.randint(3, 30, (1, 2900), generator=torch.Generator().manual_seed(0))))
    one = saccade.look(model, batch)[0]
    assert one.weights.shape == (2, len(one.query_names), len(one.key_names))
    assert max(one.weights.shape) <= 256
    assert "…" in one.query_names[0]
    assert_close(one.weights.sum(-1), torch.ones(2, len(one.query_names)), rtol=0, atol=1e-3)


def test_a_few_rows_of_a_long_input_are_not_downsampled():
    """A few rows need little memory, however long the text is."""
    model = new("transformer_encoder", Config(30, 4, 1, 2, 4, dropout=0.0)).eval()
    batch = Batch(Text(torch.randint(3, 30, (1, 2900), generator=torch.Generator().manual_seed(0))))
    (one,) = saccade.look(model, batch, queries=range(2800, 2805))
    with torch.no_grad(), watch(model, rows=(2800, 2801, 2802, 2803, 2804)) as seen:
        model(batch)
    assert_close(one.weights, seen[0].weights[0], rtol=1e-5, atol=1e-7)
    assert one.weights.shape == (2, 5, 2900)


def test_output_tokens_have_the_spans_that_they_added():
    tokenizer = tokens("bpe", "none")
    ids = tokenizer.encode("the rates", add_special_tokens=False).ids
    axis, text = make_output_axis(tokenizer, ids, 0)
    assert text == "the rates"
    assert "".join(axis.names) == text
    assert axis.names == make_input_axis(tokenizer, tokenizer.encode(text, add_special_tokens=False), [text]).names


def test_a_word_is_the_same_before_the_first_layer_and_moves_with_its_context(reader, translator):
    for model in (reader, translator):
        steps = compare_contexts(model, TEXTS[0], TEXTS[1], "bank")
        assert len(steps) == 3
        assert all(-1.001 <= step.cosine_similarity <= 1.001 for step in steps)
        assert steps[-1].relative_distance > 1e-3
        assert steps[1].first_attended
    same = compare_contexts(reader, TEXTS[0], TEXTS[0], "river")
    assert [step.cosine_similarity for step in same] == pytest.approx([1.0] * 3)
    with pytest.raises(ValueError, match=r"no word 'bonk'.*bank"):
        compare_contexts(reader, TEXTS[0], TEXTS[1], "bonk")


def test_the_command_prints_the_label_of_each_head(reader, tmp_path, capsys):
    run = str(reader.save(tmp_path / "run"))
    files = [str(tmp_path / name) for name in ("a.html", "a.png", "a.looks")]
    assert main(["look", run, TEXTS[0], "--html", files[0], "--png", files[1], "--safetensors", files[2]]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("prediction: ")
    assert out.count("\n") == 5
    assert "layer 1, self, head 1" in out
    assert err.count("wrote") == 3
    assert AttentionMaps.load(files[2]).texts == (TEXTS[0],)
    assert main(["look", run, TEXTS[0], "--json", "--layer", "-1", "--head", "0"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert [head["layer"] for head in content["heads"]] == [1]
    assert content["tokens"]["input"][1]["name"]
    assert main(["look", run, TEXTS[0], TEXTS[1], "--compare-word", "bank"]) == 0
    assert "layer 2: cosine similarity" in capsys.readouterr().out
    assert main(["look", run, "--merge-subwords"]) == 2
    assert main(["look", run, TEXTS[0], "--compare-word", "bank"]) == 2
    assert "two texts" in capsys.readouterr().err
