"""OpenVINO: the model converted to Intel's intermediate form, run by its CPU plugin."""
