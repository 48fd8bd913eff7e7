"""compilot: the fastest correct way to run a PyTorch model on this machine."""
