"""Directories of sentence-transformers, in and out: the embeddings are those of the package itself."""

import json
import warnings

import pytest
import torch
import transformers
from torch.testing import assert_close

import saccade
from saccade.cli import main
from saccade.models.save import save

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

TEXT = "the bank of a river was steep and raised its interest rates again to surprise nobody ΟΔΟΣ οδοσ"
WORDS = TEXT.split()
TEXTS = ["The bank of the river", "its interest rates", "a", "ΟΔΟΣ Steep", " ".join(WORDS * 3), ""]
WIDTH = 12
MODES = ["cls", "mean", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """A small BERT with its tokenizer, none of whose weights is what a new one would have."""
    home = tmp_path_factory.mktemp("bare")
    (home / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "The", "Steep"]))
    transformers.BertTokenizer(str(home / "vocab.txt"), do_lower_case=False).save_pretrained(home)
    config = transformers.BertConfig(vocab_size=40, hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=3)
    config.update({"intermediate_size": 17, "max_position_embeddings": 32})
    torch.manual_seed(1)
    theirs = transformers.BertModel(config)
    for p in theirs.parameters():
        torch.nn.init.normal_(p, std=0.7)
    theirs.save_pretrained(home)
    return home


def written(bare, home, *modules, **options):
    """What the package writes for some modules behind the transformer, and its own embeddings."""
    theirs = SentenceTransformer(modules=[Transformer(str(bare)), *modules], device="cpu", **options)
    theirs.save(str(home), create_model_card=False)
    return reference(home)


def reference(home):
    """The embeddings of the package, from the files."""
    theirs = SentenceTransformer(str(home), device="cpu", local_files_only=True)
    return torch.from_numpy(theirs.encode(TEXTS, show_progress_bar=False))


def there_and_back(home, out, wanted):
    """Ours are the same, from their directory, from what we write of it, and theirs are from that too."""
    ours = saccade.load(home)
    assert_close(saccade.embed(ours, TEXTS), wanted, rtol=1e-4, atol=1e-5)
    save(ours, out)
    assert_close(saccade.embed(saccade.load(out), TEXTS), wanted, rtol=1e-4, atol=1e-5)
    assert_close(reference(out), wanted, rtol=1e-4, atol=1e-5)
    return ours


@pytest.mark.parametrize("mode", [*MODES, ("mean", "cls"), ("cls", "max", "mean")], ids=str)
def test_pooling_modes(bare, mode, tmp_path):
    wanted = written(bare, tmp_path / "theirs", Pooling(WIDTH, pooling_mode=mode))
    assert "pooling_mode" in json.loads((tmp_path / "theirs" / "1_Pooling" / "config.json").read_text())
    there_and_back(tmp_path / "theirs", tmp_path / "ours", wanted)


@pytest.mark.parametrize("mode", MODES)
def test_the_flags_of_older_versions(bare, mode, tmp_path):
    from saccade.models.io.sentence_transformers_dir import POOLING_MODE_FLAGS

    wanted = written(bare, tmp_path / "theirs", Pooling(WIDTH, pooling_mode=mode))
    old = {"word_embedding_dimension": WIDTH} | {key: named == mode for key, named in POOLING_MODE_FLAGS.items()}
    (tmp_path / "theirs" / "1_Pooling" / "config.json").write_text(json.dumps(old))
    assert_close(reference(tmp_path / "theirs"), wanted)  # they are read by the package as they are meant here
    there_and_back(tmp_path / "theirs", tmp_path / "ours", wanted)


@pytest.mark.parametrize(
    "layers",
    [
        (Normalize(),),
        (Dense(WIDTH, 5),),
        (Dense(WIDTH, WIDTH, bias=False, activation_function=torch.nn.Identity()), Normalize()),
        (Dense(WIDTH, 7, activation_function=torch.nn.GELU(), use_residual=True), Normalize(), Dense(7, 3)),
        (Dense(WIDTH, WIDTH, activation_function=torch.nn.ReLU(), use_residual=True),),
    ],
    ids=["normalize", "dense", "dense, normalize", "residual matrix", "residual"],
)
def test_layers_behind_the_pooling(bare, layers, tmp_path):
    wanted = written(bare, tmp_path / "theirs", Pooling(WIDTH), *layers)
    there_and_back(tmp_path / "theirs", tmp_path / "ours", wanted)


