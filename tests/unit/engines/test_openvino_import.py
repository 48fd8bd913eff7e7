"""OpenVINO is imported without its conversion tools, which come when somebody asks for them."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("openvino", reason="openvino is not installed")

CODE = """
import sys
from compilot.engines.openvino.importing import import_openvino
package = import_openvino()
assert "openvino.tools.ovc" not in sys.modules, "the tools were imported"
assert package.Core is not None
try:
    package.nonsense
except AttributeError:
    pass
else:
    raise AssertionError("any name is found")
assert callable(package.convert_model)
assert "openvino.tools.ovc" in sys.modules
import openvino
assert openvino.convert_model is package.convert_model is import_openvino().convert_model
"""


def test_the_tools_stay_out_until_they_are_asked_for() -> None:
    run = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
