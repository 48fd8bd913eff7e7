"""AOTInductor: the model compiled ahead of time by Inductor into one library of native code."""
