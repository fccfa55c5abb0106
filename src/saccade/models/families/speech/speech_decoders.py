"""Speech models that write their text with a decoder: two encoder-decoders, trained jointly with CTC.

- `listen_attend_spell`: a bidirectional recurrent encoder, and a recurrent decoder that attends to it before each letter with
  Bahdanau's additive attention (Chan et al. 2015, arXiv 1508.01211; Chorowski et al. 2015, arXiv 1506.07503).
- `speech_transformer`: the speech encoder and a transformer decoder (Dong et al. 2018).

Called like an encoder, each returns the vectors of the recording, which the head `ctc` scores: CTC aligns text and sound from
left to right, which attention alone does not learn from a few hours of speech (Kim et al. 2017, arXiv 1609.06773).
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from saccade.attention import Layout
from saccade.audio.mel import MelConfig
from saccade.data import Batch, Text
from saccade.models.capabilities import ENCODER_DECODER, Capabilities, Modality
from saccade.models.encoder_decoder import EncoderDecoder
from saccade.models.families import rnn, transformer
from saccade.models.families.speech import speech_encoder
from saccade.models.families.speech.speech_encoder import ConvSubsampling, SpeechEncoder, check_audio, ctc_head
from saccade.models.family import Family, HeadSpec
from saccade.parts.embeddings import TokenEmbedding
from saccade.parts.heads import MeanPool
from saccade.parts.state import State


@dataclass(frozen=True)
class RecurrentConfig:
    vocab: int = 32  # Vocabulary size: number of letters or tokens.
    mels: int = 80  # Number of mel bands of the input spectrogram.
    stride: int = 4  # Frames of 10 ms per vector: a power of two, as each convolution halves their number.
    channels: int = 32  # Number of channels of the convolutions.
    width: int = 192  # Model width (hidden size); each of two directions has half.
    layers: int = 2  # Number of recurrent layers of the encoder; the decoder has one.
    cell: str = "lstm"  # Recurrent cell: lstm or gru.
    mechanism: str = "additive"  # Attention mechanism, such as additive, bilinear, dot or scaled_dot.
    dropout: float = 0.1  # Dropout rate in training; 0 disables it.
    decoder_start_id: int = 1  # Id of the token that starts the decoder.


@dataclass(frozen=True)
class TransformerConfig(speech_encoder.Config):
    decoder_layers: int = 2  # Number of decoder layers (transformer blocks).
    max_positions: int = 512  # Maximum length of a text in tokens.
    decoder_start_id: int = 1  # Id of the token that starts the decoder.


class RecurrentSpeechEncoder(nn.Module):
    """A vector for each `stride` frames of a recording, from the sound on both sides of it."""

    def __init__(self, config: RecurrentConfig, sizes: rnn.Config):
        super().__init__()
        self.subsampling = ConvSubsampling(config.mels, config.stride, config.channels, config.width)
        self.layers = rnn.RecurrentStack(replace(sizes, layers=config.layers), config.width, bidirectional=True)
        self.mels = config.mels

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """The vectors of the recordings, (B, L, W), and their padding mask."""
        x, keep = self.subsampling(check_audio(batch, self.mels))
        return self.layers(x, keep), keep


class ListenAttendSpell(rnn.RNNGenerator):
    """A recurrent encoder-decoder; the decoder begins with the mean of the recording."""

    def __init__(self, config: RecurrentConfig):
        super().__init__()
        self.width = config.width
        sizes = rnn.Config(
            config.vocab,
            config.width,
            cell=config.cell,
            dropout=config.dropout,
            decoder_start_id=config.decoder_start_id,
        )
        self.encoder = RecurrentSpeechEncoder(config, sizes)
        self.bridge = rnn.Bridge(sizes, config.width)
        self.decoder = rnn.RNNDecoder(sizes, rnn.cross_mechanism(config.mechanism, config.width))

    def forward(self, batch: Batch) -> Tensor:
        return self.encoder(batch)[0]

    def start(self, batch: Batch) -> tuple[State, Text]:
        memory, keep = self.encoder(batch)
        return self.decoder.start_from_memory(memory, keep, self.bridge(MeanPool()(memory, keep)))


class SpeechTransformer(EncoderDecoder):
    """The speech encoder, and a transformer decoder with cross-attention to its vectors."""

    def __init__(self, config: TransformerConfig):
        listener = SpeechEncoder(config)
        sizes = replace(
            speech_encoder.stack_config(config),
            vocab=config.vocab,
            layers=config.decoder_layers,
            max_positions=config.max_positions,
        )
        words = TokenEmbedding(config.vocab, config.width, scale_embeddings=True)
        decoder, head = transformer.decoder_and_head(sizes, words, listener.width)
        super().__init__(words, listener.stack, decoder, head, decoder_start_id=config.decoder_start_id)
        self.subsampling, self.mels = listener.subsampling, config.mels

    def encode(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """The vectors of the recordings, (B, L, W), and their padding mask."""
        x, keep = self.subsampling(check_audio(batch, self.mels))
        return self.encoder(x, Layout(keep)), keep

    def forward(self, batch: Batch) -> Tensor:
        return self.encode(batch)[0]

    def start(self, batch: Batch) -> tuple[State, Text]:
        memory, keep = self.encode(batch)
        state = State()
        state.put("memory", memory, axis=1)
        memory_keep = memory.new_ones(memory.shape[:2], dtype=torch.bool) if keep is None else keep
        state.put("memory_keep", memory_keep, axis=1)
        return state, Text(torch.full((len(memory), 1), self.decoder_start_id, device=memory.device))


def recurrent_capabilities(config: RecurrentConfig) -> Capabilities:
    return replace(
        ENCODER_DECODER,
        input=Modality.AUDIO,
        mel=MelConfig(mels=config.mels),
        stride=config.stride,
        layers=("encoder.layers.layers", "decoder.body.layers.layers"),
        embeddings=("encoder.subsampling", "decoder.words"),
    )


def transformer_capabilities(config: TransformerConfig) -> Capabilities:
    return replace(
        ENCODER_DECODER,
        input=Modality.AUDIO,
        mel=MelConfig(mels=config.mels),
        stride=config.stride,
        sides={**ENCODER_DECODER.sides, "subsampling": "encoder"},
        embeddings=(*ENCODER_DECODER.embeddings, "subsampling"),
    )


FAMILY = Family(
    name="listen_attend_spell",
    description="speech recognizer: recurrent encoder, and a recurrent decoder with additive attention (LAS)",
    config_class=RecurrentConfig,
    build=ListenAttendSpell,
    capabilities=recurrent_capabilities,
    short_names=("rnn", "las"),
    heads={"ctc": HeadSpec(ctc_head)},
)
TRANSFORMER_FAMILY = Family(
    name="speech_transformer",
    description="speech recognizer: the speech encoder and a transformer decoder",
    config_class=TransformerConfig,
    build=SpeechTransformer,
    capabilities=transformer_capabilities,
    heads={"ctc": HeadSpec(ctc_head)},
)
