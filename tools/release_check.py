#!/usr/bin/env python3
"""The checklist of a release as one command: `make release-check`.

Builds what is released, installs it in an empty environment, and from there: opens databases that the version before
has written, tunes a small network, serves, and hands in a job over HTTP.  It ends at the first step that fails, with
what that step has printed and a line that names it.  Everything lies in a temporary folder, which is removed.

    --python PATH    another Python with which the release is installed, compiles a network and runs it; may be repeated
    --dist DIR       check what lies there already, instead of building it
    --index-options  further options of pip, such as "--no-index --find-links DIR"
    --keep           leave the folder where it is
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from checklist import Failed, Progress, Runner, Step, end_group, run_steps, span

ROOT = Path(__file__).resolve().parents[1]
CONSTRAINTS = ROOT / "constraints.txt"
NETWORK = ROOT / "benchmarks" / "one_layer.onnx"
OLD_DATABASES = ROOT / "tests" / "support" / "old_databases"
MODEL = "zoo:mobilenet_v1_0.5?image=64"
PATIENCE_S = 1200.0
INSTALL_S = 1800.0
TUNE_S = 1800.0
"""Limits on a machine that is busy; on an idle one each takes about a minute."""
ENVIRONMENT_BYTES = 1 << 30
"""About what one environment takes on the disk, and what pip unpacks meanwhile."""
SUPPORTED = ((3, 10), (3, 14))


_KEYS = """
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

