"""`kintune serve`: autotuning as a service on this machine."""

from __future__ import annotations

import ipaddress
import socket
from contextlib import closing
from typing import Any, get_args

import click

from kintune.cli.finite_range import FiniteRange
from kintune.cli.options import policy_option
from kintune.cli.sections import SectionedCommand, Sections
from kintune.errors import InputError
from kintune.files import expanded
from kintune.scheduler.policies import policy as policy_of
from kintune.service.database import open_database
from kintune.service.job_request import MOST_MINUTES
from kintune.service.orchestrator.run_factory import LEAST_CHECK_MINUTES, JobHosts
from kintune.service.settings import Isolation, ServiceSettings, settings_in
from kintune.service.supervisor import PARTS, Supervisor, data_directory
from kintune.service.users import Users
from kintune.tuning.front.placement import choose_placement
from kintune.wire.confinement import is_confinable, require_isolation
from kintune.workers.fleet.ray_cluster import ray_address

__all__ = ["command"]


_SECTIONS: Sections = (
    ("Data and addresses", ("data", "host", "port", "database", "agents")),
    ("Devices and scheduling", ("device", "device_name", "jobs_at_once", "policy")),
    ("Limits", ("minutes", "check_minutes", "keep_days", "keep_results_days", "local_webhooks", "isolation")),
    ("Clusters, for experts", ("engine", "cores_a_job", "grow_to", "grow_after", "alike", "part")),
)


@click.command("serve", cls=SectionedCommand, sections=_SECTIONS, short_help="Run a service that tunes models.")
@click.option("--data", default="kintune-service", show_default=True, metavar="DIR", help="The directory of all data.")
@click.option(
    "--database",
    default="",
    metavar="URL",
    envvar="KINTUNE_DATABASE",
    help="A PostgreSQL database instead of files in the directory.  [default: $KINTUNE_DATABASE, or none]",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(1, 65535), default=8190, show_default=True, help="The port to listen on.")
@click.option("--device", default="cpu", show_default=True, help="The device for timing, as for 'kintune tune'.")
@click.option("--device-name", default="local-cpu", show_default=True, help="The name of that device type for users.")
@click.option(
    "--agents",
    metavar="HOST:PORT",
    callback=lambda _context, _option, text: _address(text),
    help="Where other machines join by 'kintune device start' and 'kintune worker start'.  [default: nowhere]",
)
@click.option(
    "--engine",
    default="local",
    show_default=True,
    metavar="ENGINE",
    help="'ray' to use the nodes of a Ray cluster as well, or its address, ray://HOST:10001.",
)
@click.option(
    "--cores-a-job",
    type=click.IntRange(1, 1024),
    metavar="N",
    help="Cores that the stages and builds of a job use.  [default: a fair share of this machine's]",
)
@click.option(
    "--grow-to",
    type=click.IntRange(1, 1_000_000),
    metavar="CORES",
    help="Let the Ray cluster grow to this many cores while the queue is long.  [default: no growth]",
)
@click.option(
    "--grow-after",
    type=FiniteRange(min=1.0),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="With --grow-to: the longest time that a job should wait in the queue.",
)
@click.option(
    "--alike",
    type=FiniteRange(min=1.0, min_open=True),
    default=1.5,
    show_default=True,
    help="Largest ratio of the time of the reference kernel on a device to that on others of its type.",
)
@policy_option("Which job is scheduled first")
@click.option("-j", "--jobs-at-once", type=click.IntRange(1, 64), default=3, show_default=True, help="Concurrent jobs.")
@click.option(
    "--minutes",
    type=FiniteRange(0, MOST_MINUTES, min_open=True),
    default=30.0,
    show_default=True,
    help="The time limit of jobs that give none.",
)
@click.option(
    "--check-minutes",
    type=FiniteRange(LEAST_CHECK_MINUTES, MOST_MINUTES),
    default=10.0,
    show_default=True,
    help="The longest time that checking a model may take, and one stage of a job.",
)
@click.option(
    "--keep-days",
    type=FiniteRange(min=0),
    default=90.0,
    show_default=True,
    help="Days for which models are kept; 0: for ever.",
)
@click.option(
    "--keep-results-days",
    type=FiniteRange(min=0),
    default=0.0,
    show_default=True,
    help="Days for which executables and logs of ended jobs are kept; 0: until they are deleted.",
)
@click.option("--local-webhooks", is_flag=True, help="Let webhooks call this machine and its private networks.")
@click.option(
    "--isolation",
    type=click.Choice(get_args(Isolation)),
    default="auto",
    show_default=True,
    help="Confine processes that read, compile and run models: if this machine can, always, or never.",
)
@click.option(
    "--part",
    type=click.Choice(["all", "web", "orchestrator"]),
    default="all",
    show_default=True,
    help="What to run here; the parts of one service share its directory.",
)
def command(
    data: str,
    agents: tuple[str, int],
    cores_a_job: int | None,
    grow_to: int | None,
    grow_after: float,
    part: str,
    **options: Any,
) -> None:
    """Start the REST API, the portal and the tuner on this machine, until Ctrl-C.

    All data are kept in one directory; the same command continues where it stopped.
    """
    policy_of(options["policy"])
    place = choose_placement(options["device"], None)
    settings = ServiceSettings(
        data=str(data_directory(expanded(data).absolute())),
        agents_host=agents[0],
        agents_port=agents[1],
        cores_a_job=cores_a_job or 0,
        grow_to=grow_to or 0,
        grow_after_s=grow_after,
        **options,
    )
    _check_kept(settings)
    if settings.isolation == "on":
        require_isolation()
    JobHosts(settings, place)
    if grow_to and settings.engine == "local":
        raise InputError(f"--grow-to {grow_to}: only a Ray cluster can grow; name one with --engine")
    ray_address(settings.engine)
    if part != "web" and agents[1]:
        _check_port(f"--agents {agents[0]}:{agents[1]}", *agents)
    if part != "orchestrator":
        _check_port(f"--host {settings.host} --port {settings.port}", settings.host, settings.port)
        _check_access(settings)
        click.echo(
            f"Kintune serves on {_url(settings.host, settings.port)}, data in {settings.data}; Ctrl-C ends it.",
            err=True,
        )
    if settings.isolation == "auto" and not is_confinable():
        click.echo("Models are not isolated here; 'kintune doctor' says what that takes.", err=True)
    parts = PARTS if part == "all" else (part,)
    Supervisor(settings, lambda line: click.echo(f"kintune: {line}", err=True), parts).run()


