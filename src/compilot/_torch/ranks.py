"""The key-value store of a distributed job. In: a prefix. Out: the store that the process group was made with.

torch has no public name for it; everything that ranks tell each other outside of collectives goes through it.
"""

from __future__ import annotations

from typing import Any


def job_store(prefix: str) -> Any:
    """Keys below a prefix of the default process group's store; the group must be initialised."""
    from torch.distributed.distributed_c10d import PrefixStore, _get_default_store

    return PrefixStore(prefix, _get_default_store())
