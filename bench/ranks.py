"""Do ranks of a distributed job start from one build that takes longer than a collective may?

    python bench/ranks.py [--ranks 4] [--build-s 60] [--limit-s 20] [--folder FOLDER]

Starts a torch.distributed job (gloo, this machine, loopback) whose builder takes so long, while collectives may take
less. One rank has a damaged copy of the bundle, another does not see the builder's disk. Prints what each rank told:
every one must have answered on the fast path, one must have built, and all copies must have the bundle's digest. Then
the same ranks wait in a collective instead, to show that its limit is one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests" / "data")]


def damaged_copy(folder: Path, rank: int, bundle: Path, sha256: str) -> None:
    """What a broken disk would have left in a rank's cache."""
    kept = folder / f"cache-{rank}" / "ranks"
    kept.mkdir(parents=True, mode=0o700)
    kept.parent.chmod(0o700)
    data = bytearray(bundle.read_bytes())
    data[len(data) // 2] ^= 1
    (kept / f"{sha256}.cpbundle").write_bytes(data)


def main() -> int:
    from bundle_help import tiny_run  # type: ignore[import-not-found]
    from rank_jobs import run_ranks  # type: ignore[import-not-found]

    import compilot
    from compilot.artifacts.store.fetching import digest_of_file

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--build-s", type=float, default=60.0)
    parser.add_argument("--limit-s", type=float, default=20.0)
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="compilot-ranks-") as temporary:
        folder = asked.folder or Path(temporary)
        run = tiny_run(folder / "run", "onnxruntime")
        bundle = compilot.pack(run, folder / "tiny.cpbundle", progress=False).bundle
        sha256 = digest_of_file(bundle)
        damaged_copy(folder, 1, bundle, sha256)
        began = time.monotonic()
        told = run_ranks(
            folder,
            bundle,
            asked.ranks,
            {asked.ranks - 1: {"far": True}},
            build_s=asked.build_s,
            limit_s=asked.limit_s,
            wait_s=10 * asked.build_s + 60,
            naive=True,
        )
        took = time.monotonic() - began
    for rank, one in enumerate(told):
        print(f"rank {rank}: {one}")
    good = sum(one["built"] for one in told) == 1 and all(one["same"] and one["fast"] for one in told)
    whole = all(one["kept"] in ([], [sha256]) for one in told)
    print(f"{asked.ranks} ranks, build {asked.build_s:g} s, collectives {asked.limit_s:g} s: {took:.0f} s in all")
    print("as it should be" if good and whole else "WRONG")
    return 0 if good and whole else 1


if __name__ == "__main__":
    sys.exit(main())
