"""What a live nn.Module holds: clones that share its tensors, its attributes, the parts of a value."""
