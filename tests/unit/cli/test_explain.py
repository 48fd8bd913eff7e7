"""`compilot tune --explain`: the options that would be used, and nothing is started."""

from __future__ import annotations

import json
from typing import Any

import msgspec

import compilot as public
from compilot.api.explaining import UsedOption
from compilot.cli.explaining import NOT_GIVEN, line
from compilot.records import PRIOR_BY_DEFAULT


def test_each_option_has_a_line_with_its_source_and_value(fake: Any, compilot: Any) -> None:
    result = compilot("tune", "net.py:net", "--explain", "--preset", "production", "--max-compile", "45s")
    first, *lines = result.stdout.splitlines()
    assert (result.exit_code, first) == (0, "preset: production")
    assert "  --objective        preset   p99 (a service is judged by its slow answers)" in lines
    assert "  --max-compile      yours    45s" in lines
    assert "  --max-error        default  the usual limits: as close to float64 as eager" in lines
    assert not fake.asked  # nothing was started


def test_a_switch_is_on_or_off(fake: Any, compilot: Any) -> None:
    assert "  --prior            yours    off" in compilot("tune", "--explain", "--no-prior").stdout.splitlines()
    assert "  --prior            yours    on" in compilot("tune", "--explain", "--prior").stdout.splitlines()
    default = f"  --prior            default  {'on' if PRIOR_BY_DEFAULT else 'off'}"
    assert default in compilot("tune", "--explain").stdout.splitlines()


def test_the_target_may_be_left_out_and_the_json_is_what_the_function_returns(fake: Any, compilot: Any) -> None:
    result = compilot("tune", "--explain", "--json", "--preset", "dev", "--engines", "eager,inductor")
    printed = msgspec.convert(json.loads(result.stdout), public.Explanation)
    assert printed == public.explain(preset="dev", engines=["eager", "inductor"])
    assert compilot("tune", "--explain").stdout.splitlines()[0] == "preset: none"


def test_mistakes_are_one_sentence(fake: Any, compilot: Any) -> None:
    result = compilot("tune", "--explain", "--max-error", "5")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: the largest error (max_error) is a relative error between 0 and 1")


def test_a_run_shows_what_it_would_go_on_with(fake: Any, compilot: Any, small_run: Any, tmp_path: Any) -> None:
    small_run.write(tmp_path / "earlier")
    shown = compilot("tune", "--explain", "--resume", str(tmp_path / "earlier")).stdout
    assert "  --budget           run      90s" in shown.splitlines()


def test_whatever_may_be_left_out_has_words_for_that() -> None:
    for one in public.explain().options:
        assert (one.value is None) == (one.keyword in NOT_GIVEN)
    several = UsedOption(option="--engines", keyword="engines", value=("a", "b"), source="yours")
    assert line(several) == "  --engines          yours    a,b"
