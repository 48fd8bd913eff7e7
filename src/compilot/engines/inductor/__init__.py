"""Inductor: torch.compile with its default backend, in the modes and options that matter on this machine."""
