"""eager stage."""
