"""ONNX Runtime: the model exported to ONNX, run by Microsoft's engine."""
