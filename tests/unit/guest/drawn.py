"""Random hosts and guests."""

from __future__ import annotations

from ansible_collections.vela.gpudirect.plugins.module_utils.guest.placed import Shape
from hypothesis import strategies as st

from tests.fixtures.placement_hosts import SOUND, GuestHost, Root

NAMES = ("a", "b", "c", "d", "e")


def _plugged(draw: st.DrawFn, host: GuestHost, root: Root, most: int) -> None:
    """GPUs and NICs below switches, perhaps one below another, or on root ports."""
    for _switch in range(draw(st.integers(1, 2))):
        gpus, nics = draw(st.sampled_from([0, 1, 2, 2, 3])), draw(st.sampled_from([0, 1, 1, 2]))
        if draw(st.integers(0, 3)):
            lower = root.switch(gpus + nics + 1)
            if draw(st.integers(0, 4)) == 0:
                lower = [*lower[:-1], *root.switch(2, lower[-1])]
        else:
            lower = [root.port() for _one in range(gpus + nics)]
        for port in lower[:gpus]:
            if sum(name.startswith("gpu") for name in host.named) < most:
                root.gpu(port)
        for port in lower[gpus : gpus + nics]:
            root.nic(port, draw(st.sampled_from([0, 1, 2, 3, 4])), ports=draw(st.integers(1, 2)))


@st.composite
def hosts(draw: st.DrawFn, odd: bool = True) -> GuestHost:
    """One to four nodes with one to five root buses; ``odd``: some devices cannot be given, or share a group."""
    host = GuestHost()
    nodes = draw(st.sampled_from([1, 2, 2, 4]))
    for number in range(draw(st.sampled_from([1, 2, 4, 4, 5]))):
        node = draw(st.sampled_from([*range(nodes), *range(nodes), None]))
        _plugged(draw, host, host.root(0x10 + 0x28 * number, node), most=8)
    root = host.root(0xF0, 0)
    for _number in range(draw(st.integers(0, 2))):
        root.nvswitch(root.port())
    host.cpus(
        nodes,
        draw(st.sampled_from([2, 8, 16, 16])),
        draw(st.sampled_from([0, 8, 40, 80])),
        threads=draw(st.sampled_from([1, 2, 2])),
    )
    if odd:
        _made_odd(draw, host, root)
    return host


def _made_odd(draw: st.DrawFn, host: GuestHost, root: Root) -> None:
    names = [name for name in sorted(host.named) if not name.startswith("nic") or "vf" in name]
    if not names:
        return
    for name in draw(st.lists(st.sampled_from(names), max_size=3, unique=True)):
        host.edit(
            name,
            **draw(
                st.sampled_from([{"driver": "nvidia"}, {"driver": None}, {"shares": names[0]}, {"shares": names[-1]}])
            ),
        )
    if draw(st.booleans()):  # a function of the host in the group of a device
        port = root.port()
        other = host.add(
            SOUND, port.address.plus(8), port, root.root_name, driver=draw(st.sampled_from(["snd", "vfio-pci"]))
        )
        host.named["other0"] = other.address
        host.edit("other0", shares=draw(st.sampled_from(names)))


def shapes_named(name: str, most: int = 8) -> st.SearchStrategy[Shape]:
    """A shape, most of them possible."""
    return st.builds(
        Shape,
        name=st.just(name),
        gpus=st.sampled_from([one for one in (0, 1, 1, 2, 2, 3, 4, 8) if one <= most]),
        vfs_per_gpu=st.sampled_from([0, 1, 1, 1, 2]),
        nvswitches=st.sampled_from([*["none"] * 12, "all", "7"]),
        vcpus=st.sampled_from([2, 2, 4, 4, 8, 8, 3]),
        memory_mib=st.sampled_from([2, 4, 4, 5, 8, 20]).map(lambda gib: gib * 1024),
    )


def shape_lists(names: tuple[str, ...] = NAMES) -> st.SearchStrategy[list[Shape]]:
    """Several guests, each with a name of its own."""
    return st.lists(st.sampled_from(names), unique=True, min_size=1, max_size=len(names)).flatmap(
        lambda chosen: st.tuples(*(shapes_named(name) for name in chosen)).map(list)
    )
