"""Metrics against scikit-learn, seqeval, sacrebleu, brute force and numbers worked by hand."""

import math
import subprocess
import sys
import time
import warnings

import numpy as np
import pytest
import sacrebleu
import sklearn.metrics as reference
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from saccade import metrics
from saccade.metrics import IndicatorTable, Score, bootstrap, resample_indices

FEW = {"bootstrap_samples": 2}  # where the interval is not what is tested
LABELS = st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("abcd")), min_size=1, max_size=30)
SETS = st.sets(st.sampled_from("abcd"))


def words(generator, count, length=9):
    """Texts of few words, so that runs of words are shared by chance."""
    return [" ".join(generator.choice(["the", "dog", "ran", "off", "and", "sat"], size=length)) for _ in range(count)]


def spoilt(generator, texts):
    """The texts, with some words changed."""
    return [" ".join(w if generator.random() < 0.8 else "cat" for w in text.split()) for text in texts]


# labels


@given(LABELS)
@settings(deadline=None, max_examples=40)
def test_labels_as_scikit_learn_counts_them(pairs):
    gold, said = map(list, zip(*pairs, strict=True))
    assert metrics.accuracy(gold, said, **FEW).value == pytest.approx(reference.accuracy_score(gold, said))
    for name, found in (("macro", metrics.macro_f1), ("micro", metrics.micro_f1)):
        wanted = reference.f1_score(gold, said, average=name, zero_division=0.0)
        assert found(gold, said, **FEW).value == pytest.approx(wanted)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of a single label
        assert metrics.mcc(gold, said, **FEW).value == pytest.approx(reference.matthews_corrcoef(gold, said))
        wanted = reference.confusion_matrix(gold, said)
    found = metrics.confusion_matrix(gold, said)
    assert found.counts.tolist() == wanted.tolist()
    assert list(found.labels) == sorted({*gold, *said})


@given(st.lists(st.tuples(SETS, SETS), min_size=1, max_size=12))
@settings(deadline=None)
def test_several_labels_as_scikit_learn_counts_them(pairs):
    gold, said = map(list, zip(*pairs, strict=True))
    used = sorted(set().union(*gold, *said))
    table = lambda sets: np.array([[int(label in labels) for label in used] for labels in sets])
    micro, macro, exact = metrics.multi_label_scores(gold, said, **FEW)
    assert exact.value == pytest.approx(np.mean([a == b for a, b in pairs]))
    if len(used) > 1:  # a single column would be read as one label of two
        for name, found in (("micro", micro), ("macro", macro)):
            wanted = reference.f1_score(table(gold), table(said), average=name, zero_division=0.0)
            assert found.value == pytest.approx(wanted)
    elif not used:
        assert micro.value == macro.value == 0
    assert [score.name for score in (micro, macro, exact)] == ["micro_f1", "macro_f1", "exact_match"]


def test_matthews_by_hand():
    gold, said = [1] * 8 + [0] * 4, [1] * 6 + [0] * 2 + [1] + [0] * 3  # 6 true, 1 false; 3 true, 2 false
    assert metrics.mcc(gold, said, **FEW).value == pytest.approx((6 * 3 - 1 * 2) / math.sqrt(7 * 8 * 4 * 5))
    assert metrics.mcc([1, 2, 3], [1, 2, 3], **FEW).value == pytest.approx(1)
    assert metrics.mcc([1, 0, 1, 0], [0, 1, 0, 1], **FEW).value == pytest.approx(-1)
    assert metrics.mcc([1, 0, 1], [1, 1, 1], **FEW).value == 0


def test_labels_of_mixed_kinds_have_an_order_too():
    assert metrics.confusion_matrix([1, "a"], ["a", "a"]).counts.sum() == 2
    assert metrics.macro_f1([None, "a"], [None, "a"], **FEW).value == 1


# spans


