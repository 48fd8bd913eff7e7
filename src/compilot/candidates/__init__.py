"""Candidates: what to try next. In: engines' offers, then each trial as it ends. Out: the next candidate, and why.

`search.py` holds the ask/tell seam and the ordered search behind it.
"""
