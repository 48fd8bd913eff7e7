"""TensorRT by way of torch_tensorrt. Unproven: written without a GPU at hand."""
