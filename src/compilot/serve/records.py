"""Records of serving: states, events, statistics; and what passes between a server and the child that builds for it.

In: nothing. Out: frozen records, one JSON line each in the event log. Units are in the names. Not covered: behaviour.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

import msgspec

from compilot.records import Candidate, MachineFingerprint, ModelFingerprint, Record, Shipment

EVENT_SCHEMA = 1


class SwapState(enum.StrEnum):
    """Who answers, and what is under way."""

    EAGER = "eager"  # eager answers and nothing is under way; the reason says why
    BUILDING = "building"  # in a child process; eager answers, as in the states below up to shadow
    FETCHING = "fetching"  # from a store, in a child process
    LOADING = "loading"
    PROVING = "proving"  # the golden calls and the kept calls are compared with eager
    SHADOW = "shadow"  # eager answers; some calls are answered by the plan as well, and compared
    CANARY = "canary"  # the plan answers some calls; each of those is compared before the answer goes out
    LIVE = "live"  # the plan answers; some calls stay compared
    ROLLED_BACK = "rolled-back"  # eager answers, since the plan was wrong, failed or was slow
    CLOSED = "closed"  # eager answers; nothing will be built any more


STATE_NUMBERS = {state: number for number, state in enumerate(SwapState)}  # for metrics, in the order above


class EventKind(enum.StrEnum):
    """What an event is about."""

    STATE = "state"  # another state
    POSTPONED = "postponed"  # a build or a fetch failed or could not begin; it is tried again
    BUILT = "built"
    ADOPTED = "adopted"  # a thread count, or calls of other sizes, that recurred are served by the plan from now on
    MISSED = "missed"  # calls that eager answered after the swap, by reason: counts since the process began
    WARNING = "warning"


class MissedCalls(Record, frozen=True, kw_only=True):
    """Calls of one kind that eager answered although the plan is live."""

    reason: str
    sizes: dict[str, tuple[int, ...]] = {}  # of every tensor of such a call, by path; never values
    calls: int


class SwapEvent(Record, frozen=True, kw_only=True):
    """One line of the event log."""

    schema: int = EVENT_SCHEMA
    at: str  # ISO 8601, UTC
    pid: int
    swap: str  # which one: a process may have several; no other process, now or later, has one of this name
    call: int  # number of the call at which it happened
    kind: EventKind
    state: SwapState  # from now on
    before: SwapState
    reason: str = ""
    plan: str = ""  # label of the candidate that it is about
    calls: int = 0  # of MISSED events: all calls since the plan went live
    missed: tuple[MissedCalls, ...] = ()
    retry_s: float | None = None  # of POSTPONED events: when it is tried again; None: never
    seconds: float | None = None  # of BUILT events: wall time of the child
    cpu_s: float | None = None  # of its process tree
    peak_memory_bytes: int | None = None  # of its process tree, as seen; pages that several processes have count once


class Pairs(Record, frozen=True, kw_only=True):
    """Calls that both eager and the plan answered, one after the other."""

    count: int = 0
    eager_p50_s: float | None = None
    plan_p50_s: float | None = None

    @property
    def speedup(self) -> float | None:
        """How much faster the plan is, by the medians; None: no pairs yet."""
        return None if not self.eager_p50_s or not self.plan_p50_s else self.eager_p50_s / self.plan_p50_s


class SwapStats(Record, frozen=True, kw_only=True, omit_defaults=False):
    """How the calls went so far. calls = fast + eager + fallbacks, as far as none is under way."""

    state: SwapState
    reason: str  # why it is in this state
    plan: str = ""  # label of the candidate that answers, or is on its way to; "": there is none
    digest: str = ""  # of its bundle; "": it is none
    calls: int = 0
    fast: int = 0  # answered by the plan
    eager: int = 0  # answered by eager because that was its turn
    fallbacks: dict[str, int] = {}  # answered by eager although the plan is live, by reason
    compared: int = 0
    mismatches: int = 0
    failures: int = 0  # of the engine
    recompiles: int = 0  # programs that were built in this process after the plan went live: always 0 unless traced
    pairs: Pairs = Pairs()
    swaps: dict[str, int] = {}  # "live", "rolled-back": how often
    builds: int = 0  # children that came to a result
    build_s: float = 0.0  # their wall time
    build_cpu_s: float = 0.0
    build_peak_memory_bytes: int = 0
    threads: tuple[int, ...] = ()  # thread counts at which the plan is proven
    pss_bytes: int | None = None  # this process's share of memory, pages shared with other workers divided; Linux


class Bounds(NamedTuple):
    """What a building child may use, and how often it is tried."""

    nice: int = 19
    idle: bool = True  # only the time that the server does not want (Linux); False: as `nice` says
    share: float = 0.1  # of the time that it may run while the server works: it takes memory bandwidth, too; 1.0: all
    one_core_from: int = 4  # usable cores: with so many or more the child is pinned to one of them
    least_free_bytes: int = 1 << 30  # beside what the build needs: with less free memory it is postponed
    memory_share: float = 0.5  # of the free memory: the child's process tree is ended when it uses more
    limit_s: float = 3600.0  # for one build
    retry_s: float = 10.0  # after the first failure; doubled after each one
    longest_retry_s: float = 600.0
    attempts: int = 1000
    lock_wait_s: float = 3600.0  # for another process of this user that builds the same


class BuildJob(Record, frozen=True, kw_only=True):
    """What the child is asked for: one of build and fetch."""

    folder: str  # the run directory, of this job alone
    out: str  # the bundle to write
    result: str  # file for the BuildResult
    machine: MachineFingerprint  # of the server: the child is bounded, and would describe a smaller one
    threads: int  # of the server
    shipment: Shipment | None = None  # build: the model and an example
    candidates: tuple[Candidate, ...] = ()  # build: the only ones to try; (): the engines whose files need no compiler
    twins: bool = False  # build: the ahead-of-time twins of the candidates, in their place
    url: str = ""  # fetch
    wanted: ModelFingerprint | None = None  # fetch: the model's
    trusted_keys: tuple[str, ...] = ()
    require_signature: bool = False


class Tried(Record, frozen=True, kw_only=True):
    """One candidate that the child tried."""

    label: str
    state: str
    reason: str = ""


class BuildResult(Record, frozen=True, kw_only=True):
    """What the child found."""

    ok: bool
    reason: str = ""  # why there is no bundle
    retry: bool = False  # it may work later: a disk was full, a store was away
    digest: str = ""  # of the bundle
    label: str = ""  # of the candidate in it
    tried: tuple[Tried, ...] = ()
    cpu_s: float = 0.0  # of the child and everything that it waited for


decode_job = msgspec.json.Decoder(BuildJob).decode
decode_result = msgspec.json.Decoder(BuildResult).decode
decode_event = msgspec.json.Decoder(SwapEvent).decode
