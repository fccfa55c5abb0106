"""Alignments: a translator whose attention is planted gives the links that it was made from; rates are as the formula says."""

import json
import random
import re

import pytest
import torch

import saccade
from saccade.cli import main
from saccade.explain.axis import Axis, Token
from saccade.explain.maps import AttentionMap, AttentionMaps
from saccade.explain.plots import save_alignment_plot
from saccade.explain.word_alignment import (
    AlignmentHead,
    align_words,
    alignment_error_rate,
    choose_best_head,
    format_pharaoh,
    parse_pharaoh,
)
from saccade.models.build import new
from saccade.models.families.transformer import Config
from saccade.text import train_tokenizer

COUNT, SIDE = 9, 16  # words of a language, width of a head


@pytest.fixture(scope="module")
def translator():
    """One layer, two heads: the second attends from the previous target word to the source word with the same meaning."""
    words = [f"{language}{i}" for language in "ab" for i in range(COUNT)]
    tokenizer = train_tokenizer([" ".join(words)], "words", 40, token_template="t5")
    torch.manual_seed(3)
    config = Config(tokenizer.vocab, 2 * SIDE, layers=1, heads=2, ffn_width=8, position="none", dropout=0.0)
    model = new("transformer", config).eval()
    model.tokenizer = tokenizer
    body = model.body
    with torch.no_grad():
        table = body.words.vectors.weight
        table.copy_(torch.randn_like(table) * 0.01)
        for i in range(COUNT):
            for language in "ab":
                table[tokenizer.token_to_id(f"{language}{i}"), i] += 1.0
        for stack in (body.encoder, body.decoder):
            layer = stack.layers[0]
            for part in (layer.attention.branch.output, layer.feedforward.branch.down):
                torch.nn.init.zeros_(part.weight)
                torch.nn.init.zeros_(part.bias)
        across = body.decoder.layers[0].across.branch
        for part in (across.query, across.key):
            torch.nn.init.zeros_(part.weight)
            torch.nn.init.zeros_(part.bias)
            part.weight[SIDE:, :SIDE] = 2 * torch.eye(SIDE)
    return model


def sentences(count, seed=0):
    """Word by word, in another order: the source, the target and the links."""
    chance = random.Random(seed)
    for _ in range(count):
        meanings = chance.sample(range(COUNT), chance.randint(3, 7))
        order = chance.sample(range(len(meanings)), len(meanings))
        source = " ".join(f"a{m}" for m in meanings)
        target = " ".join(f"b{meanings[i]}" for i in order)
        yield source, target, format_pharaoh({(i, place) for place, i in enumerate(order)})


def test_the_best_head_on_some_sentences_aligns_others(translator):
    known, new_ones = list(sentences(6)), list(sentences(20, seed=1))
    where, rate = choose_best_head(translator, [(s, t) for s, t, _ in known], [links for *_, links in known])
    assert where == AlignmentHead(0, 1, is_shifted=True)
    assert rate < 0.05
    found = [align_words(saccade.look(translator, (s, t)), where) for s, t, _ in new_ones]
    assert alignment_error_rate([one.links for one in found], [parse_pharaoh(links) for *_, links in new_ones]) < 0.05
    source, target, links = new_ones[0]
    assert found[0].source == tuple(source.split())
    assert found[0].target == tuple(target.split())
    assert found[0].to_pharaoh() == links


def test_a_uniform_head_aligns_by_chance(translator):
    """The first head is uniform, so all its links are to one word."""
    pairs = list(sentences(20, seed=1))
    found = [align_words(saccade.look(translator, (s, t)), AlignmentHead(0, 0)).links for s, t, _ in pairs]
    assert alignment_error_rate(found, [parse_pharaoh(links) for *_, links in pairs]) > 0.6


def test_the_rate_is_that_of_the_formula_counted_link_by_link():
    chance = random.Random(2)
    every = [(i, j) for i in range(4) for j in range(5)]
    draw = lambda k: [frozenset(chance.sample(every, k)) for _ in range(6)]
    found, sure, more = draw(5), draw(3), draw(4)
    possible = [s | m for s, m in zip(sure, more, strict=True)]
    in_sure = sum(link in s for a, s in zip(found, sure, strict=True) for link in a)
    in_possible = sum(link in p for a, p in zip(found, possible, strict=True) for link in a)
    assert alignment_error_rate(found, sure, possible) == pytest.approx(1 - (in_sure + in_possible) / (6 * 5 + 6 * 3))
    assert alignment_error_rate(found, sure, more) == alignment_error_rate(
        found, sure, possible
    )  # sure links are possible
    assert alignment_error_rate(sure, sure) == 0


def test_wrong_links_and_heads_are_refused_by_name(translator):
    with pytest.raises(ValueError, match=r"'1:2' is not a link.*0-2"):
        parse_pharaoh("0-0 1:2")
    looks = saccade.look(translator, ("a1 a2", "b2 b1"))
    with pytest.raises(ValueError, match=r"Head 7 does not exist; .* has the heads .0, 1."):
        align_words(looks, AlignmentHead(0, 7))
    with pytest.raises(ValueError, match=r"no cross-attention in layer 4; the layers are .0."):
        align_words(looks, AlignmentHead(4))
    with pytest.raises(ValueError, match="Got 1 sentence pairs and 0 alignments"):
        choose_best_head(translator, [("a1", "b1")], [])
    reader = new("transformer_encoder", Config(30, 8, layers=1, heads=2, ffn_width=8))
    reader.tokenizer = translator.tokenizer
    with pytest.raises(ValueError, match="words cannot be aligned"):
        align_words(saccade.look(reader, "a1 a2"))


