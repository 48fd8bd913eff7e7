"""Graph breaks: where torch.compile stops, why, what it costs and what to do."""
