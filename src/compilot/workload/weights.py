"""Pickling with the weights apart: structure into one stream, every storage once into one aligned file.

In: live objects. Out: a pickle and a weights file; and back, with the storages mapped copy-on-write from that file, so
that several processes share the memory and none can change the file.
Covered: tied weights, views, any dtype and stride, parameters, CPU and GPU storages.
Not covered: finding out what cannot be pickled (culprit.py).
"""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path
from typing import IO, Any

import cloudpickle
import torch

from compilot._torch.storages import storage_view, wrap_storage

ALIGNMENT = 64  # a cache line, and what the widest vector loads want


class WeightsWriter:
    """Appends storages to a file, each one once."""

    def __init__(self, file: IO[bytes] | None) -> None:
        self._file = file  # None: count only
        self._offsets: dict[tuple[str, int, int], int] = {}
        self._alive: list[torch.UntypedStorage] = []  # a freed storage's address could come back as another's
        self._hash = hashlib.sha256()
        self.size = 0

    def add(self, storage: torch.UntypedStorage) -> int:
        """The offset of the storage's bytes in the file."""
        key = (str(storage.device), storage.data_ptr(), storage.nbytes())
        if key not in self._offsets:
            self._alive.append(storage)
            self._offsets[key] = self._append(storage)
        return self._offsets[key]

    def _append(self, storage: torch.UntypedStorage) -> int:
        offset = self.size
        self.size += -(-storage.nbytes() // ALIGNMENT) * ALIGNMENT
        if self._file is not None and storage.nbytes():
            view = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage).cpu().numpy().data
            padding = b"\0" * (self.size - offset - storage.nbytes())
            for part in (view, padding):
                self._file.write(part)
                self._hash.update(part)
        return offset

    def hexdigest(self) -> str:
        """SHA-256 of what was written."""
        return self._hash.hexdigest()


class WeightsPickler(cloudpickle.Pickler):  # type: ignore[misc]
    """cloudpickle, with the storages going to a WeightsWriter."""

    def __init__(self, file: Any, weights: WeightsWriter) -> None:
        super().__init__(file, protocol=pickle.DEFAULT_PROTOCOL)
        self._weights = weights

    def persistent_id(self, value: Any) -> Any:
        """Where a storage's bytes are; None for everything else, which is pickled as usual."""
        view = storage_view(value)
        if view is None:
            return None
        storage = view.storage
        device = str(storage.device)
        if device == "meta":
            return device, view.dtype, 0, storage.nbytes()
        return device, view.dtype, self._weights.add(storage), storage.nbytes()


class WeightsUnpickler(pickle.Unpickler):
    """Reads what WeightsPickler wrote."""

    def __init__(self, file: IO[bytes], weights: Path) -> None:
        super().__init__(file)
        size = weights.stat().st_size
        self._bytes = torch.UntypedStorage.from_file(str(weights), shared=False, nbytes=size) if size else None
        self._storages: dict[tuple[str, int, int], torch.UntypedStorage] = {}

    def persistent_load(self, pid: Any) -> Any:
        """The storage that a persistent id stands for: the same one each time."""
        device, dtype, offset, size = pid
        key = (device, offset, size)
        if key not in self._storages:
            self._storages[key] = self._storage(device, offset, size)
        return wrap_storage(self._storages[key], dtype)

    def _storage(self, device: str, offset: int, size: int) -> torch.UntypedStorage:
        if device == "meta" or size == 0 or self._bytes is None:
            return torch.empty(size, dtype=torch.uint8, device=device).untyped_storage()
        mapped = self._bytes[offset : offset + size]
        assert isinstance(mapped, torch.UntypedStorage)
        return mapped if device == "cpu" else mapped.to(device=torch.device(device))