def conlleval(gold, said):
    """(right, gold, said) of each kind, one token after the other by the script's own tables for B, I and O."""
    right, there, found = {}, {}, {}
    add = lambda counts, kind: counts.__setitem__(kind, counts.get(kind, 0) + 1)

    def ends(before, now, kind_before, kind):
        return (before, now) in [("B", "B"), ("B", "O"), ("I", "B"), ("I", "O")] or (
            before != "O" and kind_before != kind
        )

    def starts(before, now, kind_before, kind):
        return (before, now) in [("B", "B"), ("I", "B"), ("O", "B"), ("O", "I")] or (now != "O" and kind_before != kind)

    cut = lambda tag: [*tag.split("-", 1), ""][:2]
    going = False
    old_gold = old_said = ("O", "")
    for tag_gold, tag_said in [
        pair for g, s in zip(gold, said, strict=True) for pair in [*zip(g, s, strict=True), ("O", "O")]
    ]:
        new_gold, new_said = cut(tag_gold), cut(tag_said)
        turns = lambda rule, new, old: rule(old[0], new[0], old[1], new[1])
        end_gold, end_said = turns(ends, new_gold, old_gold), turns(ends, new_said, old_said)
        if going and end_gold and end_said and old_gold[1] == old_said[1]:
            going = False
            add(right, old_gold[1])
        elif going and (end_gold != end_said or new_gold[1] != new_said[1]):
            going = False
        start_gold, start_said = turns(starts, new_gold, old_gold), turns(starts, new_said, old_said)
        if start_gold and start_said and new_gold[1] == new_said[1]:
            going = True
        if start_gold:
            add(there, new_gold[1])
        if start_said:
            add(found, new_said[1])
        old_gold, old_said = new_gold, new_said
    return {kind: (right.get(kind, 0), there.get(kind, 0), found.get(kind, 0)) for kind in {*there, *found}}


def brute(tags):
    """Every stretch of words, kept if it is a span: one kind, broken nowhere inside, and unable to grow."""
    kind = lambda i: tags[i].partition("-")[2] if 0 <= i < len(tags) and tags[i] != "O" else None
    breaks = lambda i: kind(i - 1) != kind(i) or tags[i][0] == "B"  # between word i - 1 and word i
    whole = lambda a, b: kind(a) is not None and not any(breaks(i) for i in range(a + 1, b))
    return {
        (a, b, kind(a))
        for a in range(len(tags))
        for b in range(a + 1, len(tags) + 1)
        if whole(a, b) and (a == 0 or breaks(a)) and (b == len(tags) or breaks(b))
    }


TAGS = st.sampled_from(["O", "B-PER", "I-PER", "B-LOC", "I-LOC"])
SENTENCES = st.lists(st.lists(st.tuples(TAGS, TAGS), max_size=9), min_size=1, max_size=5)


@given(SENTENCES)
@settings(deadline=None, max_examples=300)
def test_spans_are_those_of_conlleval_and_of_brute_force(sentences):
    gold, said = [[[pair[i] for pair in sentence] for sentence in sentences] for i in (0, 1)]
    for tags in gold + said:
        assert set(metrics.extract_spans(tags)) == brute(tags)
    counts = metrics.count_spans(gold, said)
    assert {kind: (c.correct, c.gold, c.predicted) for kind, c in counts.items()} == conlleval(gold, said)
    right, there, found = (sum(getattr(c, name) for c in counts.values()) for name in ("correct", "gold", "predicted"))
    wanted = 2 * right / (there + found) if there + found else 0
    assert metrics.span_f1(gold, said, **FEW).value == pytest.approx(wanted)


