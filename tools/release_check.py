#!/usr/bin/env python3
"""The checklist of a release as one command: `make release-check`.

Builds what is released, installs it in an empty environment, tunes a small network there, serves and hands in a job
over HTTP, and opens databases that the version before has written.  It ends at the first step that fails, with the
output of that step; everything lies in a temporary folder, which is removed.

    --dist DIR       check what lies there already, instead of building it
    --index-options  further options of pip, such as "--no-index --find-links DIR"
"""

from __future__ import annotations

import argparse
import json
import os
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
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CONSTRAINTS = ROOT / "constraints.txt"
NETWORK = ROOT / "benchmarks" / "one_layer.onnx"
OLD_DATABASES = ROOT / "tests" / "support" / "old_databases"
MODEL = "zoo:mobilenet_v1_0.5?image=64"
PATIENCE_S = 900.0


class Failed(Exception):
    """A step went wrong; its text says how."""


def run(*command: object, folder: Path, environment: Mapping[str, str] | None = None) -> str:
    """Runs a command; returns what it prints.

    Raises:
        Failed: it ends with another code than 0; the message has its last lines.
    """
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
        raise Failed(f"{shlex.join(words)} ended with code {done.returncode}:\n{last}")
    return done.stdout


class ReleaseCheck:
    """The steps, in order; each takes from `folder` what an earlier one has left there."""

    def __init__(self, folder: Path, dist: Path | None, index_options: list[str]) -> None:
        self.folder = folder
        self.dist = dist or folder / "dist"
        self._build = dist is None
        self._index_options = index_options
        self.home = folder / "environment"
        # Nothing of this environment: what is checked is what a user has.
        kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
        own = {"KINTUNE_RECORDS": str(folder / "records.sqlite"), "KINTUNE_LOCK_DIR": str(folder / "locks")}
        self.environment = {**kept, **own, "PYTHONSAFEPATH": "1"}

    def steps(self) -> list[tuple[str, Callable[[], str]]]:
        """The steps by what they do; each returns a line to show."""
        return [
            ("build wheels and sources", self.build),
            ("build from the sources alone", self.build_sources),
            ("install in an empty environment", self.install),
            ("tune a small network", self.tune),
            ("open records of schema 1", self.upgrade_records),
            ("open a service's database of revision 0002", self.upgrade_service),
            ("serve: hand in a job over HTTP, fetch the result", self.serve),
        ]

    def build(self) -> str:
        """Builds wheels and sources."""
        if self._build:
            environment = {**os.environ, "PYTHON": sys.executable}
            run(ROOT / "tools" / "distributions", self.dist, folder=ROOT, environment=environment)
        found = sorted(path.name for path in self.dist.iterdir() if path.is_file())
        if len(found) != 4:
            raise Failed(f"{self.dist} holds {', '.join(found)}: a wheel and a source of each package are expected")
        return ", ".join(found)

    def build_sources(self) -> str:
        """Builds a wheel of each source, in an environment of its own that pip makes."""
        wheels = self.folder / "from_sources"
        options = ["--no-deps", "--wheel-dir", wheels, *self._index_options]
        run(sys.executable, "-m", "pip", "wheel", "--quiet", *options, *self.dist.glob("*.tar.gz"), folder=self.folder)
        return ", ".join(sorted(path.name for path in wheels.iterdir()))

    def install(self) -> str:
        """Installs the wheels with the extra `service`."""
        run(sys.executable, "-m", "venv", self.home, folder=self.folder)
        (kintune,) = self.dist.glob("kintune-*.whl")
        others = [path for path in self.dist.glob("*.whl") if path != kintune]
        options = ["--quiet", "--constraint", CONSTRAINTS, *self._index_options]
        run(self._python, "-m", "pip", "install", *options, f"{kintune}[service]", *others, folder=self.folder)
        said = self.kintune("--version").strip()
        if said.split()[1] not in kintune.name:
            raise Failed(f"{kintune.name} says that it is {said}")
        return said

    def tune(self) -> str:
        """Tunes, and times the result."""
        self.kintune("tune", MODEL, "--trials", "32", "--output", "small.kt")
        return self.kintune("evaluate", "small.kt", "--repeats", "3").splitlines()[0]

    def upgrade_records(self) -> str:
        """Opens the records of the version before: what they hold is listed, and they are sound."""
        path = from_text(OLD_DATABASES / "records_1.sql", self.folder / "old-records.sqlite")
        listed = json.loads(self.kintune("records", "list", "--records", str(path), "--json", "-"))
        if not listed["runs"]:
            raise Failed("the run in the old records is gone")
        self.kintune("records", "check", "--records", str(path))
        with closing(sqlite3.connect(path)) as connection:
            (version,) = connection.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone()
        if version == "1":
            raise Failed("the records are still of schema 1")
        return f"schema {version}; {len(listed['runs'])} run is there"

    def upgrade_service(self) -> str:
        """Opens the database of a service of the version before: its users are there."""
        data = self.folder / "old-service"
        data.mkdir()
        from_text(OLD_DATABASES / "service_0002.sql", data / "service.sqlite")
        users = self.kintune("service", "users", "--data", str(data))
        if "anna" not in users:
            raise Failed(f"the user of the old service is gone: {users}")
        with closing(sqlite3.connect(data / "service.sqlite")) as connection:
            (revision,) = connection.execute("SELECT version_num FROM service_alembic").fetchone()
            wanted = [json.loads(text) for (text,) in connection.execute("SELECT wanted FROM service_jobs")]
        if not wanted or any("target_ms" in each for each in wanted):
            raise Failed(f"the jobs of the old service were not brought up to date: {wanted}")
        return f"revision {revision}; its user and {len(wanted)} job are there"

    def serve(self) -> str:
        """Hands in a job over HTTP, as any program would, and fetches what comes of it."""
        with self.serving() as url:
            model = ask("POST", f"{url}/api/v1/models?name=one_layer.onnx", NETWORK.read_bytes())
            body = json.dumps({"model": model["id"], "wanted": {"trials": 8}}).encode()
            job = ask("POST", f"{url}/api/v1/jobs", body, {"Content-Type": "application/json"})
            job = wait_for(lambda: ask("GET", f"{url}/api/v1/jobs/{job['id']}"), lambda found: found["ended"])
            if job["state"] != "done":
                raise Failed(f"the job ended as {job['state']}: {job['reason']}")
            with urllib.request.urlopen(f"{url}/api/v1/jobs/{job['id']}/executable", timeout=60) as answer:
                (self.folder / "served.kt").write_bytes(answer.read())
        self.kintune("evaluate", "served.kt", "--repeats", "3")
        return f"job {job['id']} is done"

    @property
    def _python(self) -> Path:
        return self.home / "bin" / "python"

    def kintune(self, *words: str) -> str:
        """Runs the command that was installed."""
        return run(self.home / "bin" / "kintune", *words, folder=self.folder, environment=self.environment)

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Serves until the block ends; gives the address."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        log = self.folder / "serve.log"
        command = [str(self.home / "bin" / "kintune"), "serve", "--data", "data", "--port", str(port)]
        with log.open("wb") as output:
            process = subprocess.Popen(command, cwd=self.folder, env=self.environment, stderr=output)
        try:
            url = f"http://127.0.0.1:{port}"
            wait_for(lambda: ready(url), bool, lambda: process.poll() is not None)
            yield url
        except Failed as error:
            raise Failed(f"{error}\n{log.read_text(errors='replace')[-2000:]}") from error
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                code = process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                raise Failed("the service does not end within a minute of SIGTERM") from None
        if code != 0:
            raise Failed(f"the service ended with code {code}")


