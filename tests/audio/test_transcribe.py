"""Recognition of speech: what is decoded, when it is said, long recordings, and the loss of CTC and decoder together."""

import itertools

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from saccade.data import Audio, Batch, Example, Text
from saccade.data.samples import get_sample
from saccade.errors import DataError, UsageError
from saccade.models.build import new
from saccade.models.model import Model
from saccade.tasks.losses import seq2seq_loss
from saccade.tasks.predict import predict
from saccade.tasks.speech import transcribe
from saccade.tasks.speech.decode import CTCDecoder, make_answer, score_texts, time_words
from saccade.tasks.speech.shallow_fusion import LanguageModelScores
from saccade.tasks.speech.transcribe import Config, Transcribe, ctc_loss, cut_at_pauses
from saccade.text.train import train_tokenizer

TOKENIZER = train_tokenizer(["ab cd"], "characters", token_template="t5")
SIZES = {"vocab": TOKENIZER.vocab, "channels": 2, "width": 16, "dropout": 0.0, "layers": 1}
FAMILIES = ("speech_encoder", "listen_attend_spell", "speech_transformer")


def make_model(family: str) -> Model:
    torch.manual_seed(0)
    model = new(
        family, head="ctc", **SIZES | ({} if family == "listen_attend_spell" else {"heads": 2, "ffn_width": 16})
    )
    model.tokenizer = TOKENIZER
    return model.eval()


def sound(seconds: float, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 0.1, int(16_000 * seconds)).astype(np.float32)


def log_probs_of(path: str) -> np.ndarray:
    """Nearly certain about one character per vector; _ is the blank."""
    ids = [TOKENIZER.pad_id if c == "_" else TOKENIZER.encode(c, add_special_tokens=False).ids[0] for c in path]
    probabilities = np.full((len(ids), TOKENIZER.vocab), 0.001)
    probabilities[np.arange(len(ids)), ids] = 0.9
    return np.log(probabilities / probabilities.sum(1, keepdims=True))


def test_words_have_the_times_of_their_letters():
    """A vector is 40 ms; the first window of a long recording began 100 frames, one second, before."""
    ids = TOKENIZER.encode("ab cd", add_special_tokens=False).ids
    answer = make_answer(make_model("speech_encoder"), ids, log_probs_of("__aab__ _ccd__"), first_frame=100)
    assert answer["text"] == "ab cd"
    assert answer["words"] == [
        {"text": "ab", "start": 1.08, "end": 1.2},
        {"text": "cd", "start": 1.36, "end": 1.48},
    ]
    assert make_answer(make_model("speech_encoder"), [], log_probs_of("___")) == {"text": "", "words": []}


def test_a_text_that_does_not_fit_has_no_times():
    ids = TOKENIZER.encode("aaaa", add_special_tokens=False).ids
    assert make_answer(make_model("speech_encoder"), ids, log_probs_of("aa"))["words"] == []


def test_words_of_tokens_of_several_letters():
    class Pieces:
        def decode(self, tokens):
            return "".join(["he", "llo ", "you", " "][token] for token in tokens)

    times = [(0.0, 0.1), (0.1, 0.3), (0.5, 0.6), (0.7, 0.8)]
    assert [(w["text"], w["start"], w["end"]) for w in time_words(Pieces(), [0, 1, 2, 3], times)] == [
        ("hello", 0.0, 0.3),
        ("you", 0.5, 0.6),
    ]


@pytest.mark.parametrize(
    ("family", "decoding"),
    [("speech_encoder", "ctc"), *itertools.product(FAMILIES[1:], ("ctc", "attention", "rescoring"))],
)
def test_a_recording_is_answered_alike_alone_and_beside_others(family, decoding):
    model = make_model(family)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)  # so that something is said
    task = Transcribe(Config(decoding=decoding, beam_size=4))
    examples = [Example({"audio": sound(seconds, seed)}) for seed, seconds in enumerate((0.9, 0.4, 0.6))]
    together, _ = predict(task, model, examples)
    assert together == [predict(task, model, [example])[0][0] for example in examples]
    assert any(answer["text"] for answer in together)
    for answer, example in zip(together, examples, strict=True):
        prediction = task.to_prediction(answer, example)
        times = [time for word in prediction.words for time in (word.start, word.end)]
        assert times == sorted(times)
        assert str(prediction) == answer["text"]


@pytest.mark.parametrize("family", FAMILIES[1:])
def test_texts_are_scored_as_the_loss_of_each_alone(family):
    model = make_model(family).double()
    recording = Audio(torch.rand(1, 40, 80, dtype=torch.float64))
    texts = [TOKENIZER.encode(text, add_special_tokens=False).ids for text in ("ab", "a", "cd cd")]
    with torch.no_grad():
        alone = [-float(seq2seq_loss(model, Batch(recording, Text.pad([[*ids, TOKENIZER.eos_id]])))) for ids in texts]
        assert score_texts(model, recording, texts) == pytest.approx(alone, rel=1e-5)


@pytest.mark.parametrize("family", FAMILIES[1:])
@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_the_joint_loss_is_the_weighted_sum_of_both(family, weight):
    model = make_model(family)
    task = Transcribe(Config(ctc_weight=weight))
    examples = [Example({"audio": sound(0.5, n), "text": text}) for n, text in enumerate(("ab", "dc a"))]
    batch = task.batch(task.encode(examples, model))
    with torch.no_grad():
        ctc = ctc_loss(model(batch), model.output_keep(batch.source), batch, TOKENIZER.pad_id)
        expected = weight * ctc + (1 - weight) * seq2seq_loss(model, batch)
        assert_close(task.loss(model, batch), expected, rtol=1e-5, atol=1e-5)


