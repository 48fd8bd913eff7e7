"""compilot.testing: light to import, and a contract that finds an engine by its name alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import compilot.testing
from compilot.engines import registry
from compilot.records import Diagnosis
from compilot.testing import EngineContract, OfferContract

AUTHORS = """
import pytest
import my_engine
from compilot.testing import EngineContract

class TestMine(EngineContract):
    engine = "mine"
"""
ENGINE = """
import sys
from compilot.engines import registry
from compilot.engines.protocol import Availability
from compilot.engines.traits import EngineTraits

TRAITS = EngineTraits(version="1")

def available():
    return Availability(ok=True, version={version!r})

def validate(settings):
    return "mine has no modes" if settings.mode else "mine has no option 'wings'" if settings.options else None

registry.register("mine", sys.modules[__name__], sys.modules[__name__])
"""


@pytest.fixture
def mine() -> Iterator[Any]:
    half = SimpleNamespace(offer=lambda diagnosis: ("an offer",), load=lambda request: "loaded")
    registry.register("mine", half, half)  # type: ignore[arg-type]
    yield half
    registry.unregister("mine")


def test_importing_it_is_light() -> None:
    script = "import compilot.testing, sys\nprint({'torch', 'pytest', 'msgspec'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_every_name_is_there() -> None:
    assert {*compilot.testing.__all__} == {*compilot.testing._HOMES}
    assert issubclass(compilot.testing.EngineContract, compilot.testing.OfferContract)
    with pytest.raises(AttributeError, match="no attribute 'EngineContrat'"):
        compilot.testing.EngineContrat  # type: ignore[attr-defined]  # noqa: B018


def test_a_subclass_finds_the_halves_by_the_name(mine: Any) -> None:
    contract = type("Mine", (OfferContract,), {"engine": "mine"})
    assert contract.build is mine
    assert contract().load.load(None) == "loaded"
    assert contract.build.offer(Diagnosis()) == ("an offer",)


def test_the_contract_names_no_engine() -> None:
    assert not hasattr(EngineContract, "engine")


@pytest.mark.slow
@pytest.mark.parametrize(("version", "passes"), [("1", True), ("", False)])
def test_an_author_runs_it_and_sees_what_fails(tmp_path: Path, version: str, passes: bool) -> None:
    (tmp_path / "my_engine.py").write_text(ENGINE.format(version=version))
    (tmp_path / "test_mine.py").write_text(AUTHORS)
    few = "test_says_its_version or test_options_it_does_not_know"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", few, "test_mine.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ("2 passed" in done.stdout, "1 failed, 1 passed" in done.stdout) == (passes, not passes), done.stdout
    assert passes or "where '' = Availability(" in done.stdout  # assertions are shown in full
