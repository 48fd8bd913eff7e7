"""Ledger: every run of this user, found again. In: the list of runs and their journals. Out: entries, what changed.

entries.py   a journal -> one `RunEntry`
index.py     entries kept in SQLite, so that a journal is read once; thrown away and made again at will
history.py   the list of runs -> their entries, newest first; one run by its id, directory or label
changes.py   two journals -> what changed in code, versions, machine, options and numbers
shown.py     one journal in full, as the report has it
sharing.py   run directories in a store that a team shares
repeating.py a claim and today's figures -> holds, does not hold, inconclusive
Journals stay the truth: every answer is the same with and without the index. Nothing here needs torch.
"""
