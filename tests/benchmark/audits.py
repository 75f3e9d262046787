"""Many hosts in one audit, and guests of many hosts: time for each host, and memory, at few and at many.

Hosts are generated while they are written, each with serial numbers of its own, into one compressed archive.
"""

from __future__ import annotations

import gzip
import os
import random
import re
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import yaml
from ansible_collections.vela.gpudirect.plugins.module_utils.guest import domain_xml, nccl_xml
from ansible_collections.vela.gpudirect.plugins.module_utils.guest.model import model_of
from ansible_collections.vela.gpudirect.plugins.module_utils.guest.options import Disk, Network, Options
from ansible_collections.vela.gpudirect.plugins.module_utils.guest.placed import Placed, Shape
from ansible_collections.vela.gpudirect.plugins.module_utils.pci import lspci
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.topology import topology
from ansible_collections.vela.gpudirect.plugins.module_utils.placement import place

from tests.benchmark.loopback import ROOT
from tests.benchmark.suite import Result, Sizes, Tell
from tests.fixtures import fake_lspci, fake_machines, placement_hosts

FEW, MANY = 190, 10_000  # the few have 1500 GPUs: 180 hosts with eight and ten with six
# One host in as many has ports that do not let translated requests go directly.
_WRONG = 10
_LEVEL = 1  # of compression: hosts are written faster than they are judged


@dataclass(frozen=True)
class Spent:
    """What a command took, and its largest memory (resource usage of the child, as the kernel tells it at its end)."""

    wall_s: float
    cpu_s: float
    peak_mib: float


def host_texts(count: int) -> Iterator[str]:
    """``lspci -vvv`` of each host: about 150 functions."""
    kinds = {(gpus, wrong): _text(gpus, wrong=wrong) for gpus in (8, 6) for wrong in (False, True)}
    for number in range(count):
        drawn = random.Random(number)  # noqa: S311
        text = kinds[6 if number % 19 == 0 else 8, number % _WRONG == 0]
        yield re.sub(r"(?<=Device Serial Number )\S+", lambda _old, drawn=drawn: drawn.randbytes(8).hex("-"), text)


def _text(gpus: int, *, wrong: bool) -> str:
    made = fake_machines.large(gpus, 8, 13)
    for device in made.by_address():
        if device.acs is not None:
            device.acs = (device.acs[0], 0x1D if wrong else 0x5D)
    return fake_lspci.text(made).replace("MaxReadReq 128", "MaxReadReq 4096")


def written(path: Path, count: int) -> None:
    """All hosts as files of one archive."""
    with gzip.open(path, "wb", _LEVEL) as packed, tarfile.open(fileobj=packed, mode="w|") as archive:
        for number, text in enumerate(host_texts(count)):
            member = tarfile.TarInfo(f"rack{number // 40:03}/host{number:05}.lspci")
            data = text.encode()
            member.size = len(data)
            archive.addfile(member, BytesIO(data))


