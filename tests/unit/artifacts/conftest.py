"""What the tests of files share: the plan of a small run, and a manifest for it without files."""

from __future__ import annotations

import pytest

from compilot.records import BUNDLE_SCHEMA, Manifest, Plan, Weights


@pytest.fixture
def plan(small_run: object) -> Plan:
    made: Plan = small_run.plan  # type: ignore[attr-defined]
    return made


@pytest.fixture
def bare_manifest(plan: Plan) -> Manifest:
    return Manifest(
        schema=BUNDLE_SCHEMA,
        compilot="0.1",
        created="2026-01-01T00:00:00+00:00",
        label="Net",
        engine="fake",
        fingerprint=plan.fingerprint,
        weights=Weights.BAKED,
    )
