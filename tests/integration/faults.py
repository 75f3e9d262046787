"""Faults of a converged host, one for each check: what makes it, what takes it away, and what must be said of it."""

from __future__ import annotations

STATE = "/var/lib/gpudirect"
DEVICES = "/sys/bus/pci/devices"
# Addresses by the description of node-a: a disk and a NIC of each node, and a device without a driver.
DISK, FAR_DISK, NIC, FAR_NIC, BAR = (
    f"0000:{place}" for place in ("23:00.0", "43:00.0", "24:00.0", "44:00.0", "45:00.0")
)
# The ports above a disk, which plays a GPU, and above a NIC; and a NIC with ATS.
GPU_PORT, NIC_PORT, ATS_PORT, ATS_NIC = "0000:22:00.0", "0000:22:01.0", "0000:22:03.0", "0000:26:00.0"
FAR_NAME = f"$(ls {DEVICES}/{FAR_NIC}/net)"
GROUP = f"/sys/kernel/iommu_groups/$(basename $(readlink {DEVICES}/{DISK}/iommu_group))/devices"
# The table of the IOMMU with an ATSR structure (type 2) that no longer says "all root ports" (flag 1).
NO_ATS = """python3 -c '
table = bytearray(open("/sys/firmware/acpi/tables/DMAR", "rb").read())
at = 48
while at < len(table):
    if table[at] == 2:
        table[at + 4] = 0
    at += int.from_bytes(table[at + 2 : at + 4], "little")
open("/run/dmar", "wb").write(table)
'; mount --bind /run/dmar /sys/firmware/acpi/tables/DMAR"""


def shows(path: str, text: str, name: str) -> tuple[str, str]:
    """What lays another text over a file of the kernel, and what takes it away."""
    return f"{text} > /run/{name}; mount --bind /run/{name} {path}", f"umount {path}"


# Another word in an extended capability of a function, of which the file then shows a copy.
_REGISTER = """python3 -c '
data = bytearray(open("{config}", "rb").read())
at = 256
while int.from_bytes(data[at : at + 2], "little") != {capability}:
    at = int.from_bytes(data[at + 2 : at + 4], "little") >> 4
data[at + {offset} : at + {offset} + 2] = ({word}).to_bytes(2, "little")
open("/run/config-{address}", "wb").write(data)
'; mount --bind /run/config-{address} {config}"""


def holds(address: str, capability: int, offset: int, word: int) -> tuple[str, str]:
    """What shows another word in a register, and what takes that away; the register itself stays as it is."""
    config = f"{DEVICES}/{address}/config"
    made = _REGISTER.format(config=config, address=address, capability=capability, offset=offset, word=word)
    return made, f"umount {config}"


# The same of a standard capability: device control of PCI Express, in which reads of 4096 bytes are allowed.
LARGE_READS = f"""python3 -c '
data = bytearray(open("{DEVICES}/{NIC}/config", "rb").read())
at = data[0x34]
while data[at] != 0x10:
    at = data[at + 1]
data[at + 8 : at + 10] = (0x5000).to_bytes(2, "little")
open("/run/config-{NIC}", "wb").write(data)
'; mount --bind /run/config-{NIC} {DEVICES}/{NIC}/config"""
ACS, ATS, OTHER = 0x0D, 0x0F, 0x0B  # extended capabilities; the last is anything that nobody looks at

