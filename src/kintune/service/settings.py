"""The settings of a service, which its operator chooses."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from kintune.errors import InputError
from kintune.wire.channel import UNREADABLE
from kintune.wire.confinement import is_confinable

__all__ = ["Isolation", "ServiceSettings", "settings_in"]
_FILE = "settings.json"

Isolation: TypeAlias = Literal["auto", "on", "off"]


class ServiceSettings(msgspec.Struct, frozen=True):
    """Where a service keeps its data, what it measures on, and how much of it there may be at once.

    `database` is "" for SQLite files in `data`, or the URL of a PostgreSQL server that has all of it.  `device` is as
    for `kintune tune`, and `device_name` what users call it.  At most `jobs_at_once` are under way, the others wait.
    `minutes` is the budget of jobs that name none; checking a model takes as long as its job's, from two minutes to
    `check_minutes`; models are kept for `keep_days` (0: until they are deleted), and
    executables and logs of jobs for `keep_results_days` after their end (0: likewise).
    Machines elsewhere may join at `agents_host` and `agents_port` (0: none may); devices of one type are those on which
    the reference kernel takes less than `alike` times as long as on another.  With the `engine` "ray", or at the
    address of a cluster, its nodes work as well, and jobs live on them.  A job's own stages and its builds take
    `cores_a_job` (0: what is fair on this machine).  A cluster is asked for up to `grow_to` cores (0: never) when its
    queue is longer than `grow_after_s`.  Webhooks reach this machine and its private networks only with
    `local_webhooks`.  `isolation` says whether processes that read, compile and run uploaded models are confined: if
    this machine can ("auto"), always ("on": the service does not start otherwise), or never ("off").
    """

    data: str
    database: str = ""
    host: str = "127.0.0.1"
    port: int = 8190
    agents_host: str = "127.0.0.1"
    agents_port: int = 0
    alike: float = 1.5
    engine: str = "local"
    cores_a_job: int = 0
    grow_to: int = 0
    grow_after_s: float = 60.0
    device: str = "cpu"
    device_name: str = "local-cpu"
    target: str = "native"
    policy: str = "predictive"
    jobs_at_once: int = 3
    minutes: float = 30.0
    check_minutes: float = 10.0
    keep_days: float = 90.0
    keep_results_days: float = 0.0
    local_webhooks: bool = False
    isolation: Isolation = "auto"
    refresh_every: int = 2000  # measurements after which family models are trained anew

    @property
    def grows(self) -> bool:
        """Whether machines elsewhere may join."""
        return bool(self.agents_port) or self.engine != "local"

    @property
    def isolates(self) -> bool:
        """Whether processes that read, compile and run uploaded models are confined here."""
        return self.isolation == "on" or (self.isolation == "auto" and is_confinable())

    @property
    def directory(self) -> Path:
        """The data directory."""
        return Path(self.data)

    @property
    def file(self) -> Path:
        """Where these settings are, for commands about the service."""
        return self.directory / _FILE

    @property
    def service_database(self) -> str:
        """Where the service's own tables are."""
        return self.database or str(self.directory / "service.sqlite")

    @property
    def records(self) -> str:
        """Where the records are."""
        return self.database or str(self.directory / "records.sqlite")

    @property
    def content(self) -> Path:
        """The directory of the blob store."""
        return self.directory / "content"

    @property
    def exports(self) -> Path:
        """Where exports for download are made and kept for a while."""
        return self.directory / "exports"

    @property
    def work(self) -> Path:
        """Where jobs write while they are under way."""
        return self.directory / "work"

    @property
    def socket(self) -> Path:
        """Where the orchestrator listens for pokes."""
        return self.directory / "orchestrator.sock"


def settings_in(directory: Path) -> ServiceSettings | None:
    """What the service in this directory was started with last; None where there has been none.

    Raises:
        InputError: the file that says so cannot be read.
    """
    file = directory / _FILE
    if not file.exists():
        return None
    try:
        settings = msgspec.json.decode(file.read_bytes(), type=ServiceSettings)
        if "\0" in settings.data:
            raise msgspec.ValidationError("the name of its directory has a NUL character")
        return settings
    except (OSError, *UNREADABLE) as error:
        raise InputError(f"{file} cannot be read; remove it, and give `kintune serve` all its options again") from error
