"""Directories that are not what `load` reads as they are: variants and unnamed families that load, and formats called by name."""

import json
import shutil
from dataclasses import fields

import pytest
import torch

import saccade
from saccade.cli import main
from saccade.models.build import new
from saccade.models.check_weights import MAX_SIZES, check_fields
from saccade.models.families import bert, bigbird
from saccade.models.load import load
from saccade.models.registry import FAMILIES


@pytest.fixture
def home(tmp_path):
    """A small BERT with a head for three labels, in its published form."""
    torch.manual_seed(1)
    config = bert.Config(vocab=53, width=12, layers=2, heads=3, ffn_width=17, max_positions=19)
    new("bert", config, head="label", labels=("a", "b", "c")).save(tmp_path / "bert")
    return tmp_path / "bert"


def change(home, **fields):
    raw = json.loads((home / "config.json").read_text()) | fields
    (home / "config.json").write_text(json.dumps({key: value for key, value in raw.items() if value is not None}))
    return home


def refusal(where):
    with pytest.raises(ValueError) as error:
        load(where)
    return str(error.value)


@pytest.mark.parametrize("names", [{"0": "LABEL_0", "1": "LABEL_1"}, {"0": "neg", "1": "pos"}])
def test_num_labels_beside_fewer_names(home, names):
    """As the reference does: AutoConfig makes of such a file a config of three labels without names."""
    from transformers import AutoModelForSequenceClassification

    change(home, id2label=names, label2id={name: int(id) for id, name in names.items()}, num_labels=3)
    theirs = AutoModelForSequenceClassification.from_pretrained(home)
    model = load(home)
    assert model.labels == tuple(theirs.config.id2label.values()) == ("LABEL_0", "LABEL_1", "LABEL_2")
    assert torch.equal(model.head.score.weight, theirs.classifier.weight)
    assert "3, by num_labels; the 2 names in id2label" in str(model.report)


def test_a_number_of_labels_that_is_none(home):
    change(home, num_labels="three")
    assert "num_labels = 'three'" in refusal(home)
    change(home, num_labels=7)
    assert "do not match the config" in refusal(home)


def test_a_config_without_its_family(home, tmp_path, capsys):
    wanted = load(home).state_dict()
    change(home, model_type=None)
    said = refusal(home)
    assert "`model_type` is missing" in said
    assert "--family" in said
    assert "bert, roberta" in said
    for name, x in saccade.load(home, family="bert").state_dict().items():
        assert torch.equal(x, wanted[name])
    assert main(["import", str(home), str(tmp_path / "run"), "--family", "bert"]) == 0
    assert load(tmp_path / "run").labels == ("a", "b", "c")
    assert main(["import", str(home), str(tmp_path / "other"), "--family", "burt"]) == 4
    assert "Unknown family 'burt'" in capsys.readouterr().err


def test_a_family_that_contradicts_the_config(home):
    with pytest.raises(ValueError, match="model_type is 'bert', but family is 'roberta'"):
        load(home, family="roberta")


@pytest.mark.parametrize("name", ["mpnet", "gpt_neo", "whisper"])
def test_no_guess_at_an_unknown_model_type(home, name):
    change(home, model_type=name)
    said = refusal(home)
    assert f"model_type = {name!r} is not a supported family" in said
    assert "mean" not in said.lower()
    assert "nearest" not in said.lower()
    assert "senet" not in said  # has no published form
    assert "gpt2" in said


@pytest.mark.parametrize("variant", ["fp16", "bf16"])
def test_weights_under_the_name_of_a_variant(home, variant):
    wanted = load(home).state_dict()
    (home / "model.safetensors").rename(home / f"model.{variant}.safetensors")
    for name, x in load(home).state_dict().items():
        assert torch.equal(x, wanted[name])
    index = {"weight_map": dict.fromkeys(torch_names(home, variant), f"model.{variant}-00001-of-00001.safetensors")}
    (home / f"model.{variant}.safetensors").rename(home / f"model.{variant}-00001-of-00001.safetensors")
    (home / f"model.safetensors.index.{variant}.json").write_text(json.dumps(index))
    for name, x in load(home).state_dict().items():
        assert torch.equal(x, wanted[name])


def torch_names(home, variant):
    from safetensors.torch import load_file

    return list(load_file(home / f"model.{variant}.safetensors"))


def test_of_several_variants_none_is_guessed(home):
    shutil.copy(home / "model.safetensors", home / "model.fp16.safetensors")
    load(home)  # the plain file is there
    (home / "model.safetensors").rename(home / "model.fp32.safetensors")
    said = refusal(home)
    assert "model.fp16.safetensors, model.fp32.safetensors" in said
    assert "keep one" in said


