"""A node of a Ray cluster on this machine that has file systems of its own: a mount namespace.  Linux, as root."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["node_apart", "why_not_apart"]

_PATIENCE_S = 30.0


def why_not_apart() -> str:
    """Why this process can make no mount namespace; "" if it can."""
    trial = ["unshare", "--mount", "sh", "-c", "mount -t tmpfs none /mnt"]
    try:
        made = subprocess.run(trial, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return "mount namespaces take util-linux"
    return "" if made else "this machine lets nobody make mount namespaces"


@contextmanager
def node_apart(address: str, hidden: Path, said: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """A node of the cluster at `address`, started with these options of `ray start`, until the block ends.

    To it, `hidden` and the directory for temporary files are empty.  What it says goes to the file `said`.
    """
    temporary = tempfile.gettempdir()
    ray = [str(Path(sys.executable).with_name("ray")), "start", f"--address={address}", "--block", *options]
    script = (
        f"mount -t tmpfs none {shlex.quote(str(hidden))} && mount -t tmpfs none {temporary} && exec {shlex.join(ray)}"
    )
    own = {
        "XDG_CACHE_HOME": f"{temporary}/cache",
        "KINTUNE_LOCK_DIR": f"{temporary}/locks",
        # Tools that are hidden from tests are hidden by links in the directory for temporary files.
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
    }
    with said.open("ab") as file:
        node = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", script],
            env={**os.environ, **own},
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield node
    finally:
        node.send_signal(signal.SIGTERM)
        try:
            node.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(node.pid, signal.SIGKILL)
            node.wait()
