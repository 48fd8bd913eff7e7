"""The doctor's half in the parent process: `checkup` drives an examination in a child, `report_files` keeps its report.

What the child does is in `compilot.diagnose`; how a report looks in `compilot.report`.
"""
