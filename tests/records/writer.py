"""Processes that write records until they are killed or fail; run by `test_faults.py`.

writer.py PATH kill          for each line of input: forks a child that appends events until it is killed
writer.py PATH full LIMITS   for each file size limit (bytes, comma-separated): fails, is given room, and goes on
writer.py PATH add RUN N     appends N events to a run, in as many transactions
"""

from __future__ import annotations

import os
import random
import resource
import sys
from pathlib import Path

from kintune.errors import StorageError
from kintune.records import Store
from kintune.testing.records import add_workload, event, measurement

RUN = "run"


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def payload(seq: int) -> bytes:
    return random.Random(seq).randbytes(seq * 997 % 20_000)


def commit(store: Store, workload: str, run: str, seq: int) -> None:
    """One transaction with an event, a measurement and a blob, as a result is committed."""
    with store.transaction():
        store.events.append(run, event(seq, payload(seq)))
        store.measurements.add(measurement(workload, seq, 1.0 + seq, run_id=run))
        store.blobs.put(payload(seq + 1_000_000))


def prepare(store: Store, run: str) -> str:
    workload = add_workload(store)
    if run not in {known.run_id for known in store.runs.list()}:
        store.runs.create(run, key=run, model_name="model")
    return workload


def until_killed(path: Path) -> None:
    for _ in sys.stdin:
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            say("dead")
            continue
        say(f"pid {os.getpid()}")
        store = Store.open(path)
        workload = prepare(store, RUN)
        while True:
            seq = store.events.count(RUN)
            commit(store, workload, RUN, seq)
            say(f"ack {seq}")


def until_full(path: Path, limit: int, events: int) -> str:
    """Meets the limit somewhere, is given room, and repeats what failed; says at which event it failed."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    failed, acknowledged = "never", 0
    try:
        with Store.open(path) as store:
            workload = prepare(store, RUN)
            for seq in range(events):
                try:
                    commit(store, workload, RUN, seq)
                except StorageError:
                    failed = str(seq)
                    assert store.events.count(RUN) == len(store.measurements.find()) == acknowledged
                    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
                    commit(store, workload, RUN, seq)
                acknowledged += 1
    except StorageError:
        failed = "open"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    with Store.open(path) as store:
        workload = prepare(store, RUN)
        assert store.notice is None
        for seq in range(store.events.count(RUN), events):
            commit(store, workload, RUN, seq)
        assert [each.payload for each in store.events.history(RUN)] == [payload(seq) for seq in range(events)]
        assert len(store.measurements.find()) == events
        assert store.check() == []
    return failed


def main() -> None:
    path, mode, *rest = Path(sys.argv[1]), *sys.argv[2:]
    if mode == "kill":
        until_killed(path)
    elif mode == "full":
        for limit in rest[0].split(","):
            say(until_full(path.with_name(f"{limit}.sqlite"), int(limit), 6))
    else:
        run, count = rest
        with Store.open(path) as store:
            workload = prepare(store, run)
            for seq in range(int(count)):
                commit(store, workload, run, seq)


if __name__ == "__main__":
    main()
