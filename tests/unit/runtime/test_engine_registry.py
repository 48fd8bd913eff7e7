"""Engines by name."""

from __future__ import annotations

from importlib import metadata

import pytest

from compilot.engines import registry
from compilot.engines.eager import load as eager_load
from compilot.errors import InputError


def test_the_built_in_engines_are_known():
    assert registry.names()[:2] == ("eager", "inductor")
    assert registry.load_half("eager") is eager_load


def test_any_dynamo_backend_is_run_by_the_same_halves_as_inductor():
    assert registry.load_half("dynamo:aot_eager") is registry.load_half("inductor")
    assert registry.build_half("dynamo:aot_eager") is registry.build_half("inductor")


@pytest.mark.parametrize("name", ["nonsense", "dynamo:", "os.path"])
def test_an_unknown_engine_names_the_known_ones(name):
    with pytest.raises(InputError, match="known are: eager, inductor"):
        registry.load_half(name)


def test_an_engine_registered_in_this_process(engine):
    assert "fake" in registry.names()
    assert registry.load_half("fake") is engine
    with pytest.raises(InputError, match="offers nothing to tune"):
        registry.build_half("fake")


def test_an_engine_installed_by_another_package(monkeypatch):
    point = metadata.EntryPoint("theirs", "compilot.engines.eager", registry.GROUP)
    monkeypatch.setattr(metadata, "entry_points", lambda group: [point])
    registry._installed.cache_clear()
    try:
        assert "theirs" in registry.names()
        assert registry.load_half("theirs") is eager_load
    finally:
        registry._installed.cache_clear()
        registry._load_installed.cache_clear()
