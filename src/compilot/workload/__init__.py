"""Targets and live objects -> Workload: the model, its example calls, and how both reach a child process."""

from compilot._tree import Call
from compilot.workload.dynamic import parse_dynamic
from compilot.workload.target import load_target
from compilot.workload.unit import Unit
from compilot.workload.workload import Workload

__all__ = ["Call", "Unit", "Workload", "load_target", "parse_dynamic"]
