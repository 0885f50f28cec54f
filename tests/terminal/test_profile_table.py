"""A profile on a terminal of 80 columns."""

from __future__ import annotations

import msgspec

from kintune.core.device import Peak
from kintune.profiling.page import html_page
from kintune.terminal.profile_table import network_lines, profile_lines
from tests.support.profiles import PROFILE, alone, in_parts


def test_a_profile_fits_80_columns() -> None:
    long = msgspec.structs.replace(PROFILE.calls[0], title=f"{'block/' * 20}conv (Conv) + Add + Relu")
    lines = list(profile_lines(msgspec.structs.replace(PROFILE, calls=(long, *PROFILE.calls[1:]))))
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("...") and "conv (Conv)" in line and "+2" in line for line in lines)


def test_the_slowest_comes_first() -> None:
    text = "\n".join(profile_lines(PROFILE, width=100))
    table = text[text.index("operators, slowest first") :].splitlines()
    assert [line.split()[0] for line in table[1:4]] == ["layer3/conv2", "softmax:", "transpose"]
    assert "arithmetic 75%" in table[1]
    assert table[1].endswith("500 us")
    assert table[2].endswith("(150 us)")
    assert "copies >100%" in table[3]


def test_the_network_is_told_as_a_whole() -> None:
    text = "\n".join(profile_lines(PROFILE))
    assert "net: 550 us a run, median of 50" in text
    assert "3 kernel calls take 500 us; a run takes 50.0 us more than their sum" in text
    assert "onnxruntime 1.2.3: 1.10 ms a run; Kintune takes 0.50 of that" in text
    assert "bound by arithmetic 400 us, launch 80.0 us, copies 20.0 us" in text
    assert "Note: a <note>" in text


def test_one_kernel_takes_its_time() -> None:
    one = msgspec.structs.replace(alone(), calls=PROFILE.calls[:1])
    assert any(line.startswith("1 kernel call takes 500 us;") for line in network_lines(one))
    assert b"<p>1 kernel call takes 500 us together" in html_page(one)


def test_the_rest_is_summed() -> None:
    lines = list(profile_lines(alone(), top=1))
    assert any(line.startswith("2 more") and "100 us" in line and "20.0%" in line for line in lines)
    assert not any("onnxr" in line for line in lines)


def test_nodes_in_onnxruntime_and_regions_are_told_apart() -> None:
    lines = list(profile_lines(in_parts()))
    assert max(map(len, lines)) <= 80
    assert "2 kernel calls and 1 node in onnxruntime take 500 us, 16% of it in onnxruntime" in lines
    assert "a run takes 50.0 us more than their sum" in lines
    assert any(line.startswith("softmax") and line.endswith("in onnxruntime") for line in lines)
    at = next(number for number, line in enumerate(lines) if line.startswith("regions, as nodes"))
    assert " ".join(lines[at + 1].split()) == "region 1 (2 nodes) 430 us 84.3% 2 420 us 10.0 us"
    assert " ".join(lines[at + 2].split()) == "region 0 (1 node) not run"


def test_a_boundary_may_be_less_than_nothing() -> None:
    region = msgspec.structs.replace(in_parts().regions[1], boundary_us=-3.0)
    lines = list(profile_lines(msgspec.structs.replace(in_parts(), regions=(region,))))
    assert lines[-1].endswith("-3.00 us")


def test_on_a_narrow_terminal_columns_are_left_out() -> None:
    for width in (50, 60, 70):
        lines = list(profile_lines(alone(), width=width))
        table = lines[next(at for at, line in enumerate(lines) if "slowest" in line) :]
        rows = [line for line in table if not line.startswith(("All names begin", "Note:"))]
        assert max(map(len, rows)) <= width
        assert all("%" in row for row in rows[1:4])


def test_narrow_precisions_have_a_column_and_a_peak() -> None:
    calls = (msgspec.structs.replace(PROFILE.calls[0], precision="bf16"), *PROFILE.calls[1:])
    narrow = Peak(333.0, 15.0, 2, 20.0, {"bf16": 2900.0, "int8": 5800.0})
    lines = list(profile_lines(msgspec.structs.replace(PROFILE, calls=calls, peak=narrow), width=100))
    assert "measured peak: 333 GFLOP/s in fp32, 2900 GFLOP/s in bf16, 20.0 GB/s read from memory" in lines
    head = next(number for number, line in enumerate(lines) if line.startswith("operators, slowest first"))
    assert "thr   in limit" in lines[head]
    assert " 2 bf16 arithmetic 75%" in lines[head + 1]
    assert max(map(len, profile_lines(msgspec.structs.replace(PROFILE, calls=calls)))) <= 80
    assert not any(" in   limit" in line for line in profile_lines(PROFILE, width=100))
