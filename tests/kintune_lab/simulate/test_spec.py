from __future__ import annotations

from pathlib import Path

import pytest

from kintune.scheduler.resources import Device, Host
from kintune_lab.simulate.spec import ScheduleSpec, read_schedule_spec
from kintune_lab.spec_document import SpecError

REPOSITORY = Path(__file__).parents[3]

HEAD = 'name = "two"\n'
HOST = '[[host]]\nid = "h"\ncores = 2\n'
GPU = '[[device]]\ntype = "gpu"\n'
JOB = '[[job]]\nname = "a"\ndevice = "gpu"\nrounds = 2\nprofile_s = 1\n'
FAIR = '[[setup]]\npolicy = "fair"\n'
WHOLE = HEAD + HOST + GPU + JOB + FAIR


def read(tmp_path: Path, text: str) -> ScheduleSpec:
    path = tmp_path / "spec.toml"
    path.write_text(text)
    return read_schedule_spec(str(path))


def test_hosts_devices_and_jobs_are_as_written(tmp_path: Path) -> None:
    text = WHOLE.replace("cores = 2\n", "cores = 2\nmemory_mb = 7\n").replace(
        'type = "gpu"\n', 'type = "gpu"\ncount = 2\n'
    )
    spec = read(tmp_path, text.replace("rounds = 2\n", "rounds = 2\ncount = 2\nat = 5\npriority = 2\n"))
    scenario = spec.scenario(0)
    assert scenario.resources == (Host("h", 2, 7), Device("gpu0", "gpu"), Device("gpu1", "gpu"))
    assert [(job.id, job.at, job.priority, len(job.stages)) for job in scenario.jobs] == [
        ("a-1", 5.0, 2.0, 2),
        ("a-2", 5.0, 2.0, 2),
    ]


def test_copies_are_hosts_with_devices_of_their_own(tmp_path: Path) -> None:
    text = WHOLE.replace('type = "gpu"\n', 'type = "gpu"\nhost = "h"\non_host_cores = true\n')
    resources = read(tmp_path, text).scenario(0, copies=2).resources
    assert [resource.id for resource in resources] == ["h", "h.2", "gpu", "gpu.2"]
    assert [resource.host for resource in resources if isinstance(resource, Device)] == ["h", "h.2"]


def test_a_graph_has_stages_of_its_own(tmp_path: Path) -> None:
    graph = '[[graph]]\nname = "g"\ncount = 2\n'
    graph += '[[graph.stage]]\nid = "x"\nseconds = 3\nkind = "prepare"\nown = true\n'
    graph += '[[graph.stage]]\nid = "y"\nseconds = 4\ndevice = "gpu"\nafter = ["x"]\n'
    jobs = read(tmp_path, HEAD + HOST + GPU + graph + FAIR).scenario(0).jobs
    assert [(job.id, job.path_s()) for job in jobs] == [("g-1", 7.0), ("g-2", 7.0)]
    first, second = (planned.stage for planned in jobs[0].stages)
    assert (first.affinity, first.demand.cores, first.kind) == ("g-1", 1, "prepare")
    assert (second.affinity, second.demand.device, second.after) == (None, "gpu", ("x",))


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("rounds = 2", "rounds = 0", 10, "rounds = 0: must be 1 or more"),
        ("rounds = 2", "round = 2", 10, "did you mean 'rounds'?"),
        ("rounds = 2", 'rounds = "two"', 10, "rounds: expected `int`, got `str`"),
        ("profile_s = 1", "profile_s = -1", 11, "profile_s = -1: must be 0 or more"),
        ("profile_s = 1", "profile_s = nan", 11, "profile_s = nan: must be 0 or more"),
        ("profile_s = 1", "profile_s = 1\npriority = 0", 12, "priority = 0: must be above 0"),
        ("profile_s = 1", "profile_s = 1\npriority = nan", 12, "priority = nan: must be above 0"),
        ("profile_s = 1", "profile_s = 1\npriority = inf", 12, "priority = inf: must be above 0"),
        ("profile_s = 1", "profile_s = 1\ndeadline = nan", 12, "deadline = nan: must be 0 or more"),
        ("profile_s = 1", "profile_s = 1\ncores = 3", 7, "needs more cores than any host has (2)"),
        ('device = "gpu"', 'device = "npu"', 9, "needs a device of type 'npu'; there are gpu"),
        ('type = "gpu"', 'type = "gpu"\ncapacity = 3', 7, "capacity"),
        ('type = "gpu"', 'type = "gpu"\non_host_cores = true', 7, "on_host_cores: name the host"),
        ('type = "gpu"', 'type = "gpu"\nid = "h"', 5, "there are two called 'h' among [[device]]"),
        ('type = "gpu"', 'type = "gpu"\nhost = "nowhere"', 7, "there is no host 'nowhere'"),
        ('policy = "fair"', 'policy = "fairest"', 13, "there is no policy 'fairest'; there are sequential"),
        ('policy = "fair"', 'policy = "fair"\ncopies = 0', 14, "copies: must be 1 or more"),
        ('policy = "fair"', 'policy = "fair"\nmeasured_s = 0', 14, "measured_s = 0: must be above 0"),
        ('policy = "fair"', 'policy = "fair"\nmeasured_s = nan', 14, "measured_s = nan: must be above 0"),
        ('policy = "fair"', 'policy = "fair"\ninterference = { update = 0.5 }', 14, "interference of update = 0.5"),
        ('policy = "fair"\n', 'policy = "fair"\n' + FAIR, 14, "the setup 'fair' stands twice"),
        ('policy = "fair"\n', 'policy = "fair"\n[faults]\nspan_s = 0\n', 15, "span_s = 0: must be above 0"),
        (
            'policy = "fair"\n',
            'policy = "fair"\n[faults]\nfailing = 1.5\n',
            15,
            "failing = 1.5: must be between 0 and 1",
        ),
        ('type = "gpu"', 'type = "gpu"\n[[device]]\ntype = "gpu"', 5, "there are two called 'gpu' among [[device]]"),
        (FAIR, "", 1, "at least one [[setup]]"),
        ('name = "two"\n', 'name = "two"\nseeds = 0\n', 2, "seeds: must be a whole number"),
        ('name = "two"\n', "", 1, "a spec needs a name"),
        ('name = "two"\n', 'name = "two"\n[mix]\njobs = 3\n', 1, "either [mix] or"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path: Path, old: str, new: str, line: int, said: str) -> None:
    assert old in WHOLE
    with pytest.raises(SpecError) as raised:
        read(tmp_path, WHOLE.replace(old, new, 1))
    text = str(raised.value)
    assert said in text
    assert f"spec.toml:{line}: " in text


