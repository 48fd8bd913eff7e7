"""Candidates: what to try next. In: a diagnosis and the engines' spaces, then each trial as it ends. Out: candidates.

`search.py` holds the seam and the ordered search behind it, `spaces.py` what engines declare, `process.py` the knobs of
the whole process.
"""
