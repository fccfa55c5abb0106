"""XLM-RoBERTa, CamemBERT and Mistral under their own names: ids, predictions and texts as `transformers` gives them."""

import json
from dataclasses import asdict

import pytest
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from torch.testing import assert_close

import saccade
from saccade.data import Batch, Text
from saccade.models.derived_families import MISTRAL
from saccade.models.load import load
from saccade.models.registry import FAMILIES

TEXTS = ["The bank of the river", "La banque a relevé ses taux.", "a b", "été 12", "unknown ☃ letters"]
READS = {"vocab_size": 80, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 17}
READS |= {"max_position_embeddings": 66, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
WRITES = READS | {"num_attention_heads": 6, "num_key_value_heads": 2, "sliding_window": None}
WRITES = {key: value for key, value in WRITES.items() if key not in ("type_vocab_size", "layer_norm_eps")}

SAME_BY_DEFAULT = {  # None here is what the package writes out: as many as heads or layers, or the width that is left
    "llama": {"kv_heads", "head_width"},
    "mistral": {"head_width"},
    "t5": {"decoder_layers"},
    "marian": {"target_vocab"},
}


def pieces(home):
    """A small tokenizer.json as XLM-RoBERTa's is made: unigram, spaces as ▁, <s> and </s> around a text."""
    built = Tokenizer(models.Unigram())
    built.normalizer = normalizers.NFKC()
    built.pre_tokenizer = pre_tokenizers.Metaspace()
    built.decoder = decoders.Metaspace()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trainer = trainers.UnigramTrainer(
        vocab_size=80, special_tokens=special, unk_token="<unk>", max_piece_length=4, show_progress=False
    )
    built.train_from_iterator(TEXTS[:4] * 5, trainer)
    built.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    home.mkdir(exist_ok=True)
    built.save(str(home / "tokenizer.json"))
    roles = {"bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>", "unk_token": "<unk>"}
    roles |= {"pad_token": "<pad>", "mask_token": "<mask>", "tokenizer_class": "XLMRobertaTokenizer"}
    (home / "tokenizer_config.json").write_text(json.dumps(roles))


def saved(name, home, **sizes):
    cls = getattr(transformers, name)
    torch.manual_seed(1)
    theirs = cls(cls.config_class(**sizes)).eval()
    for p in theirs.parameters():
        torch.nn.init.normal_(p, std=0.3)
    theirs.save_pretrained(home)
    return theirs


@pytest.mark.parametrize(
    ("name", "family"),
    [("XLMRobertaForSequenceClassification", "xlm_roberta"), ("CamembertForSequenceClassification", "camembert")],
)
def test_predictions_from_text_to_labels(name, family, tmp_path):
    """In from their directory, and out to one from which their classes read the same."""
    saved(name, tmp_path / "theirs", **READS, num_labels=4)
    pieces(tmp_path / "theirs")
    ours = load(tmp_path / "theirs")
    assert (ours.family.name, ours.head_name) == (family, "label")
    ours.save(tmp_path / "ours")
    assert json.loads((tmp_path / "ours" / "config.json").read_text())["model_type"] == family.replace("_", "-")
    for home in ("theirs", "ours"):
        model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / home)
        assert type(model).__name__ == name
        tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path / home)
        for text in TEXTS:
            ids = tokenizer(text)["input_ids"]
            assert ours.tokenizer.encode(text).ids == ids
            with torch.no_grad():
                wanted = model(torch.tensor([ids])).logits
                assert_close(ours(Batch(Text(torch.tensor([ids])))), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("window", [None, 4])
def test_a_mistral_writes_what_the_package_writes(tmp_path, window):
    theirs = saved("MistralForCausalLM", tmp_path / "theirs", **WRITES | {"sliding_window": window}, eos_token_id=79)
    ours = load(tmp_path / "theirs")
    assert ours.family is MISTRAL
    assert ours.config.sliding_window == window
    ours.save(tmp_path / "ours")
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours")
    assert type(again) is transformers.MistralForCausalLM
    prompt = torch.randint(0, 79, (1, 5), generator=torch.Generator().manual_seed(3))
    options = {"max_new_tokens": 12, "min_new_tokens": 12, "do_sample": False, "pad_token_id": 0}
    wanted = theirs.generate(prompt, attention_mask=torch.ones_like(prompt), **options)[0, 5:].tolist()
    back = again.generate(prompt, attention_mask=torch.ones_like(prompt), **options)[0, 5:].tolist()
    with torch.no_grad():
        state, text = ours.start(Batch(Text(prompt)))
        written = []
        for _ in range(12):
            scores = ours.step(text, state)[0, -1]
            scores[79] = -torch.inf  # the end, which the package was told not to write
            written.append(int(scores.argmax()))
            text = Text(torch.tensor([[written[-1]]]))
    assert written == wanted == back


def test_the_window_of_a_mistral_that_says_nothing():
    raw = {key: value for key, value in WRITES.items() if key != "sliding_window"}
    assert MISTRAL.config_from_hf(raw).sliding_window == 4096  # what the package means when nothing is said
    assert MISTRAL.config_from_hf(raw | {"sliding_window": None}).sliding_window is None


@pytest.mark.parametrize("family", [f for f in FAMILIES if f.weight_map is not None], ids=lambda family: family.name)
def test_what_a_config_leaves_unsaid_is_what_the_package_means(family):
    """Every published family: an empty config.json, and one that says everything the package takes for granted."""
    said = getattr(transformers, family.architecture).config_class().to_dict()
    short, whole = (asdict(family.config_from_hf(raw)) for raw in ({}, said))
    other = {name for name in short if short[name] != whole[name]}
    assert other <= SAME_BY_DEFAULT.get(family.name, set()), {name: (short[name], whole[name]) for name in other}


def test_a_sentencepiece_model_alone_is_not_misread(tmp_path):
    """Its ids are shifted by a class of the package; read as LLaMA's they would all be wrong."""
    saved("XLMRobertaModel", tmp_path, **READS)
    (tmp_path / "sentencepiece.bpe.model").write_bytes(b"anything")
    with pytest.raises(ValueError, match=r"sentencepiece\.bpe\.model: .*Create a tokenizer\.json"):
        saccade.load(tmp_path)
