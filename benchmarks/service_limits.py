"""Attacks a service as a user might, and measures what the limits of docs/service.md promise.

    python benchmarks/service_limits.py [--chains 20000] [--only NAME ...]

It starts a service of its own with tokens of two users, sends loopback requests alone, and ends by itself:

* `graph`: a chain of 200,000 nodes is refused within 60 s and 1 GB, with the limit that it met;
* `short`: a job of 0.2 minutes ends within 30 s after its check;
* `hostile`: while three jobs of one user are in a check that takes as long as it may, another user's job begins within
  ten seconds of a free core, and the check ends with its limit;
* `headers`, `bodies`: half-sent headers and stalled uploads are closed, while the service answers others;
* `declared`: a body whose declared length is too large is refused before it is sent.

Results go to `notebook/results/service_limits.json`.
"""

from __future__ import annotations

import argparse
import datetime
import json
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import onnx
import psutil
from onnx import TensorProto, helper

from kintune.service.client import Client
from kintune.testing.serving import Serving, serving

RESULTS = Path(__file__).parents[1] / "notebook/results" / "service_limits.json"
_PATIENCE_S = 900.0
_LOOK_S = 0.25


def main() -> None:
    """Run the attacks one after the other, print and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chains", type=int, default=20_000, help="nodes of the hostile models")
    parser.add_argument("--connections", type=int, default=300, help="half-sent headers; a third as many uploads")
    parser.add_argument("--only", nargs="*", default=list(ATTACKS), choices=list(ATTACKS))
    options = parser.parse_args()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        data = Path(name) / "data"
        tokens = {user: token_of(data, user) for user in ("anna", "mallory")}
        with serving(data) as service:
            for attack in options.only:
                found[attack] = ATTACKS[attack](Case(service, tokens, Path(name), options))
                print(json.dumps({attack: found[attack]}), flush=True)
    document = {"date": datetime.date.today().isoformat(), "options": vars(options), **found}
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(document, indent=1) + "\n")


class Case:
    """A running service, and the clients of its users."""

    def __init__(self, service: Serving, tokens: dict[str, str], folder: Path, options: argparse.Namespace) -> None:
        self.service = service
        self.folder = folder
        self.options = options
        self.tokens = tokens
        self.address = (urlsplit(service.url).hostname or "", urlsplit(service.url).port or 0)

    def client(self, user: str) -> Client:
        """A client of this user."""
        return Client(self.service.url, self.tokens[user])

    def stages(self, user: str) -> list[dict[str, Any]]:
        """The stages of the last minutes; those of others' jobs have no name."""
        headers = {"Authorization": f"Bearer {self.tokens[user]}"}
        answer = httpx.get(f"{self.service.url}/api/v1/resources", headers=headers, timeout=30)
        found: list[dict[str, Any]] = answer.json()["stages"]
        return found


def token_of(data: Path, user: str) -> str:
    """A token of a new user; the first one makes the data directory."""
    command = [sys.executable, "-m", "kintune", "service", "add-token", "--data", str(data), "--user", user]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def chain(path: Path, nodes: int, marker: int = 0) -> Path:
    """A model of so many Relu nodes, one after the other."""
    each = [helper.make_node("Relu", [f"v{n}"], [f"v{n + 1}"]) for n in range(nodes)]
    shape = [1, 16 + marker]
    ends = [helper.make_tensor_value_info(f"v{n}", TensorProto.FLOAT, shape) for n in (0, nodes)]
    model = helper.make_model(
        helper.make_graph(each, "chain", ends[:1], ends[1:]), opset_imports=[helper.make_opsetid("", 17)]
    )
    onnx.save(model, path)
    return path


def graph(case: Case) -> dict[str, Any]:
    """Upload a chain of 200,000 nodes; the seconds until it is refused, and the largest memory of its inspection."""
    path, peak, over = chain(case.folder / "long.onnx", 200_000), [0.0], threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            for process in psutil.Process(case.service.process.pid).children(recursive=True):
                try:
                    if "upload_inspection" in " ".join(process.cmdline()):
                        peak[0] = max(peak[0], process.memory_info().rss / 1e6)
                except psutil.Error:
                    continue

    watcher = threading.Thread(target=watch)
    watcher.start()
    begun, said = time.monotonic(), ""
    try:
        with case.client("mallory") as client:
            client.upload(path)
    except Exception as error:
        said = str(error)
    over.set()
    watcher.join()
    return {"seconds": time.monotonic() - begun, "peak_mb": peak[0], "said": said.partition(": ")[2]}


