"""SFTP servers must be known. In: OpenSSH's known_hosts files. Out: a policy for paramiko that refuses every other key.

The usual policy of fsspec takes any key at the first connection, so that anybody on the line could be the server.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

KNOWN_HOSTS = ("~/.ssh/known_hosts", "/etc/ssh/ssh_known_hosts")


def known_hosts_policy() -> Any:
    """A paramiko.MissingHostKeyPolicy that asks the user's known_hosts."""
    import paramiko

    hosts = paramiko.HostKeys()
    for name in KNOWN_HOSTS:
        path = Path(name).expanduser()
        if path.is_file():
            hosts.load(str(path))

    class Known(paramiko.MissingHostKeyPolicy):  # type: ignore[misc]
        """Refuses a server whose key is not in known_hosts."""

        def missing_host_key(self, client: Any, hostname: str, key: Any) -> None:
            """Called by paramiko for a key that it does not know itself."""
            if not hosts.check(hostname, key):
                hint = "connect to it once with ssh or sftp and check its key"
                raise paramiko.SSHException(f"{hostname} is not in known_hosts with this key; {hint}")

    return Known()
