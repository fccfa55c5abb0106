"""Heads of published classes that are not supported, or that config.json does not name: reported, and kept on demand."""

import json

import pytest
import torch
import transformers
from torch.testing import assert_close

from saccade.cli import main
from saccade.data import Batch, Text
from saccade.models.load import load

READS = {"vocab_size": 53, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 17}
READS |= {"max_position_embeddings": 19}
GPT2 = {"vocab_size": 53, "n_embd": 12, "n_layer": 2, "n_head": 3, "n_positions": 19, "pad_token_id": 0}
PAIRED = {"vocab_size": 53, "d_model": 12, "max_position_embeddings": 19, "pad_token_id": 1, "eos_token_id": 2}
PAIRED |= {f"{side}_{what}": n for side in ("encoder", "decoder") for what, n in (("layers", 2), ("ffn_dim", 17))}
PAIRED |= {"encoder_attention_heads": 3, "decoder_attention_heads": 3, "decoder_start_token_id": 2}
LLAMA = READS | {"num_attention_heads": 6, "num_key_value_heads": 2, "pad_token_id": 0}
CASES = [
    ("BartForSequenceClassification", PAIRED, None, "classification_head.dense.weight"),
    ("BartForQuestionAnswering", PAIRED, None, "qa_outputs.weight"),
    ("GPT2ForSequenceClassification", GPT2, None, "score.weight"),
    ("GPT2ForTokenClassification", GPT2, None, "classifier.weight"),
    ("GPT2DoubleHeadsModel", GPT2, None, "multiple_choice_head.summary.weight"),
    ("LlamaForSequenceClassification", LLAMA | {"tie_word_embeddings": True}, None, "score.weight"),
    ("BertForMultipleChoice", READS, None, "classifier.weight"),
    ("BertForNextSentencePrediction", READS, None, "cls.seq_relationship.weight"),
    ("BertForPreTraining", READS, "lm", "cls.seq_relationship.weight"),
    ("BigBirdForPreTraining", READS | {"block_size": 2}, "lm", "cls.seq_relationship.weight"),
    ("RobertaForMultipleChoice", READS, None, "classifier.weight"),
    ("ElectraForMultipleChoice", READS, None, "classifier.weight"),
]


def saved(name, home, sizes, **options):
    """A small model of theirs, none of whose weights is what a new one would have."""
    cls = getattr(transformers, name)
    torch.manual_seed(1)
    theirs = cls(cls.config_class(**sizes, **options)).eval()
    for p in theirs.parameters():
        torch.nn.init.normal_(p, std=0.3)
    theirs.save_pretrained(home)
    return theirs


def rename(home, **change):
    path = home / "config.json"
    raw = json.loads(path.read_text()) | change
    path.write_text(json.dumps({key: value for key, value in raw.items() if value is not None}))


@pytest.mark.parametrize(("name", "sizes", "head", "tensor"), CASES, ids=[case[0] for case in CASES])
def test_a_head_that_is_not_built_is_named(name, sizes, head, tensor, tmp_path):
    saved(name, tmp_path, sizes)
    model = load(tmp_path)
    assert model.head_name == head
    assert tensor in model.report.unexpected
    said = next(line for line in str(model.report).splitlines() if line.startswith("dropped"))
    if head is None:
        assert tensor.rpartition(".")[0] in said
        assert name in said
        assert "does not support" in said
    else:
        assert "not part of the head named in config.json (lm)" in said


def test_the_word_head_of_pretraining_is_kept(tmp_path):
    theirs = saved("BertForPreTraining", tmp_path, READS)
    tokens = torch.randint(5, 53, (2, 7), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        wanted = theirs(tokens).prediction_logits
        assert_close(load(tmp_path)(Batch(Text(tokens))), wanted, rtol=1e-4, atol=1e-4)


def test_a_pooler_that_no_head_reads_is_named(tmp_path):
    """The published masked models of BERT have one beside the head for words, which does not read it."""
    from safetensors.torch import load_file, save_file

    saved("BertForMaskedLM", tmp_path, READS)
    path = tmp_path / "model.safetensors"
    save_file(load_file(path) | {"bert.pooler.dense.weight": torch.ones(12, 12)}, path, {"format": "pt"})
    model = load(tmp_path)
    assert model.report.unexpected == ["bert.pooler.dense.weight"]
    assert load(tmp_path, head="body").report.unexpected.count("bert.pooler.dense.weight") == 0  # kept for the way out


@pytest.mark.parametrize("classes", [None, ["BertModel"]], ids=str)
def test_import_keeps_a_head_that_the_config_does_not_name(classes, tmp_path, capsys):
    theirs = saved("BertForSequenceClassification", tmp_path / "theirs", READS, num_labels=5)
    rename(tmp_path / "theirs", architectures=classes, id2label=None, label2id=None, num_labels=None)
    bare = load(tmp_path / "theirs")
    assert bare.head_name is None
    assert 'load it with head="label" (saccade import --head label)' in str(bare.report)
    assert main(["import", str(tmp_path / "theirs"), str(tmp_path / "run"), "--head", "label"]) == 0
    capsys.readouterr()
    ours = load(tmp_path / "run")
    assert (ours.head_name, len(ours.labels)) == ("label", 5)
    tokens = torch.randint(5, 53, (2, 7), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        assert_close(ours(Batch(Text(tokens))), theirs(tokens).logits, rtol=1e-4, atol=1e-4)


def test_import_refuses_a_head_that_is_not_there(tmp_path, capsys):
    saved("BertForTokenClassification", tmp_path / "theirs", READS)
    assert main(["import", str(tmp_path / "theirs"), str(tmp_path / "run"), "--head", "span"]) == 4
    said = capsys.readouterr().err
    assert "tensors of the head 'span' are missing" in said
    assert "a head for label or tag" in said
    assert not (tmp_path / "run").exists()
    assert main(["import", str(tmp_path / "theirs"), str(tmp_path / "run"), "--head", "body"]) == 0
    assert load(tmp_path / "run").head_name is None


def test_import_of_a_single_file_has_no_head(tmp_path, capsys):
    (tmp_path / "x.bin").write_bytes(b"0" * 64)
    assert main(["import", str(tmp_path / "x.bin"), str(tmp_path / "run"), "--head", "label"]) == 2
    assert "--head and --family are for directories" in capsys.readouterr().err