def test_the_command_prints_the_links_and_draws_them(translator, tmp_path, capsys):
    run = str(translator.save(tmp_path / "run"))
    files = [tmp_path / "matrix.png", tmp_path / "page.html"]
    code = main(["look", run, "a1 a2 a3", "b3 b1", "--align", "--png", str(files[0]), "--html", str(files[1])])
    assert code == 0
    said = capsys.readouterr().out.splitlines()
    assert parse_pharaoh(said[-1])
    assert files[0].read_bytes()[:4] == b"\x89PNG"
    assert said[-1] in files[1].read_text(encoding="utf-8")


def test_characters_are_linked_where_a_script_has_no_spaces():
    """Time flies like an arrow, into Chinese; the Chinese side is split into characters and pieces, not one word."""
    source, target = "Time flies like an arrow", "光阴似箭，飞逝。"
    spans = [
        (0, 2),
        (2, 3),
        (3, 4),
        (3, 4),
        (4, 5),
        (5, 7),
        (7, 8),
    ]  # 箭 is made of two tokens, 光阴 and 飞逝 are pieces
    wrote = Axis("output", (*(Token(target[a:b], (a, b), 1) for a, b in spans), Token("</s>")))
    words = [(found.start(), found.end()) for found in re.finditer(r" ?\S+", source)]
    read = Axis("input", (*(Token(source[a:b], (a, b), 0) for a, b in words), Token("</s>")))
    names = [token.name for token in wrote.group_words([source, target])[0].tokens]
    assert names == ["光阴", "似", "箭", "，", "飞逝", "。", "</s>"]
    weights = torch.zeros(1, len(wrote), len(read))
    for row, column in enumerate([0, 2, 4, 4, 5, 1, 5, 5]):
        weights[0, row, column] = 1.0
    seen = AttentionMap("decoder.0", "cross", "decoder", 0, (0,), weights, wrote, read)
    found = align_words(AttentionMaps("toy", (seen,), (source, target), target, target), AlignmentHead(0, 0))
    assert found.target == ("光阴", "似", "箭", "，", "飞逝", "。")
    assert {(0, 0), (2, 1), (4, 2), (1, 4)} <= found.links


def test_an_empty_target_has_no_links(translator, tmp_path):
    found = align_words(saccade.look(translator, ("a1 a2", "")))
    assert (found.target, found.to_pharaoh()) == ((), "")
    with pytest.raises(ValueError, match="the source or the target has no words"):
        save_alignment_plot(found, tmp_path / "none.png")


def test_translate_prints_the_word_alignment(translator, tmp_path, capsys):
    run = str(translator.save(tmp_path / "run"))
    asked = ["translate", run, "a1 a2", "--engine", "off", "--max-new-tokens", "5", "--bad-words", "a1"]
    assert main(asked) == 0
    plain = capsys.readouterr().out
    assert main([*asked, "--align"]) == 0
    text, _, links = capsys.readouterr().out.rstrip("\n").partition("\t")
    assert text == plain.rstrip("\n")
    assert len(parse_pharaoh(links)) == len(text.split())
    assert main([*asked, "--align", "--json", "--beams", "2"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["source_words"] == ["a1", "a2"]
    assert len(parse_pharaoh(said["alignment"])) == len(said["target_words"])
    assert main([*asked, "--align", "--beams", "2", "--n-best", "2"]) == 2
    assert "leave --n-best out" in capsys.readouterr().err


def known_alignments(path, count=6):
    rows = ["source\ttarget\talignment", *("\t".join(row) for row in sentences(count))]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return str(path)


def test_the_commands_find_the_best_head_on_known_alignments(translator, tmp_path, capsys):
    run, file = str(translator.save(tmp_path / "run")), known_alignments(tmp_path / "known.tsv")
    assert main(["look", run, "--gold-alignments", file, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"layer": 0, "head": 1, "is_shifted": True}
    assert main(["look", run, "--gold-alignments", file]) == 0
    assert "aligned by layer 0, head 1, shifted by one step; alignment error rate 0.0" in capsys.readouterr().out
    source, target, links = next(sentences(1, seed=5))
    assert main(["look", run, source, target, "--align", "--gold-alignments", file]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == links
    asked = ["translate", run, "a1 a2", "--engine", "off", "--max-new-tokens", "5", "--bad-words", "a1"]
    assert main([*asked, "--align", "--gold-alignments", file, "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["head"] == "layer 0, head 1, shifted by one step"
    assert f"6 sentences of {file}" in said.err


def test_a_file_without_alignments_finds_no_head(translator, tmp_path, capsys):
    run = str(translator.save(tmp_path / "run"))
    (tmp_path / "plain.tsv").write_text("source\ttarget\na1\tb1\n", encoding="utf-8")
    assert main(["look", run, "--gold-alignments", str(tmp_path / "plain.tsv")]) == 3
    assert "alignment" in capsys.readouterr().err
    assert main(["look", run, "a1", "--gold-alignments", known_alignments(tmp_path / "k.tsv"), "--head", "0"]) == 2
