"""Example inputs: paths of their leaves, new values for them, sizes that look alike."""