@given(SENTENCES)
@settings(deadline=None, max_examples=50)
def test_span_f1_equals_seqeval(sentences):
    from seqeval.metrics import f1_score

    gold, said = [[[pair[i] for pair in sentence] for sentence in sentences] for i in (0, 1)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = f1_score(gold, said, zero_division=0)
    assert metrics.span_f1(gold, said, **FEW).value == pytest.approx(wanted)


@given(st.lists(st.sampled_from(["O", "B-PER", "I-PER", "E-PER", "S-PER", "B-LOC", "E-LOC", "S-LOC"]), max_size=9))
@settings(deadline=None)
def test_ends_and_singles_as_seqeval_reads_them(tags):
    from seqeval.metrics.sequence_labeling import get_entities

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = [(start, end + 1, kind) for kind, start, end in get_entities(tags)]
    assert [tuple(span) for span in metrics.extract_spans(tags)] == wanted


def test_span_counts_by_hand():
    gold = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "B-LOC", "B-LOC"]]
    said = [["I-PER", "I-PER", "O", "B-PER"], ["O", "B-LOC", "I-LOC"]]  # an I- that begins; a wrong kind; two as one
    counts = metrics.count_spans(gold, said)
    assert counts == {"PER": metrics.SpanCounts(1, 1, 2), "LOC": metrics.SpanCounts(0, 3, 1)}
    assert (counts["PER"].precision, counts["PER"].recall) == (0.5, 1.0)
    assert counts["PER"].f1 == pytest.approx(2 / 3)
    assert counts["LOC"].precision == counts["LOC"].recall == counts["LOC"].f1 == 0
    assert metrics.span_f1(gold, said).value == pytest.approx(2 / 7)


# texts


def test_bleu_and_chrf_are_sacrebleus_own():
    generator = np.random.default_rng(1)
    gold = words(generator, 40)
    said, other = spoilt(generator, gold), spoilt(generator, gold)
    found = metrics.bleu(gold, said)
    assert found.value == pytest.approx(sacrebleu.corpus_bleu(said, [gold]).score)
    metric = BLEU()
    metric.corpus_score(said, [gold])
    assert found.signature == metric.get_signature().format()
    assert "tok:13a" in found.signature
    assert metrics.chrf(gold, said).value == pytest.approx(sacrebleu.corpus_chrf(said, [gold]).score)
    assert metrics.chrf(gold, said, word_order=2).value == pytest.approx(
        CHRF(word_order=2).corpus_score(said, [gold]).score
    )
    pairs = [[a, b] for a, b in zip(gold, other, strict=True)]
    for name in (metrics.bleu, metrics.chrf):
        reference_score = {metrics.bleu: sacrebleu.corpus_bleu, metrics.chrf: sacrebleu.corpus_chrf}[name]
        assert name(pairs, said).value == pytest.approx(reference_score(said, [gold, other]).score)
        uneven = [[a] if i % 2 else [a, b] for i, (a, b) in enumerate(pairs)]
        streams = [gold, [b if i % 2 == 0 else None for i, (_, b) in enumerate(pairs)]]
        assert name(uneven, said).value == pytest.approx(reference_score(said, streams).score)
    assert "nrefs:var" in metrics.bleu(uneven, said).signature
    assert metrics.bleu(gold, gold).value == pytest.approx(100)
    assert metrics.bleu(["狗在跑"], ["狗在跑"], tokenizer="zh").signature.count("tok:zh") == 1


@pytest.mark.parametrize(
    ("right", "said", "tokenizer"),
    [
        ("一九九七年五月十一日", "一九九七年五月十二日", "zh"),
        ("1997年5月11日", "1997年5月12日", "zh"),
        ("光阴似箭，日月如梭。", "光阴似箭，岁月如梭。", "zh"),
        ("เวลาบินไปเหมือนลูกศร", "เวลาบินไปเหมือนลูกธนู", "char"),
        ("時は矢のように飛ぶ。", "時は矢のように過ぎる。", "char"),
        ("시간은 화살처럼 빨리 지나간다", "시간은 화살처럼 너무 빨리 지나간다", "13a"),
        ("He lives in Tokyo (東京), far away.", "He lives in Tokyo (東京), far off.", "13a"),
    ],
)
def test_bleu_splits_words_by_the_script_of_the_right_texts(right, said, tokenizer, monkeypatch):
    monkeypatch.setattr("saccade.metrics.texts.find_spec", lambda name: None)  # whether or not MeCab is there
    found = metrics.bleu([right], [said])
    assert found.value == pytest.approx(sacrebleu.corpus_bleu([said], [[right]], tokenize=tokenizer).score)
    assert f"tok:{tokenizer}" in found.signature
    assert 10 < found.value < 95  # one character is wrong, not all of them


