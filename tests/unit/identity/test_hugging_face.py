"""Models of transformers: the same configuration is the same model, built again, elsewhere and after a call."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import nn

from compilot._tree import Call
from compilot.identity.differences import explain_difference
from compilot.identity.input_settings import as_calls_read
from compilot.identity.machine import machine_fingerprint
from compilot.identity.model import model_fingerprint
from compilot.identity.uncovered import uncovered
from compilot.records import Fingerprint

transformers = pytest.importorskip("transformers")
SMALL = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16, "num_hidden_layers": 2}
IDS, IMAGE = torch.ones(1, 3, dtype=torch.long), torch.ones(1, 3, 32, 32)
WHISPER = {
    "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
    "encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "vocab_size": 30, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "decoder_start_token_id": 1, "num_mel_bins": 8, "max_source_positions": 20,
}  # fmt: skip
T5 = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 2, "num_heads": 2, "vocab_size": 30}
GPT2 = {"n_embd": 16, "n_layer": 2, "n_head": 2, "vocab_size": 30, "bos_token_id": 1, "eos_token_id": 2}
# class of the model, its configuration, a call
MODELS: dict[str, tuple[str, dict[str, Any], dict[str, torch.Tensor]]] = {
    "Bert": ("BertModel", {**SMALL, "vocab_size": 30}, {"input_ids": IDS}),
    "GPT2": ("GPT2LMHeadModel", GPT2, {"input_ids": IDS}),
    "ResNet": (
        "ResNetForImageClassification",
        {"embedding_size": 8, "hidden_sizes": [8, 8], "depths": [1, 1]},
        {"pixel_values": IMAGE},
    ),
    "T5": ("T5Model", T5, {"input_ids": IDS, "decoder_input_ids": IDS}),
    "Whisper": ("WhisperModel", WHISPER, {"input_features": torch.ones(1, 8, 40), "decoder_input_ids": IDS}),
    "ViT": ("ViTModel", {**SMALL, "image_size": 32, "patch_size": 16}, {"pixel_values": IMAGE}),
    "Llama": ("LlamaForCausalLM", {**SMALL, "vocab_size": 30}, {"input_ids": IDS}),
}


def build(name: str) -> nn.Module:
    kind, settings, _ = MODELS[name]
    model: nn.Module = getattr(transformers, kind)(getattr(transformers, f"{name}Config")(**settings))
    return model.eval()


@pytest.mark.parametrize("name", MODELS)
def test_the_same_configuration_is_the_same_model(name: str) -> None:
    model = build(name)
    before = model_fingerprint(model)
    assert model_fingerprint(build(name)) == before
    assert uncovered(model) == ()
    assert before.libraries == {"transformers": transformers.__version__}
    with torch.no_grad():
        model(**MODELS[name][2])
    assert model_fingerprint(model) == before


@pytest.mark.parametrize("name", MODELS)
def test_another_setting_is_another_model(name: str) -> None:
    model = build(name)
    before = model_fingerprint(model)
    model.config.some_setting = 1
    assert model_fingerprint(model).structure_sha256 != before.structure_sha256


def test_other_processes_agree() -> None:
    here = {name: msgspec.to_builtins(model_fingerprint(build(name))) for name in MODELS}
    script = (
        f"import json, sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\nimport msgspec\n"
        "import test_hugging_face as there\n"
        "found = {name: there.model_fingerprint(there.build(name)) for name in there.MODELS}\n"
        "print(json.dumps(msgspec.to_builtins(found)))\n"
    )
    environment = {"PYTHONHASHSEED": "7", "PYTHONPATH": ":".join(sys.path)}
    run = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, check=True)
    assert json.loads(run.stdout) == here


LABELS = torch.tensor([1])


def classifier(kind: Any = None) -> Any:
    config = transformers.BertConfig(**SMALL, vocab_size=30, num_labels=3)
    return (kind or transformers.BertForSequenceClassification)(config).eval()


def differences_after_labels(model: Any, *calls: Call) -> list[str]:
    """What a call with labels changes for a plan that was made for these calls."""
    before, machine = as_calls_read(model_fingerprint(model), model, calls), machine_fingerprint()
    with torch.no_grad():
        model(input_ids=IDS, labels=LABELS)
    assert model.config.problem_type == "single_label_classification"
    was, now = (Fingerprint(machine=machine, model=one) for one in (before, model_fingerprint(model)))
    return explain_difference(was, now)


NAMED = "changed from None to 'single_label_classification'."


@pytest.mark.parametrize(
    "call", [Call((), {"input_ids": IDS, "labels": LABELS}), Call((IDS, None, None, None, None, LABELS), {})]
)
def test_a_call_with_labels_is_named_by_what_it_sets(call: Call) -> None:
    told = differences_after_labels(classifier(), Call((IDS,), {}), call)
    assert told == [f"the model's setting 'config.problem_type', which calls with 'labels' use, {NAMED}"]


@pytest.mark.parametrize("call", [Call((), {"input_ids": IDS}), Call((IDS,), {"labels": None})])
def test_a_call_with_labels_changes_nothing_for_calls_without(call: Call) -> None:
    assert differences_after_labels(classifier(), call) == []


def test_a_setting_beside_it_is_still_found() -> None:
    model = classifier()
    before, machine = as_calls_read(model_fingerprint(model), model, [Call((IDS,), {})]), machine_fingerprint()
    model.config.problem_type, model.config.num_attention_heads = "regression", 4
    now = Fingerprint(machine=machine, model=model_fingerprint(model))
    [told] = explain_difference(Fingerprint(machine=machine, model=before), now)
    assert told.endswith(": attribute 'config.num_attention_heads' from 2 to 4.")


def test_code_of_the_users_own_may_read_it_in_any_call() -> None:
    class Own(transformers.BertForSequenceClassification):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            answer = super().forward(*args, **kwargs)
            return answer if self.config.problem_type is None else answer.logits.sigmoid()

    [told] = differences_after_labels(classifier(Own), Call((), {"input_ids": IDS}))
    assert "attribute 'config.problem_type' from None to 'single_label_classification'" in told


def test_a_hook_may_hand_labels_in() -> None:
    model = classifier()
    model.register_forward_pre_hook(lambda *_: None)
    [told] = differences_after_labels(model, Call((), {"input_ids": IDS}))
    assert "attribute 'config.problem_type' from None to 'single_label_classification'" in told
