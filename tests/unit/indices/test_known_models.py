"""Models that people use: none of them may be refused, and their guards are what one would write by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from compilot import indices
from compilot.records import IndexColumns, IndexFacts, IndexRange
from compilot.workload import Workload

transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.filterwarnings("ignore")
SMALL = {"vocab_size": 99, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
SEQ2SEQ = {"encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
SEQ2SEQ |= {"vocab_size": 99, "d_model": 16, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
GPT2 = {"vocab_size": 99, "n_embd": 16, "n_layer": 1, "n_head": 2, "bos_token_id": 1, "eos_token_id": 1}
T5 = {"vocab_size": 99, "d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}
T5 |= {"decoder_start_token_id": 0}
IDS = torch.arange(5, 29).reshape(2, 12)
MASK = torch.tensor([[1] * 12, [1] * 9 + [0] * 3])
LENGTHS = {name: {1: (1, 60)} for name in ("input_ids", "attention_mask")}
TOKENS = IndexRange(low=0, high=98)
LABELS = IndexRange(low=0, high=98, exempt=(-100,))
FIRST = IndexColumns(first=0, last=0, low=-(2**63), high=2**63 - 1)
SHIFTED = IndexRange(low=0, high=98, exempt=(-100,), dim=1, columns=(FIRST,))  # nothing comes before the first label


def bare(config: Any) -> Any:
    return transformers.AutoModel.from_config(config)


def whisper() -> Any:
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 3}
    sizes = {"max_source_positions": 20, "max_target_positions": 32, "num_mel_bins": 8}
    return bare(transformers.WhisperConfig(**SEQ2SEQ, **sizes, **ids))


def wav2vec2() -> Any:
    layers = {"conv_dim": (8, 8), "conv_stride": (5, 2), "conv_kernel": (10, 3), "num_feat_extract_layers": 2}
    rest = {"num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2}
    return bare(transformers.Wav2Vec2Config(**{**SMALL, **layers, **rest}))


def moe(kind: str) -> Any:
    experts = {"num_local_experts": 4} if kind == "MixtralConfig" else {"num_experts": 4, "num_experts_per_tok": 2}
    return bare(getattr(transformers, kind)(**SMALL, num_key_value_heads=2, **experts))


TEXT = {"input_ids": IDS, "attention_mask": MASK}
CASES: dict[str, tuple[Callable[[], Any], dict[str, Any], dict[str, IndexRange]]] = {
    "bert": (lambda: bare(transformers.BertConfig(**SMALL)), TEXT, {"input_ids": TOKENS}),
    "deberta": (
        lambda: bare(transformers.DebertaV2Config(**SMALL, relative_attention=True)),
        TEXT,
        {"input_ids": TOKENS},
    ),
    "gpt2": (lambda: bare(transformers.GPT2Config(**GPT2, use_cache=False)), TEXT, {"input_ids": TOKENS}),
    "gpt2 with labels": (
        lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(**GPT2, use_cache=False)),
        {**TEXT, "labels": IDS},
        {"input_ids": TOKENS, "labels": SHIFTED},
    ),
    "llama": (lambda: bare(transformers.LlamaConfig(**SMALL, use_cache=False)), TEXT, {"input_ids": TOKENS}),
    "t5 with labels": (
        lambda: transformers.T5ForConditionalGeneration(transformers.T5Config(**T5)),
        {**TEXT, "labels": IDS.masked_fill(MASK == 0, -100), "use_cache": False},
        {"input_ids": TOKENS, "labels": LABELS},
    ),
    "bart": (lambda: bare(transformers.BartConfig(**SEQ2SEQ)), {**TEXT, "use_cache": False}, {"input_ids": TOKENS}),
    "whisper": (
        whisper,
        {"input_features": torch.randn(2, 8, 40), "decoder_input_ids": IDS, "use_cache": False},
        {"decoder_input_ids": TOKENS},
    ),
    "wav2vec2": (
        wav2vec2,
        {"input_values": torch.randn(2, 400), "attention_mask": torch.ones(2, 400, dtype=torch.int64)},
        {"attention_mask": IndexRange(low=0, high=1)},
    ),
    "clip": (
        lambda: transformers.CLIPTextModel(transformers.CLIPTextConfig(**SMALL, eos_token_id=98, bos_token_id=97)),
        TEXT,
        {"input_ids": TOKENS},
    ),
    "mixtral": (lambda: moe("MixtralConfig"), {**TEXT, "use_cache": False}, {"input_ids": TOKENS}),
    "qwen2 with experts": (lambda: moe("Qwen2MoeConfig"), {**TEXT, "use_cache": False}, {"input_ids": TOKENS}),
}


def facts_of(make: Callable[[], Any], call: dict[str, Any], **how: Any) -> IndexFacts:
    return indices.find(Workload(make().eval(), (), call, **how))


@pytest.mark.parametrize("name", CASES)
def test_a_known_model_is_proven(name: str) -> None:
    make, call, expected = CASES[name]
    facts = facts_of(make, call)
    assert facts.unproven == ""
    assert facts.ranges == {f"kwargs['{path}']": one for path, one in expected.items()}


def test_position_ids_that_are_counted_from_a_mask_are_proven_at_every_length() -> None:
    roberta = transformers.RobertaConfig(**SMALL, max_position_embeddings=62)
    facts = facts_of(lambda: bare(roberta), TEXT, dynamic=LENGTHS)
    assert facts.at_all_sizes == {"kwargs['input_ids']": TOKENS}


def test_a_mask_that_positions_are_summed_from_must_be_a_mask() -> None:
    sizes = {"ffn_dim": 16, "max_position_embeddings": 60, "word_embed_proj_dim": 16}
    small = {name: SMALL[name] for name in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")}
    config = transformers.OPTConfig(**small, **sizes)
    facts = facts_of(lambda: bare(config), {**TEXT, "use_cache": False}, dynamic=LENGTHS)
    assert facts.at_all_sizes["kwargs['input_ids']"] == TOKENS
    assert facts.at_all_sizes["kwargs['attention_mask']"] == IndexRange(low=0, high=1)


def test_positions_beyond_the_table_are_refused() -> None:
    roberta = transformers.RobertaConfig(**SMALL, max_position_embeddings=40)
    facts = facts_of(lambda: bare(roberta), TEXT, dynamic=LENGTHS)
    assert facts.ranges == {"kwargs['input_ids']": TOKENS}
    assert "modeling_roberta.py" in facts.unproven_sizes
    assert "may be out of range at the declared sizes 'largest'" in facts.unproven_sizes
    assert facts.unproven == ""