def _check_kept(settings: ServiceSettings) -> None:
    """Check that the kind of database is that of the last time.

    Raises:
        InputError: it is not, so all data would seem to be gone.
    """
    before = settings_in(settings.directory)
    if before is None or bool(before.database) == bool(settings.database):
        return
    if before.database:
        raise InputError(
            f"--data {settings.data}: this service is kept in PostgreSQL; name it with --database or $KINTUNE_DATABASE"
        )
    raise InputError(
        f"--data {settings.data}: this service is kept in files, not in PostgreSQL; leave --database (and "
        "$KINTUNE_DATABASE) out, or start a new service in another directory"
    )


def _address(text: str | None) -> tuple[str, int]:
    """Parse HOST:PORT; port 0 for None.

    Raises:
        InputError: `text` has another form.
    """
    if text is None:
        return "127.0.0.1", 0
    host, _, port = text.rpartition(":")
    if not (port.isdecimal() and len(port) < 6 and 0 < int(port) < 1 << 16):
        raise InputError(f"--agents {text!r}: must be HOST:PORT, such as 0.0.0.0:8191")
    return host.strip("[]") or "0.0.0.0", int(port)


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _check_port(option: str, host: str, port: int) -> None:
    """Check that a socket can listen at the address.

    Raises:
        InputError: it cannot.
    """
    try:
        (family, kind, protocol, _, address), *_ = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        with socket.socket(family, kind, protocol) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(address)
    except UnicodeError as error:
        raise InputError(f"{option}: {host!r} is no name of a machine") from error
    except OSError as error:
        raise InputError(
            f"{option}: the service cannot listen there ({error.strerror}); name another port, or free this one"
        ) from error


def _check_access(settings: ServiceSettings) -> None:
    """Check that an address other machines can reach is used only once a token exists.

    Raises:
        InputError: there is no token yet, and `host` is not a loopback address.
    """
    with closing(open_database(settings.service_database)) as database:
        anybody = Users(database).any_token()
    if anybody:
        return
    if not _is_loopback(settings.host):
        raise InputError(
            f"--host {settings.host}: no token exists yet, so the service listens on this machine only; create one "
            f"with: kintune service add-token --data {settings.data} --user NAME --scope admin"
        )
    click.echo(
        "No token exists yet, so the service listens on this machine only, and its users may do everything.  "
        "Once a token exists, every user needs one.  Create the first for yourself: "
        f"kintune service add-token --data {settings.data} --user NAME --scope admin",
        err=True,
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
