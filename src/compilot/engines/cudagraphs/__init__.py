"""CUDA graphs: the eager model's GPU work recorded once and replayed. Unproven: written without a GPU at hand."""
