"""Packing (tuning plane): run directories in, one bundle out.

Read in this order: pack.py (the story), runs.py (what a run left), golden.py (the call whose answer is known),
twin.py (an ahead-of-time package in place of a plan that would need a compiler), writing.py (the file).
"""

from compilot.packing.pack import Packed, PackOptions, pack

__all__ = ["PackOptions", "Packed", "pack"]