def test_a_bleu_tokenizer_that_is_not_there_is_refused_by_name(monkeypatch):
    with pytest.raises(ValueError, match=r"no BLEU tokenizer 'han'; known are auto, 13a, intl, zh, ja-mecab"):
        metrics.bleu(["a"], ["a"], tokenizer="han")
    monkeypatch.setattr("saccade.metrics.texts.find_spec", lambda name: None)
    with pytest.raises(
        ValueError, match=r"needs the packages MeCab and ipadic; install them with pip install sacrebleu\[ja\]"
    ):
        metrics.bleu(["a"], ["a"], tokenizer="ja-mecab")
    monkeypatch.setattr("saccade.metrics.texts.find_spec", lambda name: object())
    assert metrics.bleu_tokenizer(["時は飛ぶ"]) == "ja-mecab"


def test_words_of_scripts_without_spaces_are_characters_in_every_metric():
    """A sentence that counted as one word would score 0 for one wrong character, and 1 for none."""
    gold, said = ["一只红色的船在水上。"], ["一只蓝色的船在水上。"]
    assert 0.7 < metrics.rouge(gold, said, tokenizer=metrics.rouge_tokenizer(gold)).value < 1
    assert 0.1 < metrics.cider([*gold, "两条狗"], [*said, "两条狗"]).value / 10 < 1
    assert 0.7 < metrics.squad([gold], said)[0].value < 1


def test_bleu_by_hand():
    # five of six words, three of five pairs, one of four triples, and no run of four, which counts half of one in three
    found = metrics.bleu(["a b c d e f"], ["a b c x e f"]).value
    assert found == pytest.approx(100 * (5 / 6 * 3 / 5 * 1 / 4 * 0.5 / 3) ** 0.25)


def test_bleu_interval_is_about_sacrebleus():
    generator = np.random.default_rng(2)
    gold = words(generator, 300)
    said = spoilt(generator, gold)
    found = metrics.bleu(gold, said)
    theirs = BLEU().corpus_score(said, [gold], n_bootstrap=1000)
    assert found.low < found.value < found.high
    assert (found.high - found.low) / 2 == pytest.approx(theirs._ci, rel=0.15)


def test_exact_match_takes_any_of_several_and_a_way_to_compare():
    gold, said = [["The cat", "dog"], "a b", "x"], ["cat!", "a  b\n", "y"]
    assert metrics.exact_match(gold, said).value == pytest.approx(1 / 3)
    assert metrics.exact_match(gold, said, normalize=metrics.normalize_answer).value == pytest.approx(2 / 3)


# numbers


def test_surprise_by_hand():
    nats, tokens = [3 * math.log(2), math.log(4)], [3, 5]
    assert metrics.perplexity(nats, tokens).value == pytest.approx(2 ** (5 / 8))
    assert metrics.bits_per_byte(nats, [4, 6]).value == pytest.approx(0.5)
    assert metrics.perplexity(nats, tokens).better == metrics.bits_per_byte(nats, tokens).better == "lower"
    assert math.isfinite(metrics.perplexity([1e9], [1]).value)


