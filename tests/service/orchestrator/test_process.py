from __future__ import annotations

import os
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn

import msgspec
import pytest

from kintune.errors import EngineError, KintuneError, StorageError
from kintune.service.orchestrator import process
from kintune.service.settings import ServiceSettings
from kintune.tuning.front.placement import CorePlacement


@pytest.mark.parametrize(
    ("error", "code"), [(StorageError("the disk is full"), os.EX_TEMPFAIL), (EngineError("broken"), 1)]
)
def test_what_passes_is_told_from_what_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: KintuneError, code: int
) -> None:
    def fails(_settings: ServiceSettings) -> NoReturn:
        raise error

    (tmp_path / "settings.json").write_bytes(msgspec.json.encode(ServiceSettings(data=str(tmp_path))))
    monkeypatch.setattr(process.logs, "configure", lambda part: None)
    monkeypatch.setattr(process, "orchestrate", fails)
    assert process.main([str(tmp_path / "settings.json")]) == code


def test_results_are_published_in_a_thread_on_the_host_s_cores_unless_these_measure() -> None:
    seen: list[tuple[int, set[int]]] = []
    before = os.sched_getaffinity(0)
    core = min(before)
    with ExitStack() as stack:
        for place in (CorePlacement(((core,),), (core,)), CorePlacement(((core + 1,),), (core,))):
            aside = process.publishing_aside(place, stack)
            aside(lambda: seen.append((threading.get_ident(), os.sched_getaffinity(0))))
    (here, unchanged), (elsewhere, cores) = seen
    assert (here, unchanged, cores) == (threading.get_ident(), before, {core})
    assert elsewhere != here


def test_the_orchestrator_keeps_off_devices_with_cores_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.sched_getaffinity(0)
    core, seen = min(before), list[set[int]]()

    def ask(*_: object) -> NoReturn:
        seen.append(os.sched_getaffinity(0))
        raise EngineError("it does not answer")

    monkeypatch.setenv("KINTUNE_LOCK_DIR", str(tmp_path / "locks"))
    monkeypatch.setattr(process, "_allow_many_files", lambda: None)
    monkeypatch.setattr(process, "choose_placement", lambda *_: CorePlacement(((core + 1,),), (core,)))
    monkeypatch.setattr(process, "_ask_device", ask)
    with pytest.raises(EngineError, match="does not answer"):
        process.orchestrate(ServiceSettings(data=str(tmp_path)))
    assert seen == [{core}]
    assert os.sched_getaffinity(0) == before
