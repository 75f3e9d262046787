"""What the inventory may ask for, and what it may not."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import IntentError
from ansible_collections.vela.gpudirect.plugins.module_utils.guest import wanted
from ansible_collections.vela.gpudirect.plugins.module_utils.guest.intent import parse
from ansible_collections.vela.gpudirect.plugins.module_utils.guest.options import checked
from ansible_collections.vela.gpudirect.plugins.module_utils.guest.placed import Shape
from ansible_collections.vela.gpudirect.plugins.module_utils.guest.rails import Rail, rails_of
from ansible_collections.vela.gpudirect.plugins.module_utils.path.finding import Kind
from ansible_collections.vela.gpudirect.plugins.module_utils.pci.address import Address

from tests.fixtures.ssh_keys import blob, public_key
from tests.unit.guest.guests import PLAIN

KEY = public_key("ops")
LEAST = {"name": "train-a", "vcpus": 4, "memory_gib": 8}


def problems(**params: Any) -> list[str]:
    with pytest.raises(IntentError) as caught:
        parse(params)
    return [str(one) for one in caught.value.problems]


def test_a_shape_and_what_placement_does_not_read() -> None:
    given = {
        **LEAST,
        "gpus": 8,
        "nvswitches": "all",
        "page_size": "2M",
        "image": "ubuntu-24.04",
        "mtu": 9000,
        "rails": [{}, {"name": "blue", "addresses": ["10.0.0.1/24"], "gateway": "10.0.0.254", "mtu": 4000}],
        "network": "default",
        "mac": "52-54-00-00-00-0A",
    }
    (wish,) = parse({"guest_shapes": [given]}).wishes
    assert wish.shape == Shape("train-a", 8, 1, "all", 4, 8192, 2)
    assert (wish.path, wish.rest["image"], wish.rest["mtu"]) == ("guest_shapes[0]", "ubuntu-24.04", 9000)
    assert (wish.rest["mac"], wish.rest["autostart"], wish.rest["user"]) == ("52:54:00:00:00:0a", True, None)
    assert not {"gpus", "vcpus"} & set(wish.rest)
    assert rails_of(wish.rest) == (Rail("rail0", mtu=9000), Rail("blue", ("10.0.0.1/24",), "10.0.0.254", 4000))


def test_nothing_asked_is_nothing() -> None:
    intent = parse({})
    assert (intent.wishes, intent.reserved, intent.max_distance, dict(intent.partitions)) == ((), None, Kind.SYS, {})


def test_partitions_name_addresses_or_modules() -> None:
    intent = parse(
        {
            "guest_partitions": {"3": [2, "0000:23:00.0"]},
            "guest_gpu_modules": {2: "0000:24:00.0"},
            "guest_reserved_cpus": "0-1",
            "guest_max_distance": "pxb",
            "guest_shapes": [{**LEAST, "gpus": 2, "nvswitches": 3}],
        }
    )
    assert intent.partitions == {"3": (Address(0, 0x23, 0, 0), Address(0, 0x24, 0, 0))}
    assert (intent.reserved, intent.max_distance) == (frozenset({0, 1}), Kind.PXB)
    assert intent.wishes[0].shape.nvswitches == "3"


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("", "is empty"),
        ("12", "is digits alone"),
        *((one, "has other characters in it") for one in ("a b", "a_b", "a/b", "ä", "a\n", "²")),
        *((one, "has a dash at an end or beside a dot") for one in ("-a", "x-", "a.-b", "a-.b")),
        *((one, "has a dot at an end or beside another") for one in ("a..b", ".a", "a.")),
        ("x" * 64, "is 64 characters long"),
        (f"{'x' * 32}.{'y' * 31}", "is 64 characters long"),
    ],
)
def test_names_that_a_guest_cannot_have(name: str, fault: str) -> None:
    (found,) = problems(guest_shapes=[{**LEAST, "name": name}])
    assert found.startswith(f"guest_shapes[0].name: is no name for a guest: it {fault}")
    assert "wanted letters, digits, dashes and dots, at most 63, not digits alone" in found


@pytest.mark.parametrize("name", ["x" * 63, "a.b-c", "1a", "A"])
def test_names_that_a_guest_can_have_are_taken_by_its_model_too(name: str) -> None:
    (wish,) = parse({"guest_shapes": [{**LEAST, "name": name}]}).wishes
    assert checked(wish.shape.name, PLAIN) == PLAIN


@pytest.mark.parametrize("value", [True, -1, "some", "01", 1.5])
def test_what_is_no_choice_of_nvswitches(value: Any) -> None:
    assert "is no choice of NVSwitches" in problems(guest_shapes=[{**LEAST, "gpus": 1, "nvswitches": value}])[0]


def test_every_mistake_comes_at_once() -> None:
    found = problems(
        guest_shapes=[LEAST, {**LEAST, "name": "TRAIN-A"}, {**LEAST, "name": "b", "nvswitches": "all"}, {"name": "c"}],
        guest_partitions={1: [4], 2: "x", "y": []},
        guest_gpu_modules={"z": "0000:23:00.0", 5: "nowhere"},
    )
    paths = [
        "guest_gpu_modules",
        "guest_gpu_modules[5]",
        "guest_partitions",
        "guest_partitions[1]",
        "guest_partitions[2]",
        "guest_shapes[1].name",
    ]
    paths += ["guest_shapes[2].nvswitches", "guest_shapes[3].memory_gib", "guest_shapes[3].vcpus"]
    assert [one.split(": ")[0] for one in found] == paths


def test_modules_need_an_address() -> None:
    (found,) = problems(guest_partitions={1: [4]})
    assert found == (
        "guest_partitions[1]: names GPU modules without an address (4). Give their addresses in guest_gpu_modules."
    )


IMAGE = {**LEAST, "gpus": 2, "image": "noble"}


@pytest.mark.parametrize(
    ("rails", "said"),
    [
        ([{}] * 3, "rails: are more than the guest has VFs (found 3, wanted at most 2)"),
        (
            [{"addresses": ["10.0.0.1"]}],
            "rails[0].addresses[0]: has no prefix length (found '10.0.0.1', wanted such as",
        ),
        ([{"addresses": ["10.0.0.256/24"]}], "rails[0].addresses[0]: is no IPv4 or IPv6 address (found"),
        ([{"addresses": ["fe80::1%a\nb/64"]}], "rails[0].addresses[0]: is no IPv4 or IPv6 address (found"),
        ([{"addresses": ["10.0.0.1/33"]}], "addresses[0]: has a prefix length that no IPv4 network has (found"),
        (
            [{"addresses": ["10.0.0.0/24"]}],
            "rails[0].addresses[0]: is the address of the network 10.0.0.0/24 or",
        ),
        (
            [{"addresses": ["224.0.0.1/24"]}],
            "rails[0].addresses[0]: is an address that no interface of a guest can have (found",
        ),
        ([{"addresses": ["10.0.0.1/24"], "gateway": "10.0.1.1"}], "rails[0].gateway: is in the network of none"),
        ([{"gateway": "10.0.1.1"}], "rails[0].gateway: is in the network of none"),
        ([{"gateway": "ten"}], "rails[0].gateway: is no IPv4 or IPv6 address (found 'ten', wanted such as"),
        ([{"name": "a"}, {"name": "A"}], "rails[1].name: is the name of another rail of the guest"),
        ([{"name": "mgmt"}], "rails[0].name: is no name for a rail"),
        (
            [{"addresses": ["10.0.0.1/24"]}, {"addresses": ["10.0.0.1/16"]}],
            "is that of guest_shapes[0].rails[0].addresses[0]",
        ),
        ([{"adresses": []}], "rails[0].adresses: is not a known name. Did you mean addresses?"),
    ],
)
def test_rails_that_cannot_be_meant(rails: list[Any], said: str) -> None:
    (found,) = problems(guest_shapes=[{**IMAGE, "rails": rails}])
    assert said in found


@pytest.mark.parametrize(
    ("rails", "said"),
    [
        (["10.0.0.1/24", "10.0.0.1"], "is an address of the guest itself (found 10.0.0.1)"),
        (["10.0.0.1/24", "10.0.0.0"], "is the address of the network 10.0.0.0/24 or of all in it (found 10.0.0.0"),
        (["10.0.0.1/24", "10.0.0.255"], "is the address of the network 10.0.0.0/24 or of all in it (found 10.0.0.255"),
        (["10.0.0.1/0", "224.0.0.1"], "is an address that no interface of a guest can have (found 224.0.0.1"),
        (["fd00::1/64", "fd00::1"], "is an address of the guest itself (found fd00::1)"),
        (["10.0.0.1/32", "10.0.0.2"], "is in the network of none of the rail's addresses (found 10.0.0.2"),
    ],
)
def test_gateways_that_are_no_router(rails: list[str], said: str) -> None:
    address, gateway = rails
    (found,) = problems(guest_shapes=[{**IMAGE, "rails": [{"addresses": [address], "gateway": gateway}]}])
    assert f"guest_shapes[0].rails[0].gateway: {said}" in found


@pytest.mark.parametrize(
    "addresses", [["10.0.0.1/31"], ["10.0.0.1/24", "10.0.0.2/16"], ["10.0.0.1/24", "10.1.0.1/24"], ["10.0.0.1/8"]]
)
def test_a_gateway_is_one_of_the_network_of_any_address(addresses: list[str]) -> None:
    gateway = "10.0.0.0" if addresses[0].endswith("/31") else "10.0.0.254"
    (wish,) = parse({"guest_shapes": [{**IMAGE, "rails": [{"addresses": addresses, "gateway": gateway}]}]}).wishes
    assert rails_of(wish.rest)[0].gateway == gateway


def test_a_guest_has_one_default_gateway_of_a_kind() -> None:
    """Its settings make each of them a default route of the main table, of which one has effect."""
    first = {"addresses": ["10.0.0.1/24"], "gateway": "10.0.0.254"}
    second = {"addresses": ["10.0.1.1/24"], "gateway": "10.0.1.254"}
    other = {"addresses": ["fd00::1/64"], "gateway": "fd00::ff"}
    (found,) = problems(guest_shapes=[{**IMAGE, "rails": [first, second]}])
    assert found.startswith(
        "guest_shapes[0].rails[1].gateway: is a second default gateway for IPv4, beside guest_shapes[0].rails[0].gateway"
    )
    parse({"guest_shapes": [{**IMAGE, "rails": [first, other]}, {**IMAGE, "name": "b", "rails": [second]}]})


def test_the_address_of_another_rail_is_no_gateway() -> None:
    rails = [{"addresses": ["10.0.0.1/24"], "gateway": "10.0.0.2"}, {"addresses": ["10.0.0.2/24"]}]
    (found,) = problems(guest_shapes=[{**IMAGE, "rails": rails}])
    assert found.startswith("guest_shapes[0].rails[0].gateway: is an address of the guest itself")


def test_one_mistake_in_a_rail_hides_no_other() -> None:
    rails = [
        {"addresses": ["10.1.0.7/24"], "gateway": "10.2.0.1"},
        {"addresses": ["10.1.0.7/24"], "gateway": "nonsense", "mtu": 12},
        {"addresses": ["ten", "10.1.0.7/24"], "gateway": "10.1.0.7", "mtu": 65536},
        "blue",
        {"name": "RAIL0"},
    ]
    found = problems(guest_shapes=[{**IMAGE, "vcpus": 0, "gpus": 1, "rails": rails}])
    assert [one.split(": ")[0][len("guest_shapes[0].") :] for one in found] == [
        "rails",
        "rails[0].gateway",
        "rails[1].addresses[0]",
        "rails[1].gateway",
        "rails[1].mtu",
        "rails[2].addresses[0]",
        "rails[2].addresses[1]",
        "rails[2].gateway",
        "rails[2].gateway",
        "rails[2].mtu",
        "rails[3]",
        "rails[4].name",
        "vcpus",
    ]


def test_a_gateway_is_not_blamed_for_an_address_that_is_wrong() -> None:
    rails = [{"addresses": ["10.2.0.7", "10.1.0.7/24"], "gateway": "10.2.0.1"}]
    (found,) = problems(guest_shapes=[{**IMAGE, "rails": rails}])
    assert "addresses[0]: has no prefix length" in found


@pytest.mark.parametrize("mtu", [67, 65536, 99999, 1000000])
def test_mtus_that_no_interface_has(mtu: int) -> None:
    rails = [{"addresses": ["10.0.0.1/24"], "mtu": mtu}]
    found = problems(guest_shapes=[{**IMAGE, "mtu": mtu, "rails": rails}])
    assert [one.split(": ")[0] for one in found] == ["guest_shapes[0].mtu", "guest_shapes[0].rails[0].mtu"]
    assert all("wanted at least 68" in one or "wanted at most 65535" in one for one in found)


def test_ipv6_needs_a_larger_mtu() -> None:
    six, four = {"addresses": ["fd00::1/64"]}, {"addresses": ["10.0.0.1/24"], "mtu": 68}
    found = problems(
        guest_shapes=[
            {**IMAGE, "rails": [{**six, "mtu": 1279}, four]},
            {**IMAGE, "name": "b", "mtu": 1000, "rails": [{"addresses": ["fd00::2/64"]}, four]},
            {**IMAGE, "name": "c", "mtu": 1000, "rails": [{"addresses": ["fd00::3/64"], "mtu": 1280}]},
        ]
    )
    assert [one.partition(". ")[0] for one in found] == [
        "guest_shapes[0].rails[0].mtu: is too small for IPv6 (found 1279, wanted at least 1280)",
        "guest_shapes[1].mtu: is too small for IPv6 (found 1000, wanted at least 1280)",
        "guest_shapes[1].rails[1].addresses[0]: is that of guest_shapes[0].rails[1].addresses[0] too (found 10.0.0.1/24)",
    ]


@pytest.mark.parametrize("option", ["network", "image"])
@pytest.mark.parametrize("name", ["", "a b", "<x>&'\"", "a/b", "a\n", "\x1b", "x" * 64, ".."])
def test_names_that_no_network_and_no_image_has(option: str, name: str) -> None:
    (found,) = problems(guest_shapes=[{**LEAST, option: name}])
    assert found.startswith(f"guest_shapes[0].{option}: is no name (found {name!r}, wanted at most 63 ")


def test_two_guests_with_one_mac_and_one_for_no_interface() -> None:
    on = {**LEAST, "network": "default", "mac": "52:54:00:00:00:0a"}
    found = problems(
        guest_shapes=[
            {**on, "name": "gone", "state": "absent"},
            on,
            {**on, "name": "b", "mac": "52-54-00-00-00-0A"},
            {**LEAST, "name": "c", "mac": "52:54:00:00:00:0b"},
        ]
    )
    assert found == [
        "guest_shapes[2].mac: is the mac of guest_shapes[1] (found '52:54:00:00:00:0a')."
        " Give each guest its own, or leave it out.",
        "guest_shapes[3].mac: is for an interface on a network, which the guest has not (found 52:54:00:00:00:0b)."
        " Name the network, or leave this out.",
    ]


@pytest.mark.parametrize("option", ["guest_emulator", "guest_image_folder"])
@pytest.mark.parametrize(
    "path", ["", "/", "qemu", "/usr/bin/../x", "/x y", "//usr/bin/x", "/x/", "/x\n", "/\x1b", "/x\x7f", "/a,b", "/a:b"]
)
def test_what_is_no_plain_absolute_path(option: str, path: str) -> None:
    with pytest.raises(IntentError) as caught:
        wanted.parse({option: path})
    assert str(caught.value).startswith(f"{option}: is no plain absolute path (found {path!r}, wanted one from / on, ")


def test_vfs_are_for_gpus() -> None:
    (found,) = problems(guest_shapes=[{**LEAST, "gpus": 0, "vfs_per_gpu": 4}])
    assert found.startswith("guest_shapes[0].vfs_per_gpu: is for GPUs, of which there are none (found 4)")
    parse({"guest_shapes": [{**LEAST, "gpus": 0, "vfs_per_gpu": 1}, {**LEAST, "name": "b", "vfs_per_gpu": 0}]})


def test_a_guest_that_is_to_go_needs_no_sizes() -> None:
    (wish,) = parse({"guest_shapes": [{"name": "old", "state": "absent"}]}).wishes
    assert (wish.shape.name, wish.rest["state"]) == ("old", "absent")
    found = problems(guest_shapes=[{"name": "a", "state": "defined"}, {"name": "b", "vcpu": 4, "memory_gib": 1}])
    assert found == [
        "guest_shapes[0].memory_gib: is missing. Set it: Memory in GiB, all of it in huge pages.",
        "guest_shapes[0].vcpus: is missing. Set it: CPUs, in whole cores of the host.",
        "guest_shapes[1].vcpu: is not a known name. Did you mean vcpus?",
    ]


def test_rails_on_a_link_between_two_have_both_addresses() -> None:
    for address in ("10.0.0.0/31", "10.0.0.1/31", "fd00::/127"):
        parse({"guest_shapes": [{**IMAGE, "rails": [{"addresses": [address]}]}]})


def test_two_guests_with_one_address_and_options_that_need_an_image() -> None:
    rails = [{"addresses": ["10.0.0.1/24"]}]
    told = {"disk_gib": 9, "user": "ops", "ssh_keys": [KEY], "rails": rails, "mtu": 9000}
    found = problems(
        guest_shapes=[
            {**IMAGE, "rails": rails},
            {**IMAGE, "name": "b", "rails": rails, "ssh_keys": [KEY]},
            {**LEAST, "name": "c", "gpus": 1, **told},
            {**IMAGE, "name": "d", "rails": rails, "state": "absent"},
        ]
    )
    assert [one.split(": ")[0] for one in found] == [
        "guest_shapes[1].rails[0].addresses[0]",
        "guest_shapes[1].user",
        "guest_shapes[2].disk_gib",
        "guest_shapes[2].mtu",
        "guest_shapes[2].rails",
        "guest_shapes[2].rails[0].addresses[0]",
        "guest_shapes[2].ssh_keys",
        "guest_shapes[2].user",
    ]
    assert "Name the image, or leave this out." in found[2]


@pytest.mark.parametrize("user", ["ops", "_a", "a-b_9", "x" * 32])
def test_users_that_linux_takes(user: str) -> None:
    (wish,) = parse({"guest_shapes": [{**IMAGE, "user": user, "ssh_keys": [KEY]}]}).wishes
    assert wish.rest["user"] == user


@pytest.mark.parametrize("user", ["", "ops\n", "\x1b[2J", "a b", "Ops", "9a", "-a", "a:b", "x" * 33, "ä"])
def test_users_that_linux_does_not_take(user: str) -> None:
    (found,) = problems(guest_shapes=[{**IMAGE, "user": user, "ssh_keys": [KEY]}])
    assert found.startswith(f"guest_shapes[0].user: is no name of a Linux user (found {user!r}, wanted ")
    assert found.isprintable()


@pytest.mark.parametrize(
    "kind",
    [
        "ssh-ed25519",
        "ssh-rsa",
        "ecdsa-sha2-nistp256",
        "ecdsa-sha2-nistp384",
        "ecdsa-sha2-nistp521",
        "sk-ssh-ed25519@openssh.com",
        "sk-ecdsa-sha2-nistp256@openssh.com",
    ],
)
def test_keys_of_every_known_type_with_and_without_a_comment(kind: str) -> None:
    keys = [public_key("two words", kind), public_key("", kind).strip()]
    (wish,) = parse({"guest_shapes": [{**IMAGE, "user": "ops", "ssh_keys": keys}]}).wishes
    assert wish.rest["ssh_keys"] == keys


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("", "is no public key of a known type (found '', wanted ssh-ed25519 or ssh-rsa or "),
        ("ssh-dss AAAA secret", "is no public key of a known type (found 'ssh-dss', wanted "),
        (f"restrict {KEY}", "is no public key of a known type (found 'restrict', wanted "),
        (f"{KEY}\n", "is not one line of printable characters (found 'ssh-ed25519', wanted type base64 [comment])"),
        (f"{KEY}\x1b[2J", "is not one line of printable characters (found 'ssh-ed25519', wanted "),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nsecret", "is not one line of printable characters (found '-----BEGIN',"),
        ("ssh-ed25519", "has a damaged body (wanted the base64 of a key of type ssh-ed25519)"),
        ("ssh-ed25519 AAAA secret", "has a damaged body"),
        ("ssh-ed25519 secret! ops", "has a damaged body"),
        (KEY.replace("ssh-ed25519", "ssh-rsa"), "has a damaged body (wanted the base64 of a key of type ssh-rsa)"),
        (f"ssh-ed25519 {blob(b'ssh-ed25519')}", "has a damaged body"),
        (f"ssh-ed25519 {blob(b'ssh-ed25519', b'x' * 32)[:-8]}", "has a damaged body"),
    ],
)
def test_keys_that_are_none(key: str, said: str) -> None:
    (found,) = problems(guest_shapes=[{**IMAGE, "user": "ops", "ssh_keys": [KEY, key]}])
    assert found.startswith(f"guest_shapes[0].ssh_keys[1]: {said}")
    assert "secret" not in found


def test_a_user_whom_nobody_could_be() -> None:
    (found,) = problems(
        guest_shapes=[{**IMAGE, "user": "ops"}, {**IMAGE, "name": "b", "user": "ops", "state": "absent"}]
    )
    assert found == (
        "guest_shapes[0].ssh_keys: is missing: without a password or a key nobody could log in."
        " Give the user a public key, or leave the user out."
    )


def test_one_mistake_in_a_shape_hides_no_other() -> None:
    wrong = {"vcpus": 0, "nvswitches": "all", "gpus": 0, "ssh_keys": [KEY], "mtu": 9000}
    found = problems(
        guest_shapes=[
            {**LEAST, "rails": [{"addresses": ["10.0.0.1/24"]}], "gpus": 1, "image": "noble", "memory_gib": 0},
            {**LEAST, **wrong, "rails": [{"addresses": ["10.0.0.1/24"]}]},
        ]
    )
    assert [one.split(": ")[0] for one in found] == [
        "guest_shapes[0].memory_gib",
        "guest_shapes[1].mtu",
        "guest_shapes[1].name",
        "guest_shapes[1].nvswitches",
        "guest_shapes[1].rails",
        "guest_shapes[1].rails",
        "guest_shapes[1].rails[0].addresses[0]",
        "guest_shapes[1].ssh_keys",
        "guest_shapes[1].user",
        "guest_shapes[1].vcpus",
    ]


@pytest.mark.parametrize("wrong", [{"imagee": "noble"}, {"image": 3}])
def test_a_field_that_is_wrong_is_not_missed_by_others(wrong: dict[str, Any]) -> None:
    (found,) = problems(guest_shapes=[{**LEAST, "user": "ops", "ssh_keys": [KEY], **wrong}])
    assert found.startswith(f"guest_shapes[0].{next(iter(wrong))}: ")


def test_a_gpu_is_one_module_and_once_in_a_partition() -> None:
    one, other = "0000:12:00.0", "0000:13:00.0"
    found = problems(
        guest_gpu_modules={1: one, 2: one, 3: other}, guest_partitions={1: [1, 2], 2: [other, 3], 3: [other, other], 4: [3, 1]}
    )  # fmt: skip
    assert found == [
        f"guest_gpu_modules[2]: is the GPU of module 1 too (found {one}). Give each module its own GPU.",
        "guest_partitions[1]: names a GPU twice (found 2). Remove one of them.",
        "guest_partitions[2]: names a GPU twice (found 3). Remove one of them.",
        f"guest_partitions[3]: names a GPU twice (found {other}). Remove one of them.",
    ]
    found = problems(guest_gpu_modules={1: "x"}, guest_partitions={1: [1, one, one], "y": []})
    assert [said.partition(": ")[0] for said in found] == [
        "guest_gpu_modules[1]",
        "guest_partitions",
        "guest_partitions[1]",
    ]
    found = problems(guest_gpu_modules={1: one, "1": other}, guest_partitions={1: [one], "1": [other]})
    assert [said.partition(". ")[0] for said in found] == [
        "guest_gpu_modules[1]: is there twice",
        "guest_partitions[1]: is there twice, as a number and as text",
    ]


# The class of the host -----------------------------------------------------------------------


def of_mode(mode: str, *shapes: dict[str, Any], **more: Any) -> list[str]:
    try:
        wanted.parse({"gpudirect_mode": mode, "guest_shapes": list(shapes), **more})
    except IntentError as error:
        return [str(one) for one in error.problems]
    return []


def test_a_host_of_bare_metal_runs_no_guests() -> None:
    assert of_mode("bare_metal") == of_mode("bare_metal", {**LEAST, "state": "absent"}) == []
    found = of_mode("bare_metal", LEAST, {**LEAST, "name": "b", "state": "defined"}, {"name": "c"}, guest_shap=[])
    assert found[0] == "guest_shap: is not a known name. Did you mean guest_shapes?"
    assert found[1] == (
        "guest_shapes[0]: is to be there, and a host of gpudirect_mode: bare_metal runs no guests (found running, wanted absent)."
        " Leave it out, give it state: absent, or take gpudirect_mode: passthrough_vm."
    )
    assert [one.partition(": ")[0] for one in found[2:]] == [
        *("guest_shapes[1]", "guest_shapes[2]", "guest_shapes[2].memory_gib", "guest_shapes[2].vcpus"),
    ]


def test_guests_of_the_baseline_have_gpus_and_no_vfs() -> None:
    """The paper's naive virtualization passes GPUs through, to a flat guest."""
    base = {**LEAST, "gpus": 2, "vfs_per_gpu": 0, "topology": "flat"}
    assert (
        of_mode("virtio_vm", base, {**LEAST, "name": "b"}, {**LEAST, "name": "c", "gpus": 1, "state": "absent"}) == []
    )
    assert of_mode("passthrough_vm", {**base, "vfs_per_gpu": 2}) == []
    assert of_mode("virtio_vm", {**LEAST, "gpus": 1}) == [
        "guest_shapes[0].vfs_per_gpu: asks for direct paths, which guests of gpudirect_mode: virtio_vm do not have"
        " (found 1, wanted 0). Set it to 0 (without it there is one), or take gpudirect_mode: passthrough_vm."
    ]