@pytest.mark.parametrize("length", [5, 16])
def test_texts_are_truncated_where_the_files_say(bare, length, tmp_path):
    """In sentence_bert_config.json, as most published directories have it, and in tokenizer_config.json, as today's do."""
    written(bare, tmp_path / "theirs", Pooling(WIDTH, pooling_mode="cls"))
    whole = saccade.embed(saccade.load(tmp_path / "theirs"), TEXTS)
    path = tmp_path / "theirs" / "sentence_bert_config.json"
    path.write_text(json.dumps({"max_seq_length": length, "do_lower_case": False}))
    wanted = reference(tmp_path / "theirs")
    assert (wanted - whole).abs().max() > 0.01
    ours = there_and_back(tmp_path / "theirs", tmp_path / "ours", wanted)
    with pytest.raises(ValueError, match=f"at most {length}"):
        saccade.embed(ours, TEXTS, truncate=False)
    theirs = SentenceTransformer(str(tmp_path / "theirs"), device="cpu")
    theirs.save(str(tmp_path / "today"), create_model_card=False)
    assert "max_seq_length" not in (tmp_path / "today" / "sentence_bert_config.json").read_text()
    there_and_back(tmp_path / "today", tmp_path / "ours again", wanted)


def test_lowercase_and_prompts(bare, tmp_path):
    plain = written(bare, tmp_path / "plain", Pooling(WIDTH))
    prompts = {"query": "the river ", "document": "its "}
    wanted = written(bare, tmp_path / "theirs", Pooling(WIDTH), prompts=prompts, default_prompt_name="query")
    assert (wanted - plain).abs().max() > 0.01
    path = tmp_path / "theirs" / "sentence_bert_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"do_lower_case": True}))
    lowered = reference(tmp_path / "theirs")
    assert (wanted - lowered).abs().max() > 0.01
    ours = there_and_back(tmp_path / "theirs", tmp_path / "ours", lowered)
    assert dict(ours.pooling.prompts) == prompts
    assert json.loads((tmp_path / "ours" / "config_sentence_transformers.json").read_text())["prompts"] == prompts
    pool = tmp_path / "theirs" / "1_Pooling" / "config.json"
    pool.write_text(json.dumps(json.loads(pool.read_text()) | {"include_prompt": False}))
    with pytest.raises(ValueError, match="include_prompt = false"):
        saccade.load(tmp_path / "theirs")


def test_import_with_convert_keeps_the_modules(bare, tmp_path, capsys):
    """Also the pickled weights of a dense layer."""
    wanted = written(bare, tmp_path / "theirs", Pooling(WIDTH, pooling_mode="max"), Dense(WIDTH, 5), Normalize())
    for home in (tmp_path / "theirs", tmp_path / "theirs" / "2_Dense"):
        from safetensors.torch import load_file

        torch.save(load_file(home / "model.safetensors"), home / "pytorch_model.bin")
        (home / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="import --convert-pickle"):
        saccade.load(tmp_path / "theirs")
    assert main(["import", "--convert-pickle", str(tmp_path / "theirs"), str(tmp_path / "run")]) == 0
    assert f"from {tmp_path / 'theirs'}" in capsys.readouterr().out
    assert_close(saccade.embed(saccade.load(tmp_path / "run"), TEXTS), wanted, rtol=1e-4, atol=1e-5)
    assert_close(reference(tmp_path / "run" / "model"), wanted, rtol=1e-4, atol=1e-5)


def test_what_is_not_built_is_refused_by_name(bare, tmp_path):
    home = tmp_path / "theirs"
    written(bare, home, Pooling(WIDTH), Dense(WIDTH, 5))
    cases = [
        ("1_Pooling", {"pooling_mode": "median"}, "pooling_mode = 'median'"),
        ("1_Pooling", {"pooling_mode": []}, "pooling_mode"),
        ("2_Dense", {"activation_function": "torch.nn.modules.activation.Hardtanh"}, "Hardtanh"),
        ("2_Dense", {"activation_function": "os.system"}, "os.system"),
        ("2_Dense", {"module_input_name": "token_embeddings"}, "token_embeddings"),
        ("2_Dense", {"in_features": 13}, "linear.weight"),
        ("2_Dense", {"bias": False}, "linear.bias"),
    ]
    for folder, change, words in cases:
        path = home / folder / "config.json"
        before = path.read_text()
        path.write_text(json.dumps(json.loads(before) | change))
        with pytest.raises(ValueError, match=words):
            saccade.load(home)
        path.write_text(before)
    modules = json.loads((home / "modules.json").read_text())
    (home / "modules.json").write_text(json.dumps([modules[0], modules[2], modules[1]]))
    with pytest.raises(ValueError, match="Transformer, Dense, Pooling in this order"):
        saccade.load(home)