def test_an_encoder_has_nothing_to_write_with():
    task = Transcribe(Config(decoding="attention"))
    with pytest.raises(UsageError, match="speech_encoder has no decoder; use task"):
        predict(task, make_model("speech_encoder"), [Example({"audio": sound(0.5)})])


def test_a_long_recording_is_read_in_windows_cut_where_it_is_quiet():
    model, task = make_model("speech_encoder"), Transcribe(Config(max_seconds=1.0))
    samples = sound(2.2)
    samples[int(0.78 * 16_000) : int(0.84 * 16_000)] *= 0.001
    items = task.encode([Example({"audio": samples}), Example({"audio": sound(0.5)})], model)
    starts = [item.gold for item in items]
    assert 78 <= starts[1] <= 84
    assert all(len(item.source) <= 101 for item in items)
    assert sum(len(item.source) for item in items[:-1]) == 220
    answers = [{"text": f"w{i}", "words": [{"text": f"w{i}", "start": i, "end": i}]} for i in range(len(items))]
    merged = task.merge_answers(answers, items)
    assert [answer["text"] for answer in merged] == [
        " ".join(f"w{i}" for i in range(len(items) - 1)),
        f"w{len(items) - 1}",
    ]
    assert len(merged[0]["words"]) == len(items) - 1
    with pytest.raises(
        DataError, match=r"a\.tsv:7: the recording has 2 seconds, more than the 1 of .*cut it at pauses|Cut it"
    ):
        task.encode([Example({"audio": samples, "text": "ab"}, "a.tsv", 7)], model)


@pytest.mark.parametrize("length", [1, 10, 11, 99, 100])
def test_windows_cover_everything_and_are_never_too_long(length):
    borders = cut_at_pauses(np.random.default_rng(length).random((length, 3)), 10)
    assert borders[0] == 0
    assert borders[-1] == length
    assert all(0 < b - a <= 10 for a, b in itertools.pairwise(borders))


def test_the_sample_is_the_same_for_a_seed_and_every_letter_has_a_sound():
    sample = get_sample("syllables")
    one, same, other = sample.make(40, 1), sample.make(40, 1), sample.make(40, 2)
    assert all(
        np.array_equal(a["audio"], b["audio"]) and a["text"] == b["text"] for a, b in zip(one, same, strict=True)
    )
    assert [e["text"] for e in one] != [e["text"] for e in other]
    assert all(0.2 < len(e["audio"]) / 16_000 < 5 and np.abs(e["audio"]).max() < 1 for e in one)
    letters = set("".join(e["text"] for e in one))
    assert letters == set(" aeioumnlsftkp")


def make_language_model(texts) -> Model:
    torch.manual_seed(1)
    tokenizer = train_tokenizer(texts, "characters")
    model = new("transformer_lm", vocab=tokenizer.vocab, width=16, layers=1, heads=2, ffn_width=16, dropout=0.0)
    model.tokenizer = tokenizer
    return model.eval()


def test_the_language_model_scores_a_text_as_it_would_alone():
    """Token by token, from the end of a line to the end of a line, as in one pass over the line."""
    language_model = make_language_model(["\n", "abcdx "])
    scores = LanguageModelScores(language_model, TOKENIZER)
    tokens = TOKENIZER.encode("cab d", add_special_tokens=False).ids
    found = [float(scores(tuple(tokens[:i]))[token]) for i, token in enumerate([*tokens, TOKENIZER.eos_id])]
    ids = language_model.tokenizer.encode("\ncab d\n", add_special_tokens=False).ids
    with torch.no_grad():
        state, text = language_model.start(Batch(Text(torch.tensor([ids[:-1]]))))
        expected = language_model.step(text, state)[0].log_softmax(-1)
    assert found == pytest.approx([float(expected[i, id]) for i, id in enumerate(ids[1:])], abs=1e-5)
    assert scores(())[TOKENIZER.pad_id] < -1_000


def test_a_language_model_of_other_tokens_is_refused():
    pieces = make_language_model(["\nabc"])
    pieces.tokenizer = train_tokenizer(["no such letters"], "words", 20)
    with pytest.raises(UsageError, match="shallow fusion needs the same tokens in both"):
        LanguageModelScores(pieces, TOKENIZER)
    with pytest.raises(UsageError, match="is a speech_encoder, which encodes a recording"):
        LanguageModelScores(make_model("speech_encoder"), TOKENIZER)


def test_a_language_model_changes_what_is_chosen(monkeypatch):
    """Two letters are equally loud; the language model has only ever seen one of them."""
    model, task = make_model("speech_encoder"), Transcribe(Config(language_model="runs/lm", beam_size=4, lm_weight=5.0))
    a, b = (TOKENIZER.encode(c, add_special_tokens=False).ids[0] for c in "ab")
    log_probs = np.full((3, TOKENIZER.vocab), -20.0)
    log_probs[1, [a, b]] = np.log([0.55, 0.45])
    log_probs[[0, 2], TOKENIZER.pad_id] = 0.0
    preferred = np.full(TOKENIZER.vocab, -5.0)
    preferred[b] = -0.1
    monkeypatch.setattr(transcribe, "load_language_model", lambda run, tokenizer: lambda prefix: preferred)
    assert CTCDecoder(model, 4).find_tokens(log_probs) == [a]
    assert CTCDecoder(model, 4, task._load_fusion(model)).find_tokens(log_probs) == [b]
