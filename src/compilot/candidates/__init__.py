"""Candidates: what to try next. In: a diagnosis and the engines' spaces, then each trial as it ends. Out: candidates.

`search.py` holds the seam, `guided.py` the search behind it with what it expects of a trial (`worth.py`), `spaces.py`
what engines declare, `process.py` the knobs of the whole process, `prior.py` what earlier runs (`past.py`) let expect.
`parts.py` cuts a model into parts, `boundary.py` makes candidates of them, `promises.py` says what they promise.
"""