key = Ed25519PrivateKey.generate()
with open("key.pem", "wb") as file:
    file.write(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
with open("public.pem", "wb") as file:
    file.write(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
"""


class ReleaseCheck:
    """The steps, in order; each takes from `folder` what an earlier one has left there."""

    def __init__(self, folder: Path, dist: Path | None, index_options: list[str], pythons: Sequence[Path] = ()) -> None:
        self.folder = folder
        self.dist = dist or folder / "dist"
        self.runner = Runner()
        self._build = dist is None
        self._index_options = index_options
        self._pythons = pythons
        self.home = folder / "environment"
        # Variables of this environment are left out, since a user has none of them; those of pip stay.
        own = re.compile(r"PYTHON\w*|VIRTUAL_ENV\w*|KINTUNE_\w+|XDG_(DATA|STATE)_HOME")
        self.bare = {name: value for name, value in os.environ.items() if not own.fullmatch(name)}
        self.environment = {
            **self.bare,
            "KINTUNE_RECORDS": str(folder / "records.sqlite"),
            "KINTUNE_LOCK_DIR": str(folder / "locks"),
            "XDG_DATA_HOME": str(folder / "user"),
            "XDG_STATE_HOME": str(folder / "user"),
            "XDG_CACHE_HOME": str(folder / "user"),
            "PYTHONSAFEPATH": "1",
        }

    def steps(self) -> list[Step]:
        """The steps, with about the seconds that they take on two cores."""
        building = [
            Step("build wheels and sources", 45, self.build),
            Step("build them again in another folder: the same bytes", 60, self.build_again),
            Step("build from the sources alone", 40, self.build_sources),
        ]
        return [
            Step("look at the version and the changes", 1, self.look),
            *(building if self._build else [Step("look at the files of the release", 1, self.build)]),
            Step("install in an empty environment", 90, self.install),
            Step("open records of schema 1", 10, self.upgrade_records),
            Step("tune a small network, with these records", 60, self.tune),
            Step("sign the wheels and the result, verify them", 10, self.sign),
            Step("serve: hand in a job over HTTP, run the result", 30, self.serve),
            Step("serve from a database of revision 0002, do the job in it", 40, self.upgrade_service),
            *(
                Step(f"Python {version_of(python)}: install, compile, run", 90, partial(self.try_python, python))
                for python in self._pythons
            ),
        ]

    def look(self) -> str:
        """Compares the version with the top section of the changes."""
        version = own_version()
        top = next(line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("## "))
        if top.removeprefix("## ").partition(", ")[0] != version:
            raise Failed(f"the version is {version}, and the top section of CHANGELOG.md is {top!r}")
        return f"version {version}, {top.partition(', ')[2] or 'without a date'}{self._uncommitted()}"

    def _uncommitted(self) -> str:
        """How many files differ from what is committed, as the end of a sentence."""
        if not (ROOT / ".git").exists() or shutil.which("git") is None:
            return ""
        changed = self.runner.run("git", "status", "--porcelain", folder=ROOT).splitlines()
        return f"; {counted(len(changed), 'file')} not as committed" if changed else ""

    def build(self) -> str:
        """Builds wheels and sources, or looks whether those that lie there are of this version."""
        if self._build:
            environment = {**self.bare, "PYTHON": sys.executable}
            self.runner.run(ROOT / "tools" / "distributions", self.dist, folder=ROOT, environment=environment)
        found = sorted(path.name for path in self.dist.iterdir() if path.is_file())
        version = own_version()
        wanted = [f"{name}-{version}{end}" for name in ("kintune", "kintune_runtime") for end in ("-*.whl", ".tar.gz")]
        if len(found) != len(wanted) or not all(fnmatch.filter(found, pattern) for pattern in wanted):
            raise Failed(
                f"{self.dist} holds {', '.join(found) or 'nothing'}: a wheel and a source of each package are expected"
                f", of version {version}"
            )
        others = sorted(path.name for path in (self.dist / "other_machines").glob("*"))
        if not others or fnmatch.filter(others, f"kintune_runtime-{version}-*.whl") != others:
            raise Failed(
                f"{self.dist}/other_machines holds {', '.join(others) or 'nothing'}: wheels of the runtime are expected"
                f", of version {version}"
            )
        return ", ".join([*found, *(f"other_machines/{name}" for name in others)])

    def build_again(self) -> str:
        """Builds a copy of the tree, elsewhere and with other settings of the environment, and compares all files."""
        copy, again = self.folder / "another place" / "tree", self.folder / "again"
        copy.mkdir(parents=True)
        for name in self._tree():
            target = copy / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target)
        other = {"PYTHON": sys.executable, "TZ": "Pacific/Chatham", "LC_ALL": "C", "PYTHONHASHSEED": "7"}
        command = 'umask 077; exec "$0" "$1"'
        self.runner.run(
            "bash",
            "-c",
            command,
            copy / "tools" / "distributions",
            again,
            folder=copy,
            environment={**self.bare, **other},
        )
        first, second = digests_of(self.dist), digests_of(again)
        if first.keys() != second.keys():
            raise Failed(f"the second time other files are built: {', '.join(sorted(first.keys() ^ second.keys()))}")
        if differing := [name for name, digest in first.items() if second[name] != digest]:
            raise Failed(f"built again, these files differ: {', '.join(differing)}")
        for wheel in self.dist.rglob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                if not any(".dist-info/sboms/" in name for name in archive.namelist()):
                    raise Failed(f"{wheel.name} has no bill of materials")
        return f"{counted(len(first), 'file')}, each with the same SHA-256 digest"

    def _tree(self) -> list[str]:
        """The files of the tree that are not ignored."""
        if (ROOT / ".git").exists() and shutil.which("git") is not None:
            listed = self.runner.run("git", "ls-files", "-z", "-co", "--exclude-standard", folder=ROOT)
            return [name for name in listed.split("\0") if name and (ROOT / name).is_file()]
        made = re.compile(r"(\.|dist/|build/|site/).*|.*(__pycache__/.*|\.so)")
        found = (path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*") if path.is_file())
        return [name for name in found if not made.fullmatch(name)]

    def build_sources(self) -> str:
        """Builds a wheel of each source, in an environment of its own that pip makes."""
        wheels = self.folder / "from_sources"
        options = ["--quiet", "--no-deps", "--wheel-dir", wheels, *self._index_options]
        self._pip(Path(sys.executable), "wheel", *options, *sorted(self.dist.glob("*.tar.gz")))
        return ", ".join(sorted(path.name for path in wheels.iterdir()))

    def install(self) -> str:
        """Installs the wheels with the extras `service` and `sign`."""
        return self._install(Path(sys.executable), self.home, "[service,sign]")

    def upgrade_records(self) -> str:
        """Opens the records of the version before: what they hold is listed, and they are sound."""
        path = from_text((OLD_DATABASES / "records_2.sql").read_text(), Path(self.environment["KINTUNE_RECORDS"]))
        listed = json.loads(self.kintune("records", "list", "--json", "-"))
        if not listed["runs"]:
            raise Failed("the run in the old records is gone")
        self.kintune("records", "check")
        with closing(sqlite3.connect(path)) as connection:
            (version,) = connection.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone()
        if version == "2":
            raise Failed("the records are still of schema 2")
        return f"schema {version}; {counted(len(listed['runs']), 'run')} in them"

    def tune(self) -> str:
        """Tunes, and times the result; the records hold the old run and the new one."""
        self.kintune("tune", MODEL, "--trials", "32", "--output", "small.kt")
        runs = json.loads(self.kintune("records", "list", "--json", "-"))["runs"]
        if len(runs) != 2:
            raise Failed(f"the records hold {counted(len(runs), 'run')}; there should be the old one and the new one")
        return self.kintune("evaluate", "small.kt", "--repeats", "3").splitlines()[0]

    def sign(self) -> str:
        """Signs copies of the wheels, and the result, with a new key; one that is altered afterwards is refused."""
        signed = self.folder / "signed"
        signed.mkdir()
        for path in (*self.dist.rglob("*.whl"), self.folder / "small.kt"):
            shutil.copy(path, signed)
        python = self.home / "bin" / "python"
        self.runner.run(python, "-c", _KEYS, folder=self.folder, environment=self.environment)
        files = sorted(map(str, signed.iterdir()))
        self.kintune("sign", *files, "--key", "key.pem")
        self.kintune("verify", *files, "--key", "public.pem")
        for name in files:
            content = bytearray(Path(name).read_bytes())
            content[-1] ^= 1
            Path(name).write_bytes(content)
            try:
                self.kintune("verify", name, "--key", "public.pem")
            except Failed:
                continue
            raise Failed(f"{name} was altered, and its signature is said to be right")
        return f"{counted(len(files), 'file')} signed and verified; none once it was altered"

    def serve(self) -> str:
        """Submits a job over HTTP, and runs the executable that it makes."""
        with self.serving("data") as ask:
            model = ask("POST", "/api/v1/models?name=one_layer.onnx", NETWORK.read_bytes())
            body = json.dumps({"model": model["id"], "wanted": {"trials": 8}}).encode()
            return self._result_of(ask, ask("POST", "/api/v1/jobs", body)["id"], "served.kt")

    def upgrade_service(self) -> str:
        """Serves from the directory of a service of the version before, whose job was still to be done."""
        data = self.folder / "old-service"
        digest = hashlib.sha256(NETWORK.read_bytes()).hexdigest()
        kept = data / "content" / digest[:2] / digest
        kept.parent.mkdir(parents=True)
        shutil.copy(NETWORK, kept)
        text = (OLD_DATABASES / "service_0002.sql").read_text().replace("0" * 64, digest)
        database = from_text(text, data / "service.sqlite")
        users = self.kintune("service", "users", "--data", str(data))
        if "anna" not in users:
            raise Failed("the user of the old service is gone", users)
        token = self.kintune("service", "add-token", "--data", str(data), "--user", "anna").strip()
        with closing(sqlite3.connect(database)) as connection:
            (revision,) = connection.execute("SELECT version_num FROM service_alembic").fetchone()
            ((job, wanted),) = connection.execute("SELECT id, wanted FROM service_jobs").fetchall()
        if revision == "0002" or "target_ms" in json.loads(wanted):
            raise Failed(
                f"the database is of revision {revision}, and its job wants {wanted}: it was not brought up to date"
            )
        with self.serving("old-service", token) as ask:
            return f"revision {revision}; {self._result_of(ask, job, 'old.kt')}"

    def try_python(self, python: Path) -> str:
        """Installs with another Python, compiles a small network there, and runs it."""
        home = self.folder / f"environment-{self._pythons.index(python)}"
        try:
            said = self._install(python, home, "")
            executable = f"{home.name}.kt"
            self.kintune("compile", MODEL, "--output", executable, home=home)
            timed = self.kintune("evaluate", executable, "--repeats", "3", home=home).splitlines()[0]
        finally:
            shutil.rmtree(home, ignore_errors=True)
        return f"{said}; {timed}"

    def _install(self, python: Path, home: Path, extras: str) -> str:
        """Makes an environment with the wheels in it; returns the version that the command in it says."""
        self.runner.run(python, "-m", "venv", home, folder=self.folder, environment=self.bare)
        (kintune,) = self.dist.glob("kintune-*.whl")
        others = [path for path in self.dist.glob("*.whl") if path != kintune]
        # What has no wheel for this Python is named at once, rather than built for minutes.
        options = ["--quiet", "--only-binary", ":all:", "--constraint", CONSTRAINTS, *self._index_options]
        self._pip(home / "bin" / "python", "install", *options, f"{kintune}{extras}", *others)
        said = self.kintune("--version", home=home).strip()
        if said.split()[1] not in kintune.name:
            raise Failed(f"{kintune.name} says that it is {said}")
        return said

    def _pip(self, python: Path, *words: object) -> None:
        """Runs pip; once more if it fails, since networks fail now and then."""
        command = (python, "-m", "pip", "--disable-pip-version-check", *words)
        once = partial(self.runner.run, *command, folder=self.folder, environment=self.bare, limit_s=INSTALL_S)
        try:
            once()
        except Failed:
            once()

    def _result_of(self, ask: Ask, job: str, name: str) -> str:
        """Waits for a job, and runs its executable; returns a line with the latency."""
        look = partial(ask, "GET", f"/api/v1/jobs/{job}")
        ended = wait_for(look, lambda found: found["ended"], tick=partial(self.runner.tick, f"job {job}"))
        if ended["state"] != "done":
            raise Failed(f"job {job} ended as {ended['state']}: {ended['reason']}")
        (self.folder / name).write_bytes(ask.fetch(f"/api/v1/jobs/{job}/executable"))
        return f"job {job} is done; {self.kintune('evaluate', name, '--repeats', '3').splitlines()[0]}"

    def kintune(self, *words: str, home: Path | None = None) -> str:
        """Runs the command that was installed."""
        command = (home or self.home) / "bin" / "kintune"
        return self.runner.run(command, *words, folder=self.folder, environment=self.environment, limit_s=TUNE_S)

    @contextmanager
    def serving(self, data: str, token: str = "") -> Iterator[Ask]:
        """Serves from a directory until the block ends; yields an `Ask` for the service."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        log = self.folder / f"{data}.log"
        command = [str(self.home / "bin" / "kintune"), "serve", "--data", data, "--port", str(port)]
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, cwd=self.folder, env=self.environment, stdout=output, stderr=output, start_new_session=True
            )
        try:
            ask = Ask(f"http://127.0.0.1:{port}", token)
            tick = partial(self.runner.tick, "waits for the service")
            wait_for(ask.ready, bool, lambda: process.poll() is not None, tick)
            yield ask
            process.send_signal(signal.SIGTERM)
            code = process.wait(60)
            if code != 0:
                raise Failed(f"the service ended with code {code}")
        except subprocess.TimeoutExpired:
            raise Failed("the service does not end within a minute of SIGTERM", last_of(log)) from None
        except Failed as error:
            raise Failed(str(error), f"{error.printed}\n{last_of(log)}".strip()) from error
        finally:
            end_group(process)


def digests_of(folder: Path) -> dict[str, str]:
    """The SHA-256 digests of all files in a folder, by their names in it."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def own_version() -> str:
    """The version in the source tree."""
    (version,) = re.findall(r'^__version__ = "(.+)"', (ROOT / "src/kintune/core/version.py").read_text(), re.M)
    return str(version)


class Ask:
    """Sends requests to a service, past any proxy; call it with a method, a path, and a body."""

    def __init__(self, url: str, token: str = "") -> None:
        self._url = url
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def __call__(self, method: str, path: str, body: bytes | None = None) -> dict[str, Any]:
        """The answer, decoded from JSON.

        Raises:
            Failed: the answer is an error, or none comes.
        """
        document: dict[str, Any] = json.loads(self.fetch(path, method, body))
        return document

    def fetch(self, path: str, method: str = "GET", body: bytes | None = None) -> bytes:
        """The body of the answer.

        Raises:
            Failed: the answer is an error, or none comes.
        """
        kind = {"Content-Type": "application/json"} if body and path.endswith("/jobs") else {}
        request = urllib.request.Request(
            f"{self._url}{path}", data=body, method=method, headers={**self._headers, **kind}
        )
        try:
            with self._opener.open(request, timeout=60) as answer:
                content: bytes = answer.read()
                return content
        except urllib.error.HTTPError as error:
            raise Failed(f"{method} {path}: {error.code} {error.read().decode(errors='replace')[:500]}") from error
        except OSError as error:
            raise Failed(f"{method} {path}: {error}") from error

    def ready(self) -> bool:
        """Whether the service takes jobs."""
        try:
            self._opener.open(f"{self._url}/readyz", timeout=5).close()
        except OSError:
            return False
        return True


def from_text(script: str, path: Path) -> Path:
    """Makes a database of these statements."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)
    return path


def wait_for(
    look: Callable[[], Any],
    enough: Callable[[Any], Any],
    gone: Callable[[], bool] = lambda: False,
    tick: Callable[[], None] = lambda: None,
) -> Any:
    """Calls `look` until `enough` is true of its result; returns that result.

    Raises:
        Failed: that takes longer than `PATIENCE_S` seconds, or `gone` is true.
    """
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and not gone():
        if enough(seen := look()):
            return seen
        tick()
        time.sleep(0.2)
    raise Failed("the service does not come up" if gone() else f"nothing came of it within {span(PATIENCE_S)}")


def last_of(log: Path) -> str:
    """The last 3000 characters of a service's log."""
    return log.read_text(errors="replace")[-3000:]


def counted(count: int, thing: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def version_of(python: Path) -> str:
    """The version of a Python, such as 3.12.1.

    Raises:
        Failed: it is none that a release is for, or can make no environments.
    """
    probe = "import ensurepip, platform, venv; print(platform.python_version())"
    try:
        said = Runner().run(python, "-c", probe, folder=ROOT, limit_s=60).strip()
    except Failed as error:
        raise Failed(f"--python {python}: {error}", error.printed) from error
    least, most = SUPPORTED
    if not least <= tuple(map(int, said.split(".")[:2])) <= most:
        raise Failed(f"--python {python} is Python {said}; a release is for {'.'.join(map(str, least))} to 3.{most[1]}")
    return said


def check_space(folder: Path, environments: int) -> None:
    """Looks whether the disk has room.

    Raises:
        Failed: it has less than the environments take.
    """
    needed = (3 if environments else 2) * ENVIRONMENT_BYTES
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise Failed(
            f"{folder} has {free / 1e9:.1f} GB free, {needed / 1e9:.1f} are needed; TMPDIR names another folder"
        )


def main(argv: list[str] | None = None) -> int:
    """Runs the steps; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--python", type=Path, action="append", default=[], help="another Python to try; may be repeated"
    )
    parser.add_argument("--dist", type=Path, help="check what lies there already, instead of building it")
    parser.add_argument("--index-options", default="", help="further options of pip, as one text")
    parser.add_argument("--keep", action="store_true", help="leave the folder with everything where it is")
    options = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder = Path(tempfile.mkdtemp(prefix="kintune-release-"))
    dist = options.dist.resolve() if options.dist else None
    check = ReleaseCheck(folder, dist, shlex.split(options.index_options), [each.absolute() for each in options.python])
    begun = time.monotonic()
    try:
        check_space(folder, len(options.python))
        steps = check.steps()
        progress = Progress(steps)
        check.runner.tick = progress.tick
        well = run_steps(progress, steps)
    except Failed as error:
        print(f"{error.printed}\nrelease-check: {error}".strip(), flush=True)
        return 2
    except KeyboardInterrupt:
        print("\ninterrupted", flush=True)
        return 130
    finally:
        if options.keep:
            print(f"everything lies in {folder}", flush=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    if well:
        print(f"can be released: all of it took {span(time.monotonic() - begun)}")
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
