"""Thread counts that the nodes take over: the user's, not those that Ray gives the command of a job."""

from __future__ import annotations

import json

import pytest

from compilot.cluster.node_env import BY_RAY, JOB_SETTINGS, PASSED, of_driver

THREADS = "OMP_NUM_THREADS"


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*PASSED, *BY_RAY):
        monkeypatch.delenv(name, raising=False)


def test_a_users_threads_are_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    assert of_driver() == {}
    monkeypatch.setenv(THREADS, "1")
    monkeypatch.setenv("MKL_NUM_THREADS", "2")
    assert of_driver() == {THREADS: "1", "MKL_NUM_THREADS": "2"}


@pytest.mark.parametrize("name", BY_RAY)
def test_the_one_thread_of_a_job_of_rays_is_not(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(THREADS, "1")
    monkeypatch.setenv("MKL_NUM_THREADS", "1")
    monkeypatch.setenv(name, json.dumps({"runtime_env": {}, "metadata": {}}) if name == JOB_SETTINGS else "01000000")
    assert of_driver() == {"MKL_NUM_THREADS": "1"}
    monkeypatch.setenv(THREADS, "4")
    assert of_driver() == {THREADS: "4", "MKL_NUM_THREADS": "1"}


def test_a_job_may_name_one_thread_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(THREADS, "1")
    monkeypatch.setenv(JOB_SETTINGS, json.dumps({"runtime_env": {"env_vars": {THREADS: "1"}}}))
    assert of_driver() == {THREADS: "1"}
