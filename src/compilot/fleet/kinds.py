"""Kinds of machines: the nodes of a cluster, grouped by what they are. Pure.

In: nodes with fingerprints and labels, and the manifest's [machines]. Out: `Kind`s. Labels, names of CPUs and numbers
of cores only select nodes; two nodes are of one kind exactly where their fingerprints are equal, whatever they are
called. A name that selects several kinds gives several, with a part of their id in the name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from compilot.artifacts.store.fit import machine_line
from compilot.artifacts.store.layout import machine_id
from compilot.fleet.crew import CrewNode
from compilot.fleet.manifest import MachineLine
from compilot.records import MachineFingerprint

ID_SHOWN = 6  # digits of a machine's id that tell two of one name apart


class Kind(NamedTuple):
    """Machines with one fingerprint."""

    name: str
    line: str  # the name in [machines]; "" where the manifest names none
    fingerprint: MachineFingerprint
    nodes: tuple[str, ...]  # ids

    @property
    def words(self) -> str:
        """What it is, for people."""
        machine = self.fingerprint
        where = machine.gpu or machine.cpu_model
        nodes = f"{len(self.nodes)} node" + ("s" if len(self.nodes) > 1 else "")
        return f"{where}, {machine.cores} cores, {machine.threads} threads, torch {machine.torch}; {nodes}"


def kinds_of(nodes: Iterable[CrewNode], machines: Mapping[str, MachineLine]) -> tuple[Kind, ...]:
    """The kinds that the manifest asks for; without [machines], all that there are."""
    there = list(nodes)
    if not machines:
        return tuple(_distinct("", there))
    selected = {name: [node for node in there if fits(node, wish)] for name, wish in machines.items()}
    return tuple(kind for name, some in selected.items() for kind in _distinct(name, some))


def fits(node: CrewNode, wish: MachineLine) -> bool:
    """Whether a node is selected."""
    machine = node.fingerprint
    return (
        wish.labels.items() <= node.labels.items()
        and wish.cpu.lower() in machine.cpu_model.lower()
        and wish.cores in (None, machine.cores)
        and wish.gpu.lower() in (machine.gpu or "").lower()
    )


def _distinct(name: str, nodes: list[CrewNode]) -> list[Kind]:
    groups: dict[str, list[CrewNode]] = {}
    for node in nodes:
        groups.setdefault(machine_id(node.fingerprint), []).append(node)
    names = {key: name or machine_line(group[0].fingerprint).partition(" = ")[0] for key, group in groups.items()}
    doubled = [one for one in names.values() if list(names.values()).count(one) > 1]
    return [
        Kind(
            f"{names[key]}-{key[:ID_SHOWN]}" if names[key] in doubled else names[key],
            name,
            group[0].fingerprint,
            tuple(node.id for node in group),
        )
        for key, group in groups.items()
    ]