# Each fault: what makes it, what takes it away, the check that must name it, and a word of its evidence.
FAULTS: tuple[tuple[str, str, str, str], ...] = (
    (
        "sed 's/ iommu=pt/ iommu=pt iommu=pt pcie_acs_override=downstream/' /proc/cmdline > /run/cmdline;"
        " mount --bind /run/cmdline /proc/cmdline",
        "umount /proc/cmdline",
        "h01_declared_arguments_are_live",
        "iommu=pt iommu=pt in the place of iommu=pt",
    ),
    ("true", "true", "h01_contrary_arguments_are_not_live", "found pcie_acs_override=downstream"),
    (
        "cp -a /boot/grub/grub.cfg /root/; sed -i 's/ mitigations=auto/ intel_iommu=off/' /boot/grub/grub.cfg",
        "cp -a /root/grub.cfg /boot/grub/grub.cfg; rm /root/grub.cfg",
        "next_boot_has_the_declared_arguments",
        "nothing in the place of mitigations=auto",
    ),
    ("true", "true", "next_boot_has_no_contrary_argument", "intel_iommu=off"),
    ("mount -t tmpfs tmpfs /sys/class/iommu", "umount /sys/class/iommu", "h02_the_iommu_has_made_groups", "0 IOMMUs"),
    (
        "echo DMA-FQ > /run/type; mount --bind /run/type /sys/kernel/iommu_groups/3/type",
        "umount /sys/kernel/iommu_groups/3/type",
        "h02_groups_map_as_declared",
        "group 3: DMA-FQ",
    ),
    (
        "sed 's/IR-//' /proc/interrupts > /run/interrupts; mount --bind /run/interrupts /proc/interrupts",
        "umount /proc/interrupts",
        "h03_interrupts_are_remapped",
        "/proc/interrupts",
    ),
    (
        "echo '<3>DMAR: [DMA Read NO_PASID] Request device [21:00.0] fault addr 0x0 [fault reason 0x06]' > /dev/kmsg",
        "true",
        "h03_the_iommu_has_seen_no_fault",
        "21:00.0",
    ),
    (
        "echo Y > /sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts",
        "echo N > /sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts",
        "h05_vfio_is_strict",
        "allow_unsafe_interrupts Y",
    ),
    (
        "echo 63 > /sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages",
        "echo 64 > /sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages",
        "h27_pages_per_node",
        "node 1: 63 x 2M",
    ),
    (
        "sed 's/^Hugepagesize:.*/Hugepagesize:    1048576 kB/' /proc/meminfo > /run/meminfo;"
        " mount --bind /run/meminfo /proc/meminfo",
        "umount /proc/meminfo",
        "h27_default_page_size",
        "found 1048576 kB",
    ),
    (f"chmod 644 {STATE}/owned.json", f"chmod 600 {STATE}/owned.json", "state_is_private", "644 0 f"),
    (
        "systemctl disable gpudirect-boot.service",
        "systemctl enable gpudirect-boot.service",
        "every_boot_brings_back_what_a_boot_loses",
        "found disabled",
    ),
    (
        "systemctl stop gpudirect-drift.timer",
        "systemctl start gpudirect-drift.timer",
        "the_host_watches_for_drift",
        "found inactive",
    ),
    (
        "chmod 644 /etc/gpudirect/intent.json",
        "chmod 600 /etc/gpudirect/intent.json",
        "intent_of_the_host_is_private",
        "644 0",
    ),
    (
        f"echo 1 > {DEVICES}/{BAR}/remove",
        "echo 1 > /sys/bus/pci/rescan; udevadm settle",
        "every_declared_device_is_there",
        "(gpu-bar): 1 devices match",
    ),
    (*holds(NIC_PORT, ACS, 6, 0x1D), "h06_ports_have_the_words_of_the_mode", "ACS 0x1d of 0x5f (wanted 0x5d)"),
    (*holds(GPU_PORT, ACS, 6, 0x1F), "h06_no_port_blocks_translated_requests", "ACS 0x1f of 0x5f"),
    (*holds(ATS_PORT, ACS, 4, 0x1F), "h06_ports_towards_nics_can_direct_translated_requests", "of 0x1f"),
    (
        LARGE_READS,
        f"umount {DEVICES}/{NIC}/config",
        "h26_nics_may_read_as_much_at_a_time_as_declared",
        f"{NIC}: 4096 bytes",
    ),
    (*holds(ATS_NIC, ATS, 0, OTHER), "h16_nics_have_ats_where_the_mode_wants_it", f"{ATS_NIC} has no ATS"),
    (
        NO_ATS,
        "umount /sys/firmware/acpi/tables/DMAR",
        "h04_the_firmware_serves_ats_of_declared_devices",
        "none for 0000:20:00.0, 0000:40:00.0",
    ),
    (
        f"GROUP={GROUP}; mount -t tmpfs tmpfs $GROUP; touch $GROUP/{DISK} $GROUP/{NIC}",
        f"umount {GROUP}",
        "h08_groups_are_separate",
        f"holds {DISK}, {NIC}",
    ),
    (
        *shows(f"{DEVICES}/{NIC}/max_link_width", "echo 16", "width"),
        "h09_links_are_as_wide_as_their_devices",
        f"{NIC} (8086:10c9): x1 of x16",
    ),
    (
        *shows(f"{DEVICES}/{FAR_DISK}/numa_node", "echo -1", "node"),
        "h10_devices_are_on_a_known_node",
        f"{FAR_DISK} (1b36:0010): node unknown",
    ),
    (
        *shows(
            f"{DEVICES}/{FAR_DISK}/resource",
            f"sed '1s/^0x[0-9a-f]*/0x0000000000000000/' {DEVICES}/{FAR_DISK}/resource",
            "resource",
        ),
        "h11_memory_of_devices_has_a_place",
        f"{FAR_DISK} (1b36:0010): region 0",
    ),
    (
        f"echo {DISK} > /sys/bus/pci/drivers/vfio-pci/unbind",
        f"echo {DISK} > /sys/bus/pci/drivers_probe",
        "h12_devices_have_the_declared_driver",
        f"{DISK} (1b36:0010) of pci_driver_devices[0] (gpu-disk): no driver in the place of vfio-pci",
    ),
    (
        f"mount -t tmpfs tmpfs {DEVICES}/{NIC}/net",
        f"umount {DEVICES}/{NIC}/net",
        "h12_ports_keep_their_network_driver",
        f"{NIC} (8086:10c9): igb, 0 network devices",
    ),
    (
        *shows("/proc/modules", "(cat /proc/modules; echo nouveau 1 0 - Live 0x0)", "modules"),
        "h13_barred_modules_are_not_loaded",
        "found nouveau",
    ),
    (
        f"echo 1 > {DEVICES}/{FAR_NIC}/sriov_drivers_autoprobe",
        f"echo 0 > {DEVICES}/{FAR_NIC}/sriov_drivers_autoprobe",
        "h18_ports_have_the_declared_vfs",
        f"{FAR_NIC} (8086:10c9): sriov_drivers_autoprobe 1 in the place of 0",
    ),
    (
        f"ip link set dev {FAR_NAME} vf 0 trust on",
        f"ip link set dev {FAR_NAME} vf 0 trust off",
        "h19_vfs_have_the_declared_attributes",
        f"VF 0 of {FAR_NIC}: trust true in the place of false",
    ),
    (
        f"ip link set dev {FAR_NAME} down",
        f"ip link set dev {FAR_NAME} up",
        "h22_ports_have_link_and_mtu",
        f"{FAR_NIC} (8086:10c9): link DOWN in the place of UP",
    ),
)
