"""The gate: is the model as it stands slower, larger, or less right than it was? In: two sides. Out: a `CheckReport`.

The story is `checking.check_sides`. Rooms of it: the sides (`sides`, `worktree`), their processes (`arm` in the child,
`arms` and `races` in the parent), what the figures mean (`judging`, pure), stored figures (`baselines`), and every form
that a result is written in (`outputs`). The fixture for pytest is `compilot.testing.pytest_plugin`.
"""
