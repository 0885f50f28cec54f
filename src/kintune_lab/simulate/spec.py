"""Reads the spec of a simulation from a TOML file, and checks it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from kintune.scheduler.policies import POLICIES, policy
from kintune.scheduler.resources import Device, Host, Resource
from kintune.scheduler.scheduler import RetryLimits, Scheduler
from kintune_lab.simulate.entries import MIX_RANGES, DeviceEntry, GraphEntry, HostEntry, JobEntry, Mix
from kintune_lab.simulate.faults import NO_FAULTS, Faults
from kintune_lab.simulate.plan import PlannedJob
from kintune_lab.spec_document import Document

__all__ = ["Scenario", "ScheduleSpec", "Setup", "read_schedule_spec"]

_KEYS = ["name", "description", "seeds", "host", "device", "job", "graph", "mix", "faults", "setup"]
_WHERE = re.compile(r"^(?P<said>.*?)(?: - at `\$(?:\.(?P<key>\w+))?.*`)?$", re.DOTALL)

Struct = TypeVar("Struct")


class Setup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One way to schedule the jobs.

    `copies` multiplies hosts and devices.  `interference` has, by kind of stage, how many times longer it takes while
    more runs at its place than there is room for.  `measured_s` is a measured time to compare with.
    """

    policy: str
    label: str = ""
    bundling: bool = False
    copies: int = 1
    interference: dict[str, float] = {}
    measured_s: float | None = None

    @property
    def name(self) -> str:
        """Its name in tables."""
        return self.label or (f"{self.policy}, bundled" if self.bundling else self.policy)

    def machine(self) -> Scheduler:
        """Returns a new scheduler with this policy and these options."""
        return Scheduler(policy(self.policy), RetryLimits(bundling=self.bundling, resources_may_join=False))


class Scenario(msgspec.Struct, frozen=True):
    """Resources, the jobs that come, and what goes wrong, under one seed."""

    resources: tuple[Resource, ...]
    jobs: tuple[PlannedJob, ...]
    faults: Faults = NO_FAULTS


class ScheduleSpec(msgspec.Struct, frozen=True):
    """What a spec asks for: every setup is played with every seed."""

    name: str
    description: str
    seeds: tuple[int, ...]
    setups: tuple[Setup, ...]
    faults: Faults
    mix: Mix | None
    hosts: tuple[Host, ...]
    devices: tuple[Device, ...]
    jobs: tuple[JobEntry, ...]
    graphs: tuple[GraphEntry, ...] = ()

    def scenario(self, seed: int, copies: int = 1) -> Scenario:
        """Returns resources, jobs and faults under a seed; there are `copies` of each resource."""
        if self.mix is not None:
            resources, jobs = self.mix.resources(), self.mix.draw(seed)
        else:
            resources = [*self.hosts, *self.devices]
            jobs = [plan for entry in self.jobs for plan in entry.plans(seed)]
            jobs += [plan for graph in self.graphs for plan in graph.plans()]
        faults = msgspec.structs.replace(self.faults, seed=self.faults.seed + seed)
        return Scenario(tuple(_copied(resources, copies)), tuple(jobs), faults)


def read_schedule_spec(path: str) -> ScheduleSpec:
    """Read and check a spec.

    Raises:
        InputError: there is no such file.
        SpecError: the spec is wrong; the message names the line.
    """
    return _Reader(Document.read(path)).spec()


