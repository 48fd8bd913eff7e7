"""Identity: what a machine and a model are, and how two of them differ. Used by both planes.

machine.py and model.py make fingerprints (they import torch), differences.py compares them (it does not), source.py
reads the code of classes.
"""
