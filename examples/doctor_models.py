"""The models that docs/doctor.md reports on: `compilot doctor examples/doctor_models.py:gpt2_with_cache --quick`.

Small configurations with random weights; nothing is downloaded. Each factory is driven the way its model is used: other
lengths, a prompt and then single tokens, other batches. Not covered: trained weights, whose values change no finding.
"""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    T5Config,
    T5ForConditionalGeneration,
    WhisperConfig,
    WhisperForConditionalGeneration,
)
from transformers.utils import logging

import compilot

logging.set_verbosity_error()

WORDS = 512  # size of the vocabularies
NEW_TOKENS = 5


def _tokens(*shape):
    return torch.randint(4, WORDS, shape)  # the first few are special tokens


def bert():
    """Sequences of 16 tokens; any length from 4 to 64 occurs."""
    config = BertConfig(
        vocab_size=WORDS, hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128
    )
    tokens = _tokens(2, 16)
    varies = {1: (4, 64)}
    return compilot.Workload(
        BertForSequenceClassification(config).eval(),
        kwargs={"input_ids": tokens, "attention_mask": torch.ones_like(tokens)},
        dynamic={"input_ids": varies, "attention_mask": varies},
    )


def gpt2_with_cache():
    """A prompt of 8 tokens, then one token at a time with a cache of keys and values that grows."""
    model = GPT2LMHeadModel(GPT2Config(vocab_size=WORDS, n_embd=64, n_layer=2, n_head=2, n_positions=64)).eval()
    prompt = _tokens(1, 8)

    def drive(call):
        out = call(input_ids=prompt, use_cache=True)
        for _ in range(NEW_TOKENS):
            token = out.logits[:, -1:].argmax(-1)
            out = call(input_ids=token, past_key_values=out.past_key_values, use_cache=True)

    return compilot.Workload(model, kwargs={"input_ids": prompt, "use_cache": True}, drive=drive)


def _t5():
    config = T5Config(
        vocab_size=WORDS, d_model=64, d_kv=32, d_ff=128, num_layers=2, num_heads=2, decoder_start_token_id=0
    )
    return T5ForConditionalGeneration(config).eval()


def t5_step():
    """One decoding step: a source of 8 tokens, a target of 1 to 5."""
    source = _tokens(1, 8)
    lengths = range(1, NEW_TOKENS + 1)
    calls = [((), {"input_ids": source, "decoder_input_ids": _tokens(1, length)}) for length in lengths]
    return compilot.Workload(_t5(), examples=calls)


class Generate(nn.Module):
    """The whole of generate() as one model: what should not be compiled."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens):
        return self.model.generate(tokens, max_new_tokens=4, do_sample=False)


def t5_generate():
    """Four new tokens by transformers' own loop."""
    return compilot.Workload(Generate(_t5()).eval(), (_tokens(1, 8),))


def whisper():
    """30 seconds of sound; 4 target tokens, then 5."""
    config = WhisperConfig(
        vocab_size=WORDS,
        d_model=64,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=3,
    )
    sound = torch.randn(1, config.num_mel_bins, 2 * config.max_source_positions)
    calls = [((), {"input_features": sound, "decoder_input_ids": _tokens(1, length)}) for length in (4, 5)]
    return compilot.Workload(WhisperForConditionalGeneration(config).eval(), examples=calls)


class Tagger(nn.Module):
    """A recurrent layer over sequences of different lengths, packed."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 32)
        self.lstm = nn.LSTM(32, 32, batch_first=True, bidirectional=True)
        self.head = nn.Linear(64, 8)

    def forward(self, tokens, lengths):
        packed = pack_padded_sequence(self.embedding(tokens), lengths, batch_first=True, enforce_sorted=False)
        states, _ = self.lstm(packed)
        padded, _ = pad_packed_sequence(states, batch_first=True)
        return self.head(padded)


def packed_lstm():
    """Two batches of three sequences with other lengths, padded to nine tokens."""
    calls = [(_tokens(3, 9), torch.tensor(lengths)) for lengths in ([9, 5, 3], [9, 4, 2])]
    return compilot.Workload(Tagger().eval(), examples=calls)
