from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from kintune.core.stage_results import UNPROVEN, UNTUNED_FILE, Packaged, Summary, ValidationResult
from kintune.errors import JobFailed, NumericsError, StorageError
from kintune.tuning.front.publishing import discard, publish

PROOF = ValidationResult(
    {"tuned": (1.0, 1.1, 5.0), "untuned": (2.0, 2.1)}, 1e-6, 1e-5, True, ("untuned", "onnxruntime"), {}
)


@pytest.fixture
def output(tmp_path: Path) -> str:
    """Where the result is to lie; what was packaged lies beside it."""
    place = str(tmp_path / "model.kt")
    Path(f"{place}{UNPROVEN}").write_text("tuned")
    Path(f"{place}{UNTUNED_FILE}").write_text("untuned")
    return place


def summary(output: str, proof: ValidationResult | None = PROOF, *, untuned: bool = True) -> Summary:
    packaged = Packaged(f"{output}{UNPROVEN}", {}, untuned=f"{output}{UNTUNED_FILE}" if untuned else None)
    return Summary("m", "d", "trials", 1, 0, (), (), 1.0, packaged, proof)


def proof(**changes: object) -> ValidationResult:
    return msgspec.structs.replace(PROOF, **changes)


def test_what_is_proven_ships(output: str) -> None:
    assert publish(output, summary(output, proof(skipped={"torch": "not a module"}))) == {"torch": "not a module"}
    assert Path(output).read_text() == "tuned"


def test_an_older_result_is_replaced(output: str) -> None:
    Path(output).write_text("older")
    publish(output, summary(output))
    assert Path(output).read_text() == "tuned"


def test_what_could_not_be_compared_ships(output: str) -> None:
    publish(output, summary(output, proof(within_tolerance=None, compared_with=())))
    assert Path(output).read_text() == "tuned"


@pytest.mark.parametrize(
    ("latency_ms", "shipped"),
    [
        ({"tuned": (2.0, 2.0, 0.1), "untuned": (1.0, 9.0, 1.0)}, "untuned"),
        ({"tuned": (1.0,), "untuned": (1.0,)}, "tuned"),
        ({"tuned": (1.0,)}, "tuned"),
        ({"tuned": (1.0,), "untuned": ()}, "tuned"),
    ],
)
def test_the_faster_of_tuned_and_untuned_ships(
    output: str, latency_ms: dict[str, tuple[float, ...]], shipped: str
) -> None:
    skipped = publish(output, summary(output, proof(latency_ms=latency_ms)))
    assert Path(output).read_text() == shipped
    assert ("tuned" in skipped) == (shipped == "untuned")


def test_a_slow_result_ships_when_there_is_no_untuned_one(output: str) -> None:
    slower = proof(latency_ms={"tuned": (2.0,), "untuned": (1.0,)})
    publish(output, summary(output, slower, untuned=False))
    assert Path(output).read_text() == "tuned"


def test_wrong_numbers_do_not_ship(output: str) -> None:
    Path(output).write_text("older")
    wrong = proof(within_tolerance=False, disagreement="y[0, 3] is 2.0 and should be 1.0")
    with pytest.raises(NumericsError, match=r"untuned and onnxruntime .*: y\[0, 3\] is 2.0"):
        publish(output, summary(output, wrong))
    assert Path(output).read_text() == "older"


def test_nothing_ships_without_a_proof(output: str) -> None:
    with pytest.raises(JobFailed, match="could not be proven"):
        publish(output, summary(output, None))
    assert not Path(output).exists()


def test_a_result_that_cannot_be_written_may_be_shipped_later(output: str) -> None:
    Path(output).mkdir()
    with pytest.raises(StorageError, match=r"model\.kt"):
        publish(output, summary(output))


def test_nothing_is_left_beside_the_result(output: str, tmp_path: Path) -> None:
    publish(output, summary(output))
    discard(output)
    discard(output)
    assert [path.name for path in tmp_path.iterdir()] == ["model.kt"]