def audited(path: Path, folder: Path) -> Spent:
    """One audit of an archive; the verdict of each host is a line of the output."""
    argv = [str(ROOT / "gpudirect"), "audit", str(path), "--summary", "--mode", "passthrough_vm"]
    with (folder / "audit.txt").open("w") as output:
        began = time.monotonic()
        process = subprocess.Popen(argv, stdout=output, stderr=output)
        _pid, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (1, 2, 3):
        raise RuntimeError(f"{argv} ended with {process.returncode}: {(folder / 'audit.txt').read_text()[-1000:]}")
    return Spent(time.monotonic() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def many_results(sizes: Sizes, tell: Tell) -> list[Result]:
    """Audits and guests of few hosts, and of as many as are asked for."""
    with tempfile.TemporaryDirectory(prefix="gpudirect-bench-") as scratch:
        return [*audit_results(Path(scratch), sizes.audited, tell), *guest_results(sizes.audited, tell)]


def audit_results(folder: Path, many: int, tell: Tell) -> list[Result]:
    """Few hosts and many in one audit each."""
    spent: dict[int, Spent] = {}
    for count in (FEW, many):
        archive = folder / f"{count}.tar.gz"
        written(archive, count)
        one = spent[count] = audited(archive, folder)
        first = (folder / "audit.txt").read_text().splitlines()[0]
        tell(
            f"audit of {count} hosts: {one.wall_s:.1f} s, {1000 * one.wall_s / count:.1f} ms a host, CPU "
            f"{1000 * one.cpu_s / count:.1f} ms a host, peak {one.peak_mib:.0f} MiB, archive "
            f"{archive.stat().st_size >> 20} MiB: {first}"
        )
        archive.unlink()
    few, all_ = spent[FEW], spent[many]
    yaml_s = _yaml_s()
    tell(f"YAML of one of these hosts, C loader: {1000 * yaml_s:.1f} ms")
    what = f"audit of {many} hosts at once"
    return [
        Result(
            "audit-host", f"{what}: time for a host", f"audit of {FEW}", (all_.wall_s / many) / (few.wall_s / FEW), 1.25
        ),
        Result("audit-memory", f"{what}: peak memory", f"audit of {FEW}", all_.peak_mib / few.peak_mib, 1.5),
        Result("audit-yaml", f"{what}: CPU for a host", "YAML of its tree, C loader", all_.cpu_s / many / yaml_s, None),
    ]


def _yaml_s() -> float:
    tree = lspci.read(next(host_texts(1)), "host").tree
    text = yaml.dump(topology(tree), Dumper=yaml.CSafeDumper)
    return _cpu_s(lambda: yaml.load(text, Loader=yaml.CSafeLoader), 7)  # noqa: S506


def _cpu_s(work: Callable[[], object], turns: int) -> float:
    found = []
    for _turn in range(turns):
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return sorted(found)[turns // 2]


# Guests ----------------------------------------------------------------------------------

SHAPES = (Shape("all", 4, 1, vcpus=40, memory_mib=400 << 10), Shape("rest", 4, 1, vcpus=40, memory_mib=400 << 10))
_KINDS = ("vela", "hgx", "amd")


def guests(number: int) -> int:
    """Place the guests of a host and render both documents of each; how many bytes."""
    made = placement_hosts.built(_KINDS[number % len(_KINDS)], {})
    machine = made.machine()
    machine = type(machine)(machine.tree, machine.platform, f"host{number:05}")
    size = 0
    for one in place(machine, made.nodes, SHAPES, (), made.selection()):
        if not isinstance(one, Placed):
            continue
        disk = Disk(f"/var/lib/libvirt/images/{one.shape.name}.qcow2")
        guest = model_of(machine, one, Options(disk=disk, network=Network("default")))
        size += len(domain_xml.render(guest)) + len(nccl_xml.render(guest))
    if not size:
        raise RuntimeError(f"no guest of host {number} was placed")
    return size


def guest_results(many: int, tell: Tell) -> list[Result]:
    """Placement and both documents, for few hosts and for many, each in a process of its own."""
    spent: dict[int, Spent] = {}
    for count in (FEW, many):
        argv = [sys.executable, "-m", "tests.benchmark.audits", str(count)]
        began = time.monotonic()
        process = subprocess.Popen(argv, cwd=ROOT)
        _pid, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RuntimeError(f"{argv} ended with {process.returncode}")
        one = spent[count] = Spent(time.monotonic() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)
        tell(
            f"placement and rendering for {count} hosts: {one.wall_s:.1f} s, {1000 * one.cpu_s / count:.1f} ms CPU a host, "
            f"peak {one.peak_mib:.0f} MiB"
        )
    few, all_ = spent[FEW], spent[many]
    slope = (all_.cpu_s - few.cpu_s) / (many - FEW)
    what = f"placement, domain and NCCL file, {many} hosts"
    return [
        Result("guests-memory", f"{what}: peak memory", f"{FEW} hosts", all_.peak_mib / few.peak_mib, 1.25),
        Result(
            "guests-yaml",
            f"{what}: CPU for a host of 8 GPUs",
            "YAML of a host's tree, C loader",
            slope / _yaml_s(),
            None,
        ),
    ]


if __name__ == "__main__":
    sys.path.insert(0, ".ansible/collections")
    for host in range(int(sys.argv[1])):
        guests(host)