@given(st.lists(st.tuples(st.floats(-9, 9), st.floats(-9, 9)), min_size=2, max_size=20))
@settings(deadline=None)
def test_regression_as_scikit_learn_has_it(pairs):
    gold, said = map(list, zip(*pairs, strict=True))
    assert metrics.mse(gold, said, **FEW).value == pytest.approx(reference.mean_squared_error(gold, said))
    found = metrics.r2(gold, said, **FEW).value
    if np.var(gold) > 1e-6:
        assert found == pytest.approx(reference.r2_score(gold, said), rel=1e-6, abs=1e-9)
    elif len(set(gold)) == 1 and max(abs(a - b) for a, b in pairs) > 1e-100:  # smaller ones vanish when squared
        assert found == 0  # by the rule that scikit-learn states; its own value is the rounding of the mean, up to 1e31
    elif gold == said:
        assert found == 1


def test_regression_of_several_numbers():
    generator = np.random.default_rng(3)
    gold, said = generator.normal(size=(2, 11, 3)) + 100
    assert metrics.mse(gold, said).value == pytest.approx(reference.mean_squared_error(gold, said))
    assert metrics.r2(gold, said).value == pytest.approx(reference.r2_score(gold, said))
    assert metrics.r2([2.845254353014467] * 3, [0.0] * 3).value == 0
    assert metrics.r2([2.845254353014467] * 3, [2.845254353014467] * 3).value == 1


# intervals


def slow(metric, examples, rounds=40, seed=5):
    """The metric anew on each draw, from the raw examples."""
    draws = np.concatenate(list(resample_indices(len(examples[0]), rounds, seed)))
    assert draws.shape == (rounds, len(examples[0]))
    values = [metric(*([column[i] for i in draw] for column in examples)) for draw in draws]
    return np.quantile(values, [0.025, 0.975])


def cases():
    generator = np.random.default_rng(4)
    gold, said = generator.choice(list("abc"), size=(2, 23)).tolist()
    tags = generator.choice(["O", "B-X", "I-X", "B-Y"], size=(2, 17, 5)).tolist()
    texts = words(generator, 17)
    return [
        ("accuracy", (gold, said)),
        ("macro_f1", (gold, said)),
        ("micro_f1", ([set(x) for x in gold], [{x, "a"} for x in said])),
        ("mcc", (gold, said)),
        ("span_f1", tuple(tags)),
        ("bleu", (texts, spoilt(generator, texts))),
        ("chrf", (texts, spoilt(generator, texts))),
        ("exact_match", (gold, said)),
        ("perplexity", (generator.random(19).tolist(), generator.integers(1, 9, 19).tolist())),
        ("bits_per_byte", (generator.random(19).tolist(), generator.integers(1, 9, 19).tolist())),
        ("mse", tuple(generator.normal(size=(2, 19)).tolist())),
        ("r2", tuple(generator.normal(size=(2, 19)).tolist())),
    ]


@pytest.mark.parametrize(("name", "examples"), cases())
def test_intervals_equal_a_plain_loop_over_the_same_draws(name, examples):
    metric = getattr(metrics, name)
    found = metric(*examples, bootstrap_samples=40, seed=5)
    wanted = slow(lambda *drawn: metric(*drawn, bootstrap_samples=1).value, examples)
    assert (found.low, found.high) == pytest.approx(tuple(wanted))
    assert found.low < found.high
    assert (found.name, found.count) == (name, len(examples[0]))
    assert metric(*examples, bootstrap_samples=40, seed=5) == found
    assert metric(*examples, bootstrap_samples=40, seed=6) != found


def test_draws_do_not_depend_on_how_many_are_made_at_a_time(monkeypatch):
    whole = np.concatenate(list(resample_indices(13, 50, 2)))
    found = metrics.accuracy("abcabcabcabca", "abcabcabcaccc", bootstrap_samples=50, seed=2)
    monkeypatch.setattr("saccade.metrics.score.MAX_CELLS_AT_ONCE", 40)
    pieces = list(resample_indices(13, 50, 2))
    assert len(pieces) == 17
    assert np.array_equal(np.concatenate(pieces), whole)
    assert metrics.accuracy("abcabcabcabca", "abcabcabcaccc", bootstrap_samples=50, seed=2) == found