def test_pickled_variants_are_not_mixed(home, tmp_path):
    from safetensors.torch import load_file

    from saccade.models.io.convert_pickle import convert_pickles

    tensors = load_file(home / "model.safetensors")
    (home / "model.safetensors").unlink()
    torch.save(tensors, home / "pytorch_model.bin")
    torch.save({name: x.half() for name, x in tensors.items()}, home / "pytorch_model.fp16.bin")
    with convert_pickles(home) as clean:
        assert {x.dtype for x in load_file(clean / "model.safetensors").values()} == {torch.float32}


def test_the_error_of_a_conversion_names_the_directory_itself(home, tmp_path, capsys):
    from safetensors.torch import load_file

    torch.save(load_file(home / "model.safetensors"), home / "pytorch_model.bin")
    (home / "model.safetensors").unlink()
    change(home, num_labels=50)
    assert main(["import", "--convert-pickle", str(home), str(tmp_path / "run")]) == 4
    said = capsys.readouterr().err
    assert f"{home}: the weights do not match the config" in said
    assert "saccade-convert" not in said


def gguf(home):
    (home / "model.safetensors").unlink()
    (home / "config.json").unlink()
    (home / "tiny-q4.gguf").write_bytes(b"GGUF\3\0\0\0")
    return ("GGUF", "llama.cpp", "gguf_file='tiny-q4.gguf'")


def onnx(home):
    (home / "model.safetensors").unlink()
    (home / "onnx").mkdir()
    (home / "onnx" / "model.onnx").write_bytes(b"\x08\x08")
    return ("ONNX", "exported from")


def lora(home):
    (home / "model.safetensors").unlink()
    (home / "config.json").unlink()
    said = {"peft_type": "LORA", "base_model_name_or_path": "meta/llama", "task_type": "CAUSAL_LM"}
    (home / "adapter_config.json").write_text(json.dumps(said))
    (home / "adapter_model.safetensors").write_bytes(b"")
    return ("LoRA adapter for 'meta/llama'", "AutoPeftModelForCausalLM", "merge_and_unload")


def ctranslate2(home):
    (home / "model.safetensors").unlink()
    (home / "config.json").write_text(json.dumps({"bos_token": "<s>", "layer_norm_epsilon": None}))
    (home / "model.bin").write_bytes(b"\6\0\0\0\x10\0TransformerSpec")
    (home / "shared_vocabulary.json").write_text("[]")
    return ("CTranslate2", "converted from")


def tensorflow(home):
    (home / "model.safetensors").unlink()
    (home / "tf_model.h5").write_bytes(b"\x89HDF")
    return ("TensorFlow", "from_tf=True")


def quantized(home):
    change(home, quantization_config={"quant_method": "gptq", "bits": 4})
    return ("quantized weights ('gptq')", "dequantize")


@pytest.mark.parametrize("make", [gguf, onnx, lora, ctranslate2, tensorflow, quantized], ids=lambda make: make.__name__)
def test_other_formats_are_called_by_name(home, make, tmp_path, capsys):
    words = make(home)
    for said in (refusal(home), _imported(home, tmp_path, capsys)):
        for word in words:
            assert word in said
        assert str(home) in said


@pytest.mark.parametrize(
    ("name", "content", "word"),
    [("a.gguf", b"GGUF\3\0\0\0", "GGUF"), ("b.onnx", b"\x08\x08", "ONNX"), ("c.tflite", b"\0\0\0\0TFL3", "Lite")],
)
def test_single_files_too(name, content, word, tmp_path, capsys):
    (tmp_path / name).write_bytes(content * 9)
    assert word in refusal(tmp_path / name)
    assert word in _imported(tmp_path / name, tmp_path, capsys)


def _imported(where, tmp_path, capsys):
    """What the command line says of a source that it refuses."""
    assert main(["import", str(where), str(tmp_path / "run")]) == 4
    assert not (tmp_path / "run").exists()
    return capsys.readouterr().err


def test_every_size_of_a_family_has_a_limit():
    """But token ids, and the counts of kernel_regression, which are those of its data."""
    sizes = {
        item.name
        for family in FAMILIES
        for item in fields(family.config_class)
        if item.type in (int, int | None) and family.name != "kernel_regression" and not item.name.endswith("_id")
    }
    assert sizes <= MAX_SIZES.keys()
    with pytest.raises(ValueError, match="block_size = 65537; a number from 1 to 65,536 is needed"):
        check_fields(bigbird.Config(block_size=65_537), "")
