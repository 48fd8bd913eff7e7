"""AOTInductor: the model compiled ahead of time by Inductor into one package of native code."""