def test_a_tally_sums_as_its_table_does():
    generator = np.random.default_rng(6)
    table = (generator.random((11, 5)) < 0.3).astype(float)
    tally = IndicatorTable(*np.nonzero(table), table.shape)
    first = lambda sums: sums[:, 0] - 2 * sums[:, 4]
    assert bootstrap(first, tally, bootstrap_samples=60) == bootstrap(first, table, bootstrap_samples=60)


def test_the_interval_covers_the_truth_nineteen_times_in_twenty():
    generator, truth = np.random.default_rng(8), 0.7
    hits = 0
    for seed in range(300):
        right = (generator.random(200) < truth).astype(int).tolist()
        score = metrics.accuracy([1] * 200, right, bootstrap_samples=300, seed=seed)
        hits += score.low <= truth <= score.high
    assert 0.90 < hits / 300 < 0.98  # four standard errors around 0.94, what the percentiles reach at this size


def test_a_thousand_draws_of_two_thousand_examples_take_less_than_a_second():
    generator = np.random.default_rng(9)
    labels = generator.integers(50, size=(2, 2000)).tolist()
    tags = generator.choice(["O", "B-X", "I-X"], size=(2, 2000, 12)).tolist()
    texts = words(generator, 2000)
    said = spoilt(generator, texts)
    pairs = {"bleu": (texts, said), "chrf": (texts, said), "exact_match": (texts, said), "span_f1": tags}
    for name, _ in cases():
        examples = pairs.get(name, labels)
        metric = getattr(metrics, name)
        once, all_rounds = (min(_seconds(metric, examples, rounds) for _ in range(3)) for rounds in (1, 1000))
        assert all_rounds - once < 1, name  # the least of three: what else a machine does only adds


def _seconds(metric, examples, rounds):
    start = time.process_time()
    metric(*examples, bootstrap_samples=rounds)
    return time.process_time() - start


# what a person reads


def test_a_score_prints_its_interval():
    assert str(Score("accuracy", 0.8934, 0.8791, 0.9072, 1821)) == "accuracy 0.893 (0.879–0.907), 1,821 examples"
    assert str(Score("perplexity", 4321.5, 4000, 5000, 1)) == "perplexity 4,321.50 (4,000.00–5,000.00), 1 example"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: metrics.accuracy([], []), "accuracy of no examples"),
        (lambda: metrics.macro_f1([], []), "macro_f1 of no examples"),
        (lambda: metrics.span_f1([], []), "span_f1 of no examples"),
        (lambda: metrics.bleu([], []), "bleu of no examples"),
        (lambda: metrics.exact_match([], []), "exact_match of no examples"),
        (lambda: metrics.r2([], []), "r2 of no examples"),
        (lambda: metrics.perplexity([], []), "perplexity of no examples"),
        (lambda: metrics.perplexity([1.0], [0]), "perplexity of texts without tokens"),
        (lambda: metrics.accuracy([1, 2], [1]), "2 gold answers but 1 predictions"),
        (lambda: metrics.mcc([{1}, {2}], [1, 2]), r"one label per example, but gold has \{1\}"),
        (lambda: metrics.span_f1([["O"]], [["O", "O"]]), "Sentence 0 has 1 gold tags but 2 predicted tags"),
        (lambda: metrics.extract_spans(["NOUN"]), "'NOUN' is not O or B-, I-, E-, S-.*use accuracy"),
        (lambda: metrics.bleu([[]], ["a"]), "example 0 needs.*at least one reference"),
        (lambda: metrics.mse([1.0], [[1.0, 2.0]]), r"gold has the shape \(1,\) but the predictions \(1, 2\)"),
        (lambda: metrics.mse([1.0], [1.0], bootstrap_samples=0), "bootstrap_samples is 0"),
    ],
)
def test_what_cannot_be_scored_is_said(make, said):
    with pytest.raises(ValueError, match=said):
        make()


def test_metrics_need_no_torch():
    code = "import sys, saccade.metrics as m; m.accuracy([1], [1]); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
