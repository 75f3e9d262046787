# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All rules by name, with what documentation and reports say of each: one table, no code.

What is marked "not proven" follows from specifications and was not shown on hardware by this project.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .policy import BARE_METAL, MODES, PASSTHROUGH, TOPOLOGY, VIRTIO

_VM = (PASSTHROUGH,)
_DIRECT = (PASSTHROUGH, BARE_METAL)
_ANY = (*_DIRECT, TOPOLOGY)
_SHOWN = (TOPOLOGY,)


@dataclass(frozen=True)
class Rule:
    """One rule. ``modes`` are the classes of hosts that it is judged for; ``source`` is where it comes from.

    ``remedy`` is for what is not as wanted, ``if_unknown`` for what could not be judged.
    """

    name: str
    title: str
    modes: tuple[str, ...]
    why: str
    remedy: str
    source: str = ""
    if_unknown: str = "Read the host as root, or give input that has it."


_TABLE: tuple[Rule, ...] = (
    # The machine as a whole ----------------------------------------------------------------
    Rule(
        "platform_supported",
        "the processor is an x86 one",
        MODES,
        "BIOS settings, IOMMU arguments and ATS tables are known for Intel and AMD only.",
        "Take this host out of the inventory of GPUDirect hosts.",
    ),
    Rule(
        "not_applicable",
        "the class of the host has direct paths",
        (VIRTIO,),
        "Guests with virtio NICs have no direct path between GPU and NIC, so nothing on it is judged.",
        "Set gpudirect_mode: passthrough_vm where direct paths are wanted.",
    ),
    Rule(
        "gpus_found",
        "there is a GPU",
        _ANY,
        "Without a GPU there is no path to judge.",
        "See whether the GPUs are in their slots and switched on, or correct pci_path_gpus.",
    ),
    Rule(
        "nics_found",
        "there is an RDMA NIC",
        _ANY,
        "Without an RDMA NIC there is no path to judge.",
        "See whether the NICs are in their slots, give input that has them, or correct pci_path_nics.",
    ),
    Rule(
        "nic_supported",
        "no NIC is of the mlx4 family",
        _ANY,
        "ConnectX-2 and ConnectX-3 have neither the firmware options nor the driver that GPUDirect guests need.",
        "Use ConnectX-6 or newer.",
        "Linux drivers/net/ethernet/mellanox/mlx4/main.c",
    ),
    Rule(
        "iommu_on",
        "the kernel uses an IOMMU",
        _VM,
        "Without an IOMMU no device can be given to a guest.",
        "Turn on VT-d or AMD-Vi in the BIOS, and set kernel_iommu: passthrough.",
        "Linux Documentation/ABI/testing/sysfs-class-iommu",
    ),
    Rule(
        "no_acs_override",
        "pcie_acs_override is not on the kernel command line",
        _DIRECT,
        "It makes the kernel believe in isolation and changes no hardware: guests could reach devices of others.",
        "Take pcie_acs_override off the kernel command line and start the host again.",
    ),
    Rule(
        "no_noats",
        "ATS is not switched off on the kernel command line",
        _VM,
        "The argument pci=noats switches ATS off everywhere and makes ports block translated requests.",
        "Take noats out of pci= on the kernel command line and start the host again.",
        "Linux drivers/pci/ats.c, drivers/pci/pci.c",
    ),
    Rule(
        "no_unsafe_interrupts",
        "VFIO does not accept unsafe interrupts",
        _VM,
        "Without interrupt remapping a guest can inject interrupts into the host.",
        "Remove vfio_iommu_type1.allow_unsafe_interrupts, and turn on interrupt remapping (x2APIC) in the BIOS.",
        "Linux drivers/vfio/vfio_iommu_type1.c",
    ),
    Rule(
        "memory_encryption",
        "no memory encryption is active",
        _VM,
        "Direct access of devices to encrypted memory needs support in each device; with peers it is not proven.",
        "Switch memory encryption off (mem_encrypt=off, or in the BIOS), or relax the rule with the reason.",
        if_unknown="Give input that has /proc/cpuinfo, /proc/cmdline and /sys/module. Where these leave it open, the kernel command line "
        "settles it (mem_encrypt=, kvm_amd.sev=, kvm_intel.tdx=), or relax the rule with the reason.",
    ),
    Rule(
        "iommufd",
        "guests use the type1 container and not iommufd",
        _VM,
        "Through iommufd QEMU did not map PCI regions into the IOMMU, so peers do not reach the GPU and nothing fails aloud.",
        "Take <iommufd> out of the guest's definition.",
        "QEMU issue tracker and qemu-devel",
    ),
    # GPU and NIC ---------------------------------------------------------------------------
    Rule(
        "same_switch",
        "the GPU's nearest NIC is below the same switches",
        _ANY,
        "Through the root complex every request crosses the uplink of a switch twice and depends on what the processor can do "
        "between its ports: expect half of the bandwidth or less.",
        "Move the card to a slot below the GPU's switch, or allow the distance with pci_path_max_distance.",
    ),
    Rule(
        "data_direct",
        "no ConnectX-8 with a data-direct function",
        _DIRECT,
        "Such a NIC wants other bits on the ports to its second function (NVIDIA rdma_topo); this product does not judge them yet.",
        "Judge these paths with rdma_topo check.",
        "NVIDIA rdma_topo (rdma-core)",
        if_unknown="Judge these paths with rdma_topo check, or relax the rule with the reason; where the input lacks functions, give all.",
    ),
    Rule(
        "numa_told",
        "the firmware tells the NUMA node of GPU and NIC",
        _DIRECT,
        "Without it the kernel and NCCL place memory and interrupts blindly.",
        "Update the BIOS, or switch off what hides NUMA nodes in it.",
    ),
    Rule(
        "numa_same",
        "GPU and NIC are on one NUMA node",
        _ANY,
        "What goes between them through the root complex, and the memory that serves both, crosses sockets.",
        "Move the card, or see whether the BIOS tells the nodes right.",
    ),
    # Registers of ports --------------------------------------------------------------------
    Rule(
        "acs_dt_capable",
        "ports towards the NIC are capable of direct translated requests",
        _VM,
        "Without it a switch sends translated requests up to the root complex, too.",
        "Use a switch (or its firmware) with ACS Direct Translated P2P, or allow the distance by relaxing the rule.",
        "PCI Express, Access Control Services; NVIDIA rdma_topo (rdma-core)",
    ),
    Rule(
        "acs_direct_translated",
        "ports towards the NIC let translated requests go directly to the GPU",
        _VM,
        "The NIC's translated requests go up to the root complex otherwise. Linux never sets the bit by itself. "
        "That every lower port on the way through several switches needs it is derived and not proven.",
        "Set DirectTrans: pci=config_acs= (Linux 6.12.23 and newer), or setpci ECAP_ACS+6.w=0040:0040.",
        "NVIDIA rdma_topo (rdma-core); Linux drivers/pci/pci.c",
    ),
    Rule(
        "acs_redirect",
        "redirection is on for guests and off without them",
        _DIRECT,
        "With guests, requests with untranslated addresses have to go up to the IOMMU, or devices of different guests reach each "
        "other. Without guests, the same redirection halves the bandwidth between peers.",
        "For guests boot with the IOMMU on and without pci=disable_acs_redir=; without guests clear these bits with pci=config_acs=.",
        "NVIDIA rdma_topo (rdma-core); Linux drivers/pci/pci.c (pci_std_enable_acs)",
    ),
    Rule(
        "acs_translation_blocking",
        "no port blocks translated requests",
        _VM,
        "Translation blocking refuses every request with a translated address, so that ATS does not work at all.",
        "Clear TransBlk: take pci=noats away, or setpci ECAP_ACS+6.w=0000:0002.",
        "Linux drivers/pci/pci.c (pci_std_enable_acs)",
    ),
    Rule(
        "stale_groups",
        "IOMMU groups claim no isolation that the registers do not give",
        _VM,
        "Groups are formed when devices are found. Redirection that is switched off later does not join them, and a device that is "
        "given to a guest can then reach its neighbours.",
        "Start the host again with the bits on the kernel command line (pci=config_acs= or pci=disable_acs_redir=).",
        "Linux drivers/pci/pci.c (REQ_ACS_FLAGS), drivers/iommu/iommu.c",
    ),
    Rule(
        "ats_present",
        "the NIC has ATS with guests, and has none without them",
        _DIRECT,
        "With guests only translated requests go directly. Without guests, and where the path leads through the root complex "
        "anyway, NVIDIA's tool wants it off.",
        "Set ATS_ENABLED in the NIC's firmware (1 for guests with near NICs, else 0) and start the host again.",
        "NVIDIA rdma_topo (rdma-core); Linux drivers/pci/ats.c",
    ),
    Rule(
        "ats_root_port",
        "the firmware allows ATS below the NIC's root port",
        _VM,
        "On Intel the kernel switches ATS on only below root ports that an ATSR structure of the DMAR table covers.",
        "Turn on ATS for the slot (or PCIe ATS in general) in the BIOS.",
        "Linux drivers/iommu/intel/dmar.c, iommu.c (dmar_ats_supported)",
    ),
    # Groups --------------------------------------------------------------------------------
    Rule(
        "groups_distinct",
        "each GPU, NIC and VF has an IOMMU group of its own",
        _VM,
        "What shares a group goes to one guest together, and the NIC's PF has to stay on the host.",
        "See acs_redirect for the ports above; ports without ACS cannot keep devices apart.",
        "Linux drivers/iommu/iommu.c (pci_device_group)",
    ),
    Rule(
        "groups_viable",
        "nothing in a passed-through group is held by a driver of the host",
        _VM,
        "VFIO refuses a group while a driver of the host holds a member. Bridges do not count.",
        "Give every member of the group to vfio-pci (pci_driver_devices).",
        "Linux drivers/vfio, Documentation/driver-api/vfio.rst",
    ),
    # The devices themselves ----------------------------------------------------------------
    Rule(
        "link_speed",
        "links run at the best speed that both ends have",
        _DIRECT,
        "A slower link bounds every transfer. GPUs slow their link down while they idle, which is no fault.",
        "Seat the card again; look for errors of the link (AER) and for a limit in the BIOS.",
    ),
    Rule(
        "link_width",
        "links have all lanes that both ends have",
        _DIRECT,
        "Missing lanes bound every transfer, idle or not.",
        "Seat the card or riser again, and look for bifurcation of the slot in the BIOS.",
    ),
    Rule(
        "bars_assigned",
        "all regions of GPU and NIC have a place",
        _DIRECT,
        "What has no address cannot be reached by a peer.",
        "Turn on Above 4G Decoding and raise the MMIO size in the BIOS; as a last resort boot with pci=realloc.",
    ),
    Rule(
        "bars_size",
        "the GPU's largest region is as large as the site wants",
        _DIRECT,
        "A NIC reaches only what lies in the region.",
        "Turn on Resizable BAR or the GPU's large-BAR mode.",
    ),
    Rule(
        "max_read_request",
        "the NIC may ask for enough in one read",
        _DIRECT,
        "Small reads cost bandwidth when the NIC reads from the GPU.",
        "Set it in the BIOS, or at run time with setpci CAP_EXP+8.w (bits 14-12).",
        "published recipe of Vela (ASPLOS 2025 artifact)",
    ),
    Rule(
        "relaxed_ordering",
        "the NIC may use relaxed ordering",
        _VM,
        "Completions of reads without this attribute are redirected to the root complex even with DirectTrans. Follows from the "
        "specification; not proven.",
        "Leave RlxdOrd+ in the device control of the NIC, and turn it on in the BIOS.",
    ),
    Rule(
        "bars_resizable",
        "tells which GPUs could have larger regions",
        _ANY,
        "A region that is smaller than it could be is no fault by itself; bars_size judges what the site wants.",
        "Turn on Resizable BAR in the BIOS where more of the GPU's memory shall be reached.",
        "PCI Express, Resizable BAR",
    ),
    # What stands alone ---------------------------------------------------------------------
    Rule(
        "nic_port_redirects",
        "ports above a NIC without a GPU redirect nothing",
        _ANY,
        "Where no GPU is in the input there is no path to judge; what the ports above a NIC do to peers is told all the same.",
        "Give input that has the GPUs too. For guests put the NIC below the switch of a GPU.",
        "Linux drivers/pci/pci.c (pci_std_enable_acs)",
    ),
    Rule(
        "acs_empty",
        "tells which functions have ACS that can do nothing",
        _ANY,
        "To have the capability does not mean that devices can be kept apart: without bits in it nothing can be enabled.",
        "Use a slot whose ports can do what ACS needs.",
        "PCI Express, Access Control Services",
    ),
    Rule(
        "nvswitches_together",
        "tells which NVSwitches go to one guest together",
        _VM,
        "NVSwitches of one IOMMU group cannot be given to guests one by one.",
        "Give all of them to one guest, or leave them to the host and its Fabric Manager (shared NVSwitch mode).",
        "Linux drivers/vfio, Documentation/driver-api/vfio.rst",
    ),
    # Guests and what they show ---------------------------------------------------------------
    Rule(
        "guest_view",
        "a guest shows below which switches its devices are",
        _SHOWN,
        "In a flat guest each device has a port of its own, so nothing tells which of them share a switch of the host.",
        "Build the guest with the host's switches in it.",
        if_unknown="Supply the host mapping (an audit of the host) or an NCCL topology file (--compare).",
    ),
    Rule(
        "guest_numa",
        "a guest tells the NUMA nodes of its devices",
        _SHOWN,
        "Without it the guest's kernel and NCCL take all devices for equally near to all processors and memory.",
        "Give the guest an expander bus with a NUMA node for each host bridge, and put its devices below these.",
        if_unknown="Give input that has NUMA nodes (lspci -vv, /sys, or an NCCL topology file).",
    ),
    Rule(
        "domain_assignable",
        "GPUs and NICs are in PCI domains that libvirt can name",
        (PASSTHROUGH, TOPOLOGY),
        "The domains that libvirt knows have 16 bits; what is in another one is not assignable by it.",
        "Switch off what makes these domains (Intel VMD, virtual PCI buses), or leave the device to the host.",
        "libvirt domain XML schema (pciDomain)",
    ),
    # Topology files and tables -----------------------------------------------------------------
    Rule(
        "file_version",
        "a topology file has a version that NCCL reads",
        _SHOWN,
        "NCCL refuses files of other versions, and then sees the flat guest again.",
        "Write version 1 for NCCL, 2 for RCCL.",
        "NCCL src/graph/xml.cc",
    ),
    Rule(
        "file_bus_ids",
        "a topology file has each device once, by an address",
        _SHOWN,
        "NCCL finds devices by these addresses and takes the first of two.",
        "Write each device once, by the address that it has in the guest.",
        "NCCL src/graph/xml.cc",
    ),
    Rule(
        "file_numa",
        "a topology file tells NUMA nodes, and devices on them",
        _SHOWN,
        "NCCL chooses processors and NICs by these nodes.",
        "Give the guest NUMA nodes with devices on them, or pin what uses the GPUs to the nodes that have devices.",
        "NCCL src/graph/topo.cc",
    ),
    Rule(
        "file_masks",
        "the masks of a topology file cover the guest's processors, each once",
        _SHOWN,
        "NCCL pins its threads by these masks.",
        "Write the masks of /sys/devices/system/node/node*/cpumap of the guest.",
        "NCCL src/graph/topo.cc",
    ),
    Rule(
        "file_processors",
        "a topology file tells the processor of each NUMA node",
        _SHOWN,
        "NCCL asks the guest only for nodes with a GPU or NIC that a job uses, and ends where another node is kept and says nothing.",
        "Write arch, vendor, familyid and modelid in each cpu.",
        "NCCL src/graph/topo.cc; docs/examples/nccl-h200",
    ),
    Rule(
        "file_links",
        "a topology file tells link speeds and widths that NCCL knows",
        _SHOWN,
        "NCCL takes a value of its own for what it does not know, and then chooses ways by that.",
        "Write link_speed and link_width as the host's /sys has them.",
        "NCCL src/graph/topo.cc",
    ),
    Rule(
        "file_gdr",
        "GPUs and NICs of a topology dump can do GPUDirect RDMA",
        _SHOWN,
        "With gdr=0 NCCL copies through host memory.",
        "Load nvidia-peermem, or use a kernel and driver with dma-buf.",
        "NCCL src/graph/xml.cc",
    ),
    Rule(
        "shared_nics",
        "no NIC is the nearest of more than two GPUs",
        _SHOWN,
        "GPUs that share a NIC share its bandwidth. Two for each NIC is a usual design; more is told.",
        "Add NICs, or expect that share of the bandwidth.",
    ),
    Rule(
        "nic_vendor",
        "the NICs are those that this product sets up",
        _SHOWN,
        "SR-IOV, firmware and RoCE settings of this product are for NVIDIA (Mellanox) NICs.",
        "Use what the maker of the NIC gives for its settings.",
    ),
    Rule(
        "consistent",
        "a topology file or table says the same as the machine",
        _SHOWN,
        "NCCL silently leaves out of a topology file what it does not find in the guest, and believes the rest.",
        "Make the file anew from the machine that it is for.",
        if_unknown="Give input of the machine that has what is compared: lspci -nn, or a captured /sys.",
    ),
    Rule(
        "relaxation_unused",
        "every relaxation relaxes something",
        _DIRECT,
        "A relaxation that nothing needs hides the next fault.",
        "Take it out of pci_path_relax.",
    ),
)

RULES: Mapping[str, Rule] = {rule.name: rule for rule in _TABLE}
# Those that a site can take out of the verdict.
RELAXABLE = tuple(name for name in RULES if name not in ("relaxation_unused", "not_applicable"))