def short(case: Case) -> dict[str, Any]:
    """Tune a small model for 0.2 minutes; the seconds of its check, and from there to its end."""
    path = chain(case.folder / "short.onnx", 8, 48)
    with case.client("anna") as client:
        job = client.submit(client.upload(path)["id"], minutes=0.2)["id"]
        ended = until(client, job, lambda found: found["state"] in ("done", "failed"))
    at = {step["state"]: step["at"] for step in ended["steps"]}
    checked = at.get("tuning", at.get("packaging", ended["ended"]))
    return {
        "state": ended["state"],
        "reason": ended["reason"],
        "check_s": checked - at["checking"],
        "after_check_s": ended["ended"] - checked,
    }


def hostile(case: Case) -> dict[str, Any]:
    """Three jobs of one user that are checked for ever; when another user's job begins, and how the others end."""
    with case.client("mallory") as mallory, case.client("anna") as anna:
        theirs = []
        for number in range(3):
            model = mallory.upload(chain(case.folder / f"hostile{number}.onnx", case.options.chains, number + 1))
            theirs.append(mallory.submit(model["id"], minutes=0.2)["id"])
        until(mallory, theirs[0], lambda found: found["state"] != "queued")
        queued = [mallory.job(job)["reason"] for job in theirs]
        model = anna.upload(chain(case.folder / "honest.onnx", 8, 9))
        begun = time.monotonic()
        mine = anna.submit(model["id"], minutes=0.2)["id"]
        until(anna, mine, lambda found: found["state"] != "queued")
        slot_s, told, at_work = time.monotonic() - begun, dict[str, None](), list[float]()

        def has_begun(found: dict[str, Any]) -> bool:
            told[found["reason"]] = None
            at_work.extend(stage["begin"] for stage in case.stages("anna") if stage["job"] == mine)
            return bool(at_work)

        until(anna, mine, has_begun)
        ends = [until(mallory, job, lambda found: found["ended"]) for job in theirs]
        steps = [{step["state"]: step["at"] for step in end["steps"]} for end in ends]
        return {
            "other_user_has_a_slot_after_s": slot_s,
            "other_user_is_told": list(told),
            "other_user_is_at_work_after_a_core_is_free_s": at_work[0] - min(end["ended"] for end in ends),
            "hostile_are_told": queued,
            "hostile_end_with": [end["reason"] for end in ends],
            "hostile_check_s": [end["ended"] - at["checking"] for end, at in zip(ends, steps, strict=True)],
        }


def headers(case: Case) -> dict[str, Any]:
    """Open many connections with half of a header; how many are open after 30 s, and how the service answers."""
    return stalled(case, case.options.connections, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Half: ")


def bodies(case: Case) -> dict[str, Any]:
    """Begin many uploads and send no more; likewise."""
    token = case.tokens["mallory"].encode()
    head = b"POST /api/v1/models HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + token
    return stalled(case, case.options.connections // 3, head + b"\r\nContent-Length: 1000000\r\n\r\nbeginning")


def stalled(case: Case, count: int, sent: bytes) -> dict[str, Any]:
    """Open connections, send this on each, and wait; all is closed at the end."""
    with ExitStack() as stack:
        opened = []
        for _ in range(count):
            connection = stack.enter_context(socket.create_connection(case.address, timeout=5))
            connection.sendall(sent)
            connection.setblocking(False)
            opened.append(connection)
        begun = time.monotonic()
        with case.client("anna") as client:
            client.jobs()
        answer_s = time.monotonic() - begun
        time.sleep(30.0)
        return {"opened": count, "open_after_30_s": sum(map(is_open, opened)), "another_is_answered_after_s": answer_s}


def is_open(connection: socket.socket) -> bool:
    """Whether the other end has not closed it; what has come is read."""
    try:
        while connection.recv(1 << 16):
            pass
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def declared(case: Case) -> dict[str, Any]:
    """Declare 10 GB; the first line of the answer, before any of it is sent."""
    token = case.tokens["mallory"].encode()
    head = b"POST /api/v1/models HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + token
    with socket.create_connection(case.address, timeout=30) as connection:
        connection.sendall(head + b"\r\nContent-Length: 10000000000\r\n\r\n")
        return {"answer": connection.recv(1 << 16).split(b"\r\n")[0].decode()}


def until(client: Client, job: str, reached: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    """The job as soon as it is as wanted.

    Raises:
        SystemExit: it is not for a quarter of an hour.
    """
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        found = client.job(job)
        if reached(found):
            return found
        time.sleep(_LOOK_S)
    raise SystemExit(f"job {job} is {found['state']}: {found['reason']}")


ATTACKS: dict[str, Callable[[Case], dict[str, Any]]] = {
    "graph": graph,
    "declared": declared,
    "headers": headers,
    "bodies": bodies,
    "short": short,
    "hostile": hostile,
}

if __name__ == "__main__":
    main()