@pytest.mark.parametrize(
    ("stages", "said"),
    [
        ([("x", 'after = ["y"]'), ("y", 'after = ["x"]')], "x waits for 'y', which comes only after it"),
        ([("x", 'after = ["x"]')], "x waits for 'x', which comes only after it"),
        ([("x", 'after = ["z"]')], "x waits for 'z', which does not exist"),
        ([("x", ""), ("x", "")], "two stages of g are called 'x'"),
        ([("x", "seconds = -1")], "seconds = -1: must be 0 or more"),
        ([("x", 'device = "npu"')], "x needs a device of type 'npu'"),
        ([("x", "cores = 9")], "cores = 9: hosts have at most 2"),
    ],
)
def test_graphs_that_cannot_be_played_are_refused(tmp_path: Path, stages: list[tuple[str, str]], said: str) -> None:
    graph = '[[graph]]\nname = "g"\n'
    for id, more in stages:
        seconds = "" if "seconds" in more else "seconds = 1\n"
        graph += f'[[graph.stage]]\nid = "{id}"\n{seconds}{more}\n'
    with pytest.raises(SpecError) as raised:
        read(tmp_path, HEAD + HOST + GPU + graph + FAIR)
    assert said in str(raised.value)


@pytest.mark.parametrize("name", ["thesis", "mix", "mix_weighted"])
def test_the_specs_of_the_repository_can_be_played(name: str) -> None:
    spec = read_schedule_spec(str(REPOSITORY / f"benchmarks/schedules/{name}.toml"))
    assert spec.scenario(0).jobs


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("jobs = 0", "jobs = 0: must be 1 or more"),
        ("types = []", "of one at least one"),
        ("types = [0, 0]", "of one at least one"),
        ("priorities = [1.0, 0.0]", "priorities: must be above 0"),
        ("priorities = [nan]", "priorities: must be above 0"),
        ("crowd = 0.0", "crowd = 0: must be above 0"),
        ("spread = -1.0", "spread = -1: must be 0 or more"),
        ("build_s = [-4.0, 0.1]", "build_s = [-4, 0.1]: a median and a sigma"),
        ("rounds = [40.0, nan]", "rounds = [40, nan]: a median and a sigma"),
    ],
)
def test_a_mix_that_cannot_be_drawn_is_refused(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(SpecError) as raised:
        read(tmp_path, f'name = "mixed"\n[mix]\n{line}\n{FAIR}')
    assert said in str(raised.value)
    assert "spec.toml:3: " in str(raised.value)