def from_text(script: Path, path: Path) -> Path:
    """Makes a database of the statements in a file."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script.read_text())
    return path


def ask(method: str, url: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Sends a request; returns the JSON that is answered.

    Raises:
        Failed: the answer is an error.
    """
    request = urllib.request.Request(url, data=body, method=method, headers=dict(headers or {}))
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            document: dict[str, Any] = json.load(answer)
            return document
    except urllib.error.HTTPError as error:
        raise Failed(f"{method} {url}: {error.code} {error.read().decode(errors='replace')[:500]}") from error


def ready(url: str) -> bool:
    """Whether a service takes jobs."""
    try:
        urllib.request.urlopen(f"{url}/readyz", timeout=5).close()
    except OSError:
        return False
    return True


def wait_for(look: Callable[[], Any], enough: Callable[[Any], Any], gone: Callable[[], bool] = lambda: False) -> Any:
    """Looks until it is enough; returns what was seen last.

    Raises:
        Failed: it is not within a quarter of an hour, or what is looked at is gone.
    """
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and not gone():
        if enough(seen := look()):
            return seen
        time.sleep(0.2)
    raise Failed("the service does not come up" if gone() else f"nothing came of it within {PATIENCE_S:.0f} s")


def main(argv: list[str] | None = None) -> int:
    """Runs the steps; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dist", type=Path, help="check what lies there already, instead of building it")
    parser.add_argument("--index-options", default="", help="further options of pip, as one text")
    options = parser.parse_args(argv)
    folder = Path(tempfile.mkdtemp(prefix="kintune-release-"))
    dist = options.dist.resolve() if options.dist else None
    check = ReleaseCheck(folder, dist, shlex.split(options.index_options))
    begun = time.monotonic()
    try:
        for name, step in check.steps():
            since = time.monotonic()
            print(f"{name} ...", end=" ", flush=True)
            print(f"{step()} ({time.monotonic() - since:.0f} s)", flush=True)
    except Failed as error:
        print(f"failed\n{error}", flush=True)
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"can be released: all of it took {time.monotonic() - begun:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
