"""What the rest of compilot must know of an engine without naming it: one frozen record per engine.

In: nothing. Out: EngineTraits; built-in engines declare theirs as `TRAITS` in engines/NAME/__init__.py, others beside
their load half or when they are registered (registry.py), and the defaults fit an engine that makes files of its own.
Covered: order of the search, compilers, files, instruction sets, versions. Not covered: its work (protocol.py).
"""

from __future__ import annotations

import enum

from compilot.records import Record

TORCH = "torch"  # the package of engines that are part of torch: its version is theirs
COMPILE_CACHE = "inductor"  # torch's compile cache among a candidate's files; every worker has one
IMPORT_S = 2.0  # of torch's compiler, beside what a process with eager imports


class BuildCost(enum.IntEnum):
    """When an engine's turn comes: a short budget should already have seen what gains most for its time."""

    RECORDING = 1  # a moment
    SECONDS = 2  # an export and a conversion
    NONE = 3  # nothing to build, but only a small gain
    COMPILER = 4  # a C++ compiler for half a minute
    EXPORT_AND_COMPILER = 5
    MINUTES = 6
    UNKNOWN = 7
    BACKEND = 8  # other packages' torch.compile backends, after everything else: few of them work on every torch


class InstructionSets(enum.StrEnum):
    """Which CPUs an engine's files can be used on."""

    AS_COMPILED = "as-compiled"  # those that have every instruction of the CPU they were made on
    AT_RUN_TIME = "at-run-time"  # its library looks at the CPU when it starts
    EXACT = "exact"  # the same, but data is laid out for the vectors of the CPU it was made on


class EngineTraits(Record, frozen=True, kw_only=True):
    """One engine."""

    title: str = ""  # for sentences; "": its name
    build_cost: BuildCost = BuildCost.UNKNOWN
    whole_graph: bool = False  # takes the model as one exported graph: what stops an export stops it
    compiler_at_build: bool = False  # cannot be built without a C++ compiler
    compiler_at_start: bool = False  # runs one at every start, on what is in its compile cache
    cache_folder: str = ""  # of that compile cache, among a candidate's files; "": it has none
    through_dynamo: bool = False  # torch.compile: its workers import that first, and its starts are noted
    standalone: bool = False  # its files are the whole model: no model object is needed
    keeps_checks: bool = False  # its code has torch's checking operators in it
    instruction_sets: InstructionSets = InstructionSets.AS_COMPILED
    package: str = ""  # that brings it and says its version; "": the one that announces it, or none
    version: str | None = None  # of one that no package brings: plans and bundles are bound to it
    warm_share: float = 0.12  # of a cold start's time that a start with kept files takes; so for loading a file
    plain_compile: bool = False  # with nothing chosen it is torch.compile as users know it: the yardstick
    again_share: float = 1.0  # of a block's build that the next block with the same code takes
    unshared_options: tuple[str, ...] = ()  # with one of these set, like blocks get a program each
    ahead_of_time: str = ""  # engine of the same compiler whose files start without it
