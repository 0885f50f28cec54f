from __future__ import annotations

import msgspec
import pytest

from kintune.core.device import Peak
from kintune.core.messages import ItemStatus
from kintune.core.outcome import Outcome, Status
from kintune.core.stage_requests import Built
from kintune.core.stage_results import BaselineLatencies, StageName
from kintune.errors import WireError
from kintune.tuning.job.outcomes import built_of, check_answer, profiled_of

OK = ItemStatus.OK
encode = msgspec.msgpack.encode


def test_an_answer_is_what_the_worker_says() -> None:
    built = Built("c", b"elf")
    assert built_of("c", OK, encode(built), "") == built
    outcome = Outcome(Status.OK, (1.5,))
    assert profiled_of("c", OK, encode(outcome), "").outcome == outcome
    check_answer(StageName.PEAK, encode(Peak(1.0, 2.0, 3)))
    check_answer(StageName.BASELINE, encode(BaselineLatencies(({"onnxruntime": (1.5,)},))))
    check_answer(StageName.SELECT, b"the job's own")


def test_without_an_answer_how_the_worker_ended_is_the_outcome() -> None:
    built = built_of("c", ItemStatus.CRASHED, b"", "killed by SIGSEGV")
    assert built.failure == Outcome(Status.BUILD_FAILED, cause="killed by SIGSEGV")
    assert profiled_of("c", ItemStatus.TIMED_OUT, b"", "slow").outcome.status is Status.RUN_TIMED_OUT


GARBAGE = (b"", b"\xc1", b"\x91" * 5000, b"\x81\xa9candidate\xa1\xff")


@pytest.mark.parametrize("payload", [*GARBAGE, encode(Built("another", b"elf"))])
def test_what_is_no_built_candidate_or_not_that_one(payload: bytes) -> None:
    with pytest.raises(WireError):
        built_of("c", OK, payload, "")


@pytest.mark.parametrize(
    "payload", [*GARBAGE, *(encode(Outcome(Status.OK, (us,))) for us in (0.0, -1.0, float("nan"), float("inf")))]
)
def test_what_is_no_outcome(payload: bytes) -> None:
    with pytest.raises(WireError):
        profiled_of("c", OK, payload, "")


@pytest.mark.parametrize("kind", [StageName.PROVE, StageName.PEAK, StageName.BASELINE])
@pytest.mark.parametrize("payload", GARBAGE)
def test_what_is_no_other_answer(kind: str, payload: bytes) -> None:
    with pytest.raises(WireError, match=f"{len(payload)} bytes that are no "):
        check_answer(kind, payload)


@pytest.mark.parametrize("ms", [0.0, -1.0, float("nan"), float("inf")])
def test_what_no_runtime_takes(ms: float) -> None:
    with pytest.raises(WireError, match="no runtime takes"):
        check_answer(StageName.BASELINE, encode(BaselineLatencies(({"onnxruntime": (1.0, ms)},))))
