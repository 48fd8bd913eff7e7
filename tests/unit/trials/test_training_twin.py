"""The twin of a candidate that is judged number by number draws eager's random numbers, wherever code is compiled."""

from __future__ import annotations

from compilot.records import Candidate, CompiledWay, Region, Settings, StepParts
from compilot.trials.steps.training import drawing_as_eager, draws_its_own

COMPILED = Settings(engine="inductor", options={"max_autotune": True})


def candidate(way: CompiledWay) -> Candidate:
    by_region = way is CompiledWay.REGIONS
    return Candidate(
        settings=Settings() if by_region else COMPILED,
        regions=tuple(Region(selector=one, settings=COMPILED) for one in ("a.*", "b.*")) if by_region else (),
        label="compiled",
        rationale="a test",
        step=StepParts(compiled=way),
    )


def test_the_whole_draws_as_eager() -> None:
    own = candidate(CompiledWay.MODEL)
    twin = drawing_as_eager(own)
    assert twin.settings.options == {"max_autotune": True, "fallback_random": True}
    assert own.settings.options == {"max_autotune": True}
    assert (draws_its_own(own), draws_its_own(twin)) == (True, False)


def test_so_does_each_block_that_is_compiled_apart() -> None:
    twin = drawing_as_eager(candidate(CompiledWay.REGIONS))
    assert [one.selector for one in twin.regions] == ["a.*", "b.*"]
    assert all(one.settings.options == {"max_autotune": True, "fallback_random": True} for one in twin.regions)
    assert all(one.settings.engine == "inductor" for one in twin.regions)
