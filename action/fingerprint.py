"""For action.yml: a cache key that is another one for every kind of machine, and what is worth keeping there.

Prints lines for $GITHUB_OUTPUT: `key`, from the machine's fingerprint; `header`, the folder of the C++ header that
torch's compiler builds once per machine.
"""

from __future__ import annotations

import getpass
import hashlib
import os
import re
import tempfile
from pathlib import Path

from compilot.identity.machine import machine_fingerprint
from compilot.records import encode


def main() -> None:
    """Two lines on stdout."""
    key = hashlib.sha256(encode(machine_fingerprint())).hexdigest()[:20]
    header = Path(tempfile.gettempdir()) / f"torchinductor_{user()}" / "precompiled_headers"
    print(f"key={key}\nheader={header}")


def user() -> str:
    """As torch names its folder: a user without a name, as in many containers, by number."""
    try:
        name = getpass.getuser()
    except (KeyError, ModuleNotFoundError, OSError):
        name = f"uid_{os.getuid()}"
    return re.sub(r'[\\/:*?"<>|]', "_", name)


if __name__ == "__main__":
    main()