class _Reader:
    def __init__(self, document: Document) -> None:
        self._document = document
        self._content = document.content

    def spec(self) -> ScheduleSpec:
        document, content = self._document, self._content
        document.known((), content, _KEYS, "there is no key")
        entries = any(key in content for key in ("host", "device", "job", "graph"))
        if ("mix" in content) == entries:
            document.refuse((), "a spec has either [mix] or [[host]], [[device]] and [[job]] or [[graph]]")
        name, description = content.get("name"), content.get("description", "")
        if not isinstance(name, str) or not isinstance(description, str):
            document.refuse(("name",), 'a spec needs a name: name = "..."')
        spec = ScheduleSpec(
            name=name,
            description=description,
            seeds=self._seeds(),
            setups=self._setups(),
            faults=self._one("faults", Faults) if "faults" in content else NO_FAULTS,
            mix=self._one("mix", Mix) if "mix" in content else None,
            hosts=tuple(Host(h.id, h.cores, h.memory_mb) for h in self._many("host", HostEntry)),
            devices=tuple(device for entry in self._many("device", DeviceEntry) for device in entry.devices()),
            jobs=tuple(self._many("job", JobEntry)),
            graphs=tuple(self._many("graph", GraphEntry)),
        )
        self._check(spec)
        return spec

    def _seeds(self) -> tuple[int, ...]:
        seeds = self._content.get("seeds", 1)
        if not isinstance(seeds, int) or isinstance(seeds, bool) or seeds < 1:
            self._document.refuse(("seeds",), "seeds: must be a whole number, 1 or more")
        return tuple(range(seeds))

    def _setups(self) -> tuple[Setup, ...]:
        if not self._content.get("setup"):
            self._document.refuse((), "a spec needs at least one [[setup]] with a policy")
        setups = self._many("setup", Setup)
        for index, setup in enumerate(setups):
            place = ("setup", index)
            if setup.policy not in POLICIES:
                known = ", ".join(POLICIES)
                self._document.refuse((*place, "policy"), f"there is no policy {setup.policy!r}; there are {known}")
            if setup.copies < 1:
                self._document.refuse((*place, "copies"), "copies: must be 1 or more")
            if setup.measured_s is not None and not 0 < setup.measured_s < float("inf"):
                self._document.refuse((*place, "measured_s"), f"measured_s = {setup.measured_s:g}: must be above 0")
            for kind, factor in setup.interference.items():
                if not 1 <= factor < float("inf"):
                    self._document.refuse(
                        (*place, "interference"), f"interference of {kind} = {factor:g}: must be 1 or more"
                    )
            if setup.name in [other.name for other in setups[:index]]:
                self._document.refuse(place, f"the setup {setup.name!r} stands twice; give one of them another label")
        return tuple(setups)

    def _check(self, spec: ScheduleSpec) -> None:
        """Check all that can be checked before anything is played.

        Raises:
            SpecError: something is wrong.
        """
        self._check_faults(spec.faults)
        if spec.mix is not None:
            self._check_mix(spec.mix)
        types = {device.type for device in spec.devices}
        hosts = {host.id for host in spec.hosts}
        for index, host in enumerate(spec.hosts):
            if host.cores < 1:
                self._document.refuse(("host", index, "cores"), f"cores = {host.cores}: must be 1 or more")
        room = max((host.cores for host in spec.hosts), default=0)
        for index, device in enumerate(self._content.get("device", [])):
            if device.get("host") not in (None, *hosts):
                self._document.refuse(("device", index, "host"), f"there is no host {device['host']!r}")
            if device.get("on_host_cores") and device.get("host") is None:
                self._document.refuse(
                    ("device", index, "on_host_cores"), "on_host_cores: name the host whose cores they are"
                )
        for index, job in enumerate(spec.jobs):
            place = ("job", index)
            if job.device not in types:
                known = ", ".join(sorted(types)) or "none"
                self._document.refuse(
                    (*place, "device"), f"job {job.name} needs a device of type {job.device!r}; there are {known}"
                )
            if max(job.cores, job.build_cores or 0) > room:
                self._document.refuse(place, f"job {job.name} needs more cores than any host has ({room})")
            for key in ("rounds", "count", "cores", "inflight"):
                if getattr(job, key) < 1:
                    self._document.refuse((*place, key), f"{key} = {getattr(job, key)}: must be 1 or more")
            for key in (
                "select_s",
                "build_s",
                "profile_s",
                "update_s",
                "start_s",
                "end_s",
                "prove_s",
                "at",
                "spread",
                "stretch",
            ):
                if not 0 <= getattr(job, key) < float("inf"):
                    self._document.refuse((*place, key), f"{key} = {getattr(job, key):g}: must be 0 or more")
            self._check_priority(place, job.priority, job.deadline)
        for index, graph in enumerate(spec.graphs):
            self._check_graph(("graph", index), graph, types, room)
        self._check_distinct("host", [host.id for host in spec.hosts])
        self._check_distinct("device", [*hosts, *(device.id for device in spec.devices)])
        self._check_distinct("job", _names(spec.jobs))
        self._check_distinct("graph", [*_names(spec.jobs), *_names(spec.graphs)])

    def _check_priority(self, place: tuple[str | int, ...], priority: float, deadline: float | None) -> None:
        if not 0 < priority < float("inf"):
            self._document.refuse((*place, "priority"), f"priority = {priority:g}: must be above 0")
        if deadline is not None and not 0 <= deadline < float("inf"):
            self._document.refuse((*place, "deadline"), f"deadline = {deadline:g}: must be 0 or more")

    def _check_distinct(self, what: str, names: Sequence[str]) -> None:
        twice = next((name for name, many in Counter(names).items() if many > 1), None)
        if twice is not None:
            self._document.refuse(
                (what,), f"there are two called {twice!r} among [[{what}]]; name one of them otherwise"
            )

    def _check_faults(self, faults: Faults) -> None:
        for key in ("failing", "cancelled"):
            if not 0 <= getattr(faults, key) <= 1:
                self._document.refuse(("faults", key), f"{key} = {getattr(faults, key):g}: must be between 0 and 1")
        if not 0 <= faults.outages_each < float("inf"):
            self._document.refuse(
                ("faults", "outages_each"), f"outages_each = {faults.outages_each:g}: must be 0 or more"
            )
        for key in ("outage_s", "span_s"):
            if not 0 < getattr(faults, key) < float("inf"):
                self._document.refuse(("faults", key), f"{key} = {getattr(faults, key):g}: must be above 0")

    def _check_mix(self, mix: Mix) -> None:
        for key in ("jobs", "hosts", "cores", "inflight"):
            if getattr(mix, key) < 1:
                self._document.refuse(("mix", key), f"{key} = {getattr(mix, key)}: must be 1 or more")
        if not mix.types or min(mix.types) < 0 or max(mix.types) < 1:
            self._document.refuse(("mix", "types"), "types: how many devices of each type, of one at least one")
        if not mix.priorities or not all(0 < priority < float("inf") for priority in mix.priorities):
            self._document.refuse(("mix", "priorities"), "priorities: must be above 0, and at least one")
        if not 0 < mix.crowd < float("inf"):
            self._document.refuse(("mix", "crowd"), f"crowd = {mix.crowd:g}: must be above 0")
        for key in ("spread", "arrive_s"):
            if not 0 <= getattr(mix, key) < float("inf"):
                self._document.refuse(("mix", key), f"{key} = {getattr(mix, key):g}: must be 0 or more")
        for key in MIX_RANGES:
            median, sigma = getattr(mix, key)
            if not (0 <= median < float("inf") and 0 <= sigma < float("inf")):
                self._document.refuse(
                    ("mix", key), f"{key} = [{median:g}, {sigma:g}]: a median and a sigma, each 0 or more"
                )

    def _check_graph(self, place: tuple[str | int, ...], graph: GraphEntry, types: set[str], room: int) -> None:
        """Its stages can run, and each stands after those that it waits for: so none waits in a circle."""
        before: set[str] = set()
        self._check_priority(place, graph.priority, graph.deadline)
        for number, stage in enumerate(graph.stage):
            here = (*place, "stage", number)
            if stage.id in before:
                self._document.refuse(here, f"two stages of {graph.name} are called {stage.id!r}")
            if not 0 <= stage.seconds < float("inf"):
                self._document.refuse((*here, "seconds"), f"seconds = {stage.seconds:g}: must be 0 or more")
            if stage.device is not None and stage.device not in types:
                known = ", ".join(sorted(types)) or "none"
                self._document.refuse(
                    (*here, "device"), f"{stage.id} needs a device of type {stage.device!r}; there are {known}"
                )
            if stage.device is None and not 1 <= stage.cores <= room:
                self._document.refuse((*here, "cores"), f"cores = {stage.cores}: hosts have at most {room}")
            for other in stage.after:
                if other not in before:
                    why = "comes only after it" if other in [s.id for s in graph.stage] else "does not exist"
                    self._document.refuse(
                        (*here, "after"), f"{stage.id} waits for {other!r}, which {why}; write stages in their order"
                    )
            before.add(stage.id)

    def _one(self, key: str, kind: type[Struct]) -> Struct:
        return self._convert((key,), self._document.table((key,), self._content[key]), kind)

    def _many(self, key: str, kind: type[Struct]) -> list[Struct]:
        entries = self._content.get(key, [])
        if not isinstance(entries, list):
            self._document.refuse((key,), f"write [[{key}]], with two brackets on each side, once for each")
        return [
            self._convert((key, index), self._document.table((key, index), entry), kind)
            for index, entry in enumerate(entries)
        ]

    def _convert(self, place: tuple[str | int, ...], table: dict[str, Any], kind: type[Struct]) -> Struct:
        names = list(getattr(kind, "__struct_fields__", ()))
        self._document.known(place, table, names, f"[{place[0]}] has no key")
        try:
            return msgspec.convert(table, kind)
        except msgspec.ValidationError as error:
            found = _WHERE.match(str(error))
            key = found.group("key") if found else None
            said = found.group("said") if found else str(error)
            where = (*place, key) if key else place
            self._document.refuse(where, f"{key or place[0]}: {said[:1].lower()}{said[1:]}")


def _copied(resources: list[Resource], copies: int) -> list[Resource]:
    copied = list(resources)
    for n in range(2, copies + 1):
        for resource in resources:
            if isinstance(resource, Host):
                copied.append(msgspec.structs.replace(resource, id=f"{resource.id}.{n}"))
            else:
                host = None if resource.host is None else f"{resource.host}.{n}"
                copied.append(msgspec.structs.replace(resource, id=f"{resource.id}.{n}", host=host))
    return sorted(copied, key=lambda resource: isinstance(resource, Device))


def _names(entries: Sequence[JobEntry] | Sequence[GraphEntry]) -> list[str]:
    return [name for entry in entries for name in entry.names()]
