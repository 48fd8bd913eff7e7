"""Traces: the sizes that a program's calls have. One format for all who read or write them.

In: a file of sizes, or the counts of a recorder. Out: `Trace`, or the file. lines.py is the format, reading.py the one
reader, tally.py what is kept of very many calls, writing.py the file that `record` leaves, summing.py the
distribution, sampling.py the calls to replay. Needs no torch. Not covered: what a name means for a model
(workload/shapetrace.py), counting calls (runtime/recording.py).
"""
