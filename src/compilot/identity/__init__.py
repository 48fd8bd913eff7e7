"""Identity: what a machine and a model are, and how two of them differ. Used by both planes."""

from compilot.identity.differences import Difference, Severity, differences, explain_difference
from compilot.identity.machine import machine_fingerprint
from compilot.identity.model import model_fingerprint

__all__ = [
    "Difference",
    "Severity",
    "differences",
    "explain_difference",
    "machine_fingerprint",
    "model_fingerprint",
]
