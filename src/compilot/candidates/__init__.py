"""Candidates: what to try next. In: a diagnosis and the engines' spaces, then each trial as it ends. Out: candidates.

`search.py` holds the seam, `guided.py` the search behind it with what it expects of a trial (`worth.py`), `spaces.py`
what engines declare, `process.py` the knobs of the whole process.
"""
