"""Published sizes to the last parameter: names and shapes of the package's models, on the meta device, without a download."""

import re

import pytest
import torch
import transformers

from saccade.models import derived_families
from saccade.models.families import distilbert, electra, roberta, vit
from saccade.models.weight_map import to_ours, to_theirs

BASE = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
SMALL = {"hidden_size": 256, "num_hidden_layers": 12, "num_attention_heads": 4, "intermediate_size": 1024}
ROBERTA = BASE | {"vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
DISTILBERT = {"vocab_size": 30522, "dim": 768, "n_layers": 6, "n_heads": 12, "hidden_dim": 3072}
ELECTRA = SMALL | {"vocab_size": 30522, "embedding_size": 128, "max_position_embeddings": 512, "type_vocab_size": 2}
PAPER = ELECTRA | {"hidden_size": 64, "num_attention_heads": 1, "intermediate_size": 256}  # a quarter, as in the paper
VIT = BASE | {"image_size": 224, "patch_size": 16, "num_channels": 3, "layer_norm_eps": 1e-12}
# The counts follow from the sizes by hand: a layer has 4 (w² + w) + 2 · 2w + (wi + i) + (iw + w) parameters.
CASES = [
    ("roberta-base", roberta.FAMILY, ROBERTA, None, 2, 124_055_040),
    ("roberta-base words", roberta.FAMILY, ROBERTA, "lm", 2, 124_697_433),
    ("roberta-base labels", roberta.FAMILY, ROBERTA, "label", 2, 124_647_170),
    # (vocab + 514 + 1) · 768 for the words, positions and segments, 1,536 for their norm, and twelve layers of 7,087,872
    ("xlm-roberta-base", derived_families.XLM_ROBERTA, ROBERTA | {"vocab_size": 250002}, None, 2, 277_453_056),
    ("camembert-base", derived_families.CAMEMBERT, ROBERTA | {"vocab_size": 32005}, None, 2, 110_031_360),
    ("distilbert-base", distilbert.FAMILY, DISTILBERT, None, 2, 66_362_880),
    ("distilbert-base words", distilbert.FAMILY, DISTILBERT, "lm", 2, 66_985_530),
    ("electra-small-discriminator", electra.FAMILY, ELECTRA, "replaced_token_detection", 2, 13_549_057),
    ("electra-small-generator", electra.FAMILY, ELECTRA, "lm", 2, 13_546_682),
    ("electra-small, generator of the paper", electra.FAMILY, PAPER, "lm", 2, 4_620_026),
    ("vit-base-patch16-224", vit.FAMILY, VIT, None, 2, 85_798_656),
    ("vit-base-patch16-224 labels", vit.FAMILY, VIT, "label", 1000, 86_567_656),
]


@pytest.mark.parametrize(("family", "sizes", "head", "labels", "count"), [pytest.param(*c[1:], id=c[0]) for c in CASES])
def test_names_shapes_and_counts(family, sizes, head, labels, count):
    architecture = family.architecture if head is None else family.heads[head].architecture
    cls = getattr(transformers, architecture)
    with torch.device("meta"):
        published = cls(cls.config_class(**sizes, num_labels=labels))
        config = family.config_from_hf(published.config.to_dict())
        body = family.build(config)
        top = None if head is None else family.heads[head].build(config, body, labels)
    theirs = {name.removeprefix(family.prefix): p for name, p in published.named_parameters()}
    read = to_ours(theirs, family.weight_map(config))
    assert shapes(read.tensors) == shapes(dict(body.named_parameters()))
    left = [
        name
        for name in read.unmapped
        if not any(re.fullmatch(pattern, name) for pattern in (*family.ignored_tensors, *family.pooler_tensors))
    ]
    if top is not None:
        found = to_ours({name: theirs[name] for name in left}, family.heads[head].weight_map)
        own = {name: p for name, p in top.named_parameters() if all(p is not q for q in body.parameters())}
        assert shapes(found.tensors) == shapes(own)
        left = found.unmapped
    assert not left
    parts = body if top is None else torch.nn.ModuleList([body, top])
    pooler = sum(p.numel() for name, p in theirs.items() if name.startswith("pooler."))  # belongs to no head of these
    assert sum(p.numel() for p in parts.parameters()) == count
    assert sum(p.numel() for p in published.parameters()) - pooler == count


def shapes(tensors):
    return {name: tuple(x.shape) for name, x in tensors.items()}


def test_defaults_are_the_published_base_sizes():
    for family, sizes in ((roberta.FAMILY, ROBERTA), (distilbert.FAMILY, DISTILBERT), (vit.FAMILY, VIT)):
        assert family.config_from_hf(sizes) == family.config_class()
    assert electra.FAMILY.config_from_hf(ELECTRA) == electra.Config()


def test_every_parameter_goes_back_under_its_published_name():
    with torch.device("meta"):
        for family in (roberta.FAMILY, distilbert.FAMILY, electra.FAMILY, vit.FAMILY):
            config = family.config_class()
            ours = dict(family.build(config).named_parameters())
            back = to_theirs(ours, family.weight_map(config))
            assert shapes(to_ours(back, family.weight_map(config)).tensors) == shapes(ours)
