"""What an inventory asks of a host's kernel, read from its variables for the checks of this folder.

This is a second reading of the documented variables. It shares no code with the engine, so that a mistake there is
not repeated here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

# Arguments whose value is a comma-separated set to which others may add (documentation of kernel_args).
SETS = frozenset(
    {
        "amd_iommu",
        "intel_iommu",
        "modprobe.blacklist",
        "module_blacklist",
        "pci",
        "pci_stub.ids",
        "rd.driver.blacklist",
        "rd.driver.pre",
        "vfio_pci.ids",
    }
)
# What would undo a managed IOMMU or its isolation, whoever put it there (catalogue H01).
CONTRARY = (
    "pcie_acs_override",
    "pci=noats",
    "iommu=off",
    "intel_iommu=off",
    "intel_iommu=sp_off",
    "amd_iommu=off",
    "vfio_iommu_type1.allow_unsafe_interrupts=1",
)
PAGE_NAMES = ("default_hugepagesz", "hugepagesz", "hugepages")
PAGE_KIB = {"2M": 2048, "1G": 1048576}

Pages = Mapping[str, Mapping[int, int]]


def name_of(argument: str) -> str:
    """The name as the kernel compares it: a dash and an underscore are the same."""
    return argument.partition("=")[0].replace("-", "_")


def members_of(argument: str) -> set[str]:
    """The members of a set-valued argument."""
    return {member for member in argument.partition("=")[2].split(",") if member}


def words_of(line: str) -> tuple[str, ...]:
    """The arguments of a command line; double quotes keep white space together."""
    words, word, quoted = [], "", False
    for sign in line:
        if sign.isspace() and not quoted:
            words.append(word)
            word = ""
        else:
            quoted ^= sign == '"'
            word += sign
    return tuple(one for one in (*words, word) if one)


@dataclass(frozen=True)
class Intent:
    """The wishes of one host. ``switch`` is the IOMMU's own argument, which depends on the host's firmware."""

    iommu: str = "unmanaged"
    switch: str = ""
    given: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    pages: Pages = field(default_factory=dict)
    default_size: str = ""

    @property
    def arguments(self) -> tuple[str, ...]:
        """Arguments that must be on the line, huge pages aside."""
        mode = ("iommu=pt",) if self.iommu == "passthrough" else ()
        switch = (self.switch,) if self.iommu != "unmanaged" and self.switch else ()
        return (*self.given, *switch, *mode)

    @property
    def forbidden(self) -> tuple[str, ...]:
        """Arguments, or names of arguments, that must not be on the line."""
        contrary = CONTRARY if self.iommu != "unmanaged" else ()
        return tuple(dict.fromkeys((*self.absent, *contrary)))


def intent_of(variables: Mapping[str, Any], *, intel_table: bool, nodes: Iterable[int]) -> Intent:
    """The intent of a host whose firmware describes an Intel IOMMU or not, and whose memory is on these nodes."""
    nodes = sorted(nodes)
    size = variables.get("kernel_hugepages_default_size")
    return Intent(
        iommu=variables.get("kernel_iommu") or "unmanaged",
        switch="intel_iommu=on" if intel_table else "",
        given=tuple(variables.get("kernel_args") or ()),
        absent=tuple(variables.get("kernel_args_absent") or ()),
        pages={one["size"]: _by_node(one, nodes) for one in variables.get("kernel_hugepages") or ()},
        default_size=size if size in PAGE_KIB else "",
    )


def _by_node(entry: Mapping[str, Any], nodes: Sequence[int]) -> dict[int, int]:
    if entry.get("per_node") is not None:
        return dict.fromkeys(nodes, int(entry["per_node"]))
    named = {int(node): int(count) for node, count in (entry.get("nodes") or {}).items()}
    return {**dict.fromkeys(nodes, 0), **named}


# Judging a command line --------------------------------------------------------------------------


def missing(wanted: Sequence[str], line: Sequence[str]) -> list[str]:
    """One sentence for each declared argument that is not on the line, not as declared, or there more than once."""
    sentences = []
    for name in dict.fromkeys(map(name_of, wanted)):
        declared = [one for one in wanted if name_of(one) == name]
        found = [one for one in line if name_of(one) == name]
        good = _holds_members(declared, found) if name in SETS else sorted(declared) == sorted(map(_plain, found))
        if not good:
            sentences.append(f"{' '.join(found) or 'nothing'} in the place of {' '.join(declared)}")
    return sentences


def _plain(argument: str) -> str:
    return argument.replace('"', "")


def _holds_members(declared: Sequence[str], found: Sequence[str]) -> bool:
    wanted = set().union(*map(members_of, declared))
    return len(found) == 1 and wanted <= members_of(found[0])


def present(forbidden: Sequence[str], line: Sequence[str]) -> list[str]:
    """The arguments of the line that are forbidden, by name alone or by name and member."""
    return [one for one in line if any(_is_forbidden(one, rule) for rule in forbidden)]


def _is_forbidden(argument: str, rule: str) -> bool:
    if name_of(argument) != name_of(rule):
        return False
    return "=" not in rule or members_of(rule) <= members_of(argument)


def pages_on(line: Sequence[str]) -> tuple[dict[str, dict[int, int]], str]:
    """The huge pages that a line reserves by size and node, and its default size; node -1 is "any"."""
    pages: dict[str, dict[int, int]] = {}
    size = default = ""
    for word in line:
        name, _, value = word.partition("=")
        if name == "default_hugepagesz":
            default = value
        elif name == "hugepagesz":
            size = value
        elif name == "hugepages":
            counts = [part.partition(":") for part in value.split(",")]
            pages[size or default] = {
                int(node) if sep else -1: int(count if sep else node) for node, sep, count in counts
            }
    return pages, default


def page_differences(intent: Intent, line: Sequence[str]) -> list[str]:
    """One sentence for each reservation of the line that is not the declared one."""
    found, default = pages_on(line)
    sentences = [
        f"{size} pages {_shown(found.get(size, {}))} in the place of {_shown(counts)}"
        for size, counts in intent.pages.items()
        if _nonzero(counts) != _nonzero(found.get(size, {}))
    ]
    if intent.pages:
        sentences += [f"{size} pages are reserved and not declared" for size in found if size not in intent.pages]
    if intent.default_size and default != intent.default_size:
        sentences.append(f"default page size {default or 'unset'} in the place of {intent.default_size}")
    return sentences


def _nonzero(counts: Mapping[int, int]) -> dict[int, int]:
    return {node: count for node, count in counts.items() if count}


def _shown(counts: Mapping[int, int]) -> str:
    return ", ".join(f"node {node}: {count}" for node, count in sorted(counts.items())) or "none"
