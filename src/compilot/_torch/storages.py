"""Storages as pickle meets them: torch hides the untyped bytes of a tensor behind a typed wrapper.

In: objects that a pickler walks over. Out: their bytes' owner, and the wrapper again on the way back.
Not covered: what the bytes are written to (workload/shipping.py).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch


class StorageView(NamedTuple):
    """A storage, and the dtype name its wrapper reads it with (None: no wrapper)."""

    storage: torch.UntypedStorage
    dtype: str | None


def storage_view(value: Any) -> StorageView | None:
    """The storage behind a pickled object, None when it is not one. Checked on torch 2.13.0."""
    if isinstance(value, torch.storage.TypedStorage):
        return StorageView(value._untyped_storage, str(value.dtype).removeprefix("torch."))
    if isinstance(value, torch.UntypedStorage):
        return StorageView(value, None)
    return None


def wrap_storage(storage: torch.UntypedStorage, dtype: str | None) -> Any:
    """The object that a tensor's rebuild function expects. Checked on torch 2.13.0."""
    if dtype is None:
        return storage
    return torch.storage.TypedStorage(wrap_storage=storage, dtype=getattr(torch, dtype), _internal=True)  # type: ignore[no-untyped-call]
