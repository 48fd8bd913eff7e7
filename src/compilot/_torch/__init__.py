"""_torch stage."""
