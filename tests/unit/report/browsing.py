"""A page as a real browser shows it, without a network. Used by tests of pages."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest


def _browser() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None and not os.environ.get("COMPILOT_CI"):
        pytest.skip("no Chromium here; install Debian's package `chromium` to see the page in a real browser")
    assert found is not None, "CI must have Chromium: .ci/run installs it"
    return found


def open_page(page: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """The page in a headless browser that cannot reach any network."""
    command = [
        _browser(),
        "--headless",
        "--no-sandbox",  # root in a container has no user namespace for it
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--disable-background-networking",
        "--host-resolver-rules=MAP * ~NOTFOUND",
        "--enable-logging=stderr",
        f"--user-data-dir={page.parent / 'profile'}",
        *options,
        page.as_uri(),
    ]
    return subprocess.run(command, capture_output=True, text=True, check=True)
