"""Fingerprints of machine and model for the tuning plane; made in `compilot.identity`, which both planes use."""

from compilot.identity import differences, explain_difference, machine_fingerprint, model_fingerprint

__all__ = ["differences", "explain_difference", "machine_fingerprint", "model_fingerprint"]
