"""Tuning: the whole story. In: a workload, a search, a runner. Out: a plan, and everything seen in the journal.

`pipeline.tune` is the story in one function; `comparing` puts arms side by side for everyone else who measures.
"""
