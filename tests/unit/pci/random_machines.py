"""Random machines: any tree of bridges, any device anywhere, with or without each thing that a device may have."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.fixtures.fake_devices import LINK_8X8, LINK_16X16, Device, Disk, Net, Root, Vfs
from tests.fixtures.fake_pci import Machine

DOMAINS = (0, 1, 0x10000, 0xFFFFFFFF)
LINKS = [
    None,
    LINK_8X8,
    LINK_16X16,
    ("Unknown", "16.0 GT/s PCIe", "0", "16"),
    ("2.5 GT/s", "2.5 GT/s PCIe", "1", "255"),
]
ids = st.integers(1, 0xFFFE)
# Not those of bridges, which are plugged as such.
classes = st.sampled_from([0x010802, 0x010601, 0x020000, 0x020700, 0x030000, 0x030200, 0x060000, 0x068000, 0x0B4000])
serials = st.sampled_from(["", "94-6d-ae-ff-fe-12-34-56", "00-00-00-00-00-00-00-01"])
words = st.one_of(st.none(), st.tuples(st.integers(0, 0x7F), st.integers(0, 0x7F)))
regions = st.dictionaries(
    st.integers(0, 12),
    st.builds(
        lambda start, size, flags: (start << 30, (start << 30) + (1 << size) - 1, flags),
        st.integers(0, 64),
        st.integers(7, 30),
        st.integers(1, 2**32),
    ),
    max_size=3,
)


@st.composite
def devices(draw: st.DrawFn, number: int) -> dict[str, object]:
    """What one function may have; ``number`` keeps the names of what hangs below it apart."""
    own = draw(st.sampled_from(["", "igb", "nvme", "virtio-pci"]))
    found: dict[str, object] = {
        "vendor": draw(ids),
        "device": draw(ids),
        "class_code": 0x010802 if own == "nvme" else draw(classes),
        "subsystem": (draw(ids), draw(ids)),
        "revision": draw(st.integers(0, 255)),
        "numa": draw(st.integers(-1, 3)),
        "driver": draw(st.sampled_from(["", "vfio-pci"])),
        "own_driver": own,
        "override": draw(st.sampled_from(["", "vfio-pci"])),
        "link": draw(st.sampled_from(LINKS)),
        "regions": draw(regions),
        "acs": draw(words),
        "ats": draw(words),
        "serial": draw(serials),
        "readable": draw(st.sampled_from([0, 64, 256, 4096])),
        "boot_vga": draw(st.booleans()),
    }
    if own == "nvme":
        found["disks"] = [Disk(f"nvme{number}n1", draw(st.sampled_from(["", "S1"])), 0, draw(st.booleans()))]
    elif own:
        port = draw(st.sampled_from([None, "p0", "pf0vf3"]))
        net = Net(f"eth{number}", f"02:00:00:00:00:{number:02x}", 1500, "up", port, None, virtio=own == "virtio-pci")
        found["nets"] = [net]
        found["rdma"] = draw(st.sampled_from([[], [f"mlx5_{number}"]]))
    if own == "igb" and found["link"] is not None:
        found["vfs"] = Vfs(
            16, draw(st.integers(1, 16)), draw(st.sampled_from([1, 128])), draw(st.integers(1, 3)), 7, "", 0x020000
        )
    return found


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    """A machine with up to three host bridges."""
    machine = Machine(draw(st.sampled_from(["identity", "DMA", ""])))
    for index in range(draw(st.integers(1, 3))):
        root = machine.root(0x40 * index, domain=draw(st.sampled_from(DOMAINS)), numa=draw(st.integers(-1, 1)))
        _fill(draw, machine, root, depth=0)
    for device in list(machine.devices):
        if device.vfs is not None:
            count = draw(st.integers(0, min(4, device.totalvfs)))
            if count:
                machine.add_vfs(device, count)
    return machine


def _fill(draw: st.DrawFn, machine: Machine, above: Device | Root, depth: int) -> None:
    # The last slot stays free of bridges, so that the VFs of a function, which lie further, meet no other function.
    for slot in draw(st.lists(st.sampled_from(["01.0", "02.0", "1f.7"]), max_size=2, unique=True)):
        number = len(machine.devices)
        if depth < 3 and draw(st.booleans()):
            acs = draw(st.sampled_from([None, 0, 0x1D, 0x5D]))
            _fill(draw, machine, machine.port(above, slot, acs, numa=draw(st.integers(-1, 1))), depth + 1)
        else:
            machine.plug(above, slot, **draw(devices(number)))
