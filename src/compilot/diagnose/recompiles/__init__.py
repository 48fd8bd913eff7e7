"""Recompiles: what changed between two calls, and what to do about it."""
