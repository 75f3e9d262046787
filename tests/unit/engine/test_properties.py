"""What holds for every command line, every defaults file and every intent, not only for those of the cases."""

from __future__ import annotations

import json
import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ansible_collections.vela.gpudirect.plugins.module_utils import hugepages, kernel_args, reboot, site
from ansible_collections.vela.gpudirect.plugins.module_utils.boot import (
    bls,
    bls_store,
    cmdline,
    grub,
    grub_store,
    words,
)
from ansible_collections.vela.gpudirect.plugins.module_utils.boot.cmdline import MERGING, Group, name_of
from ansible_collections.vela.gpudirect.plugins.module_utils.core.change import ABSENT, Change
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import HostRefused, IntentError, Problem
from ansible_collections.vela.gpudirect.plugins.module_utils.core.owned import PATH, Owned
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from tests.fixtures import hosts
from tests.fixtures.fake_boot import GrubMenu, grub_words
from tests.fixtures.fake_host import FakeHost
from tests.fixtures.runs import changed, run, settle

# Arguments as foreign owners put them, and as an inventory may ask for them ---------------

NAMES = ["quiet", "nosmt", "iommu", "intel_iommu", "pci", "vfio-pci.ids", "vfio_pci.ids", "console", "x-y", "x_y"]
values = st.sampled_from(["", "=on", "=off", "=pt", "=noaer", "=realloc=on", "=10de:1", "=a,b", "=1@p:8086:1;0@q"])
pool = st.builds(lambda name, value: name + value, st.sampled_from(NAMES), values)
strange = st.text("abz01=,.:@/-_;&|#*~!{}", min_size=1, max_size=8).filter(lambda text: text != "--")
foreign = st.lists(pool | strange, max_size=7)


def consistent(arguments: list[str]) -> bool:
    return not any(kernel_args.argument_problems("", one, "passthrough") for one in arguments) and not (
        kernel_args.contradictions(arguments, (), "passthrough")
    )


wanted = st.lists(pool, max_size=4).filter(consistent)
intents = st.fixed_dictionaries(
    {},
    optional={
        "kernel_args": wanted,
        "kernel_iommu": st.sampled_from(["passthrough", "translated", "unmanaged"]),
        "kernel_hugepages": st.sampled_from([[], [{"size": "1G", "per_node": 2}], [{"size": "2M", "nodes": {0: 8}}]]),
        "kernel_hugepages_default_size": st.sampled_from(["1G", "kernel"]),
    },
)


# Defaults files as people write them -----------------------------------------------------


def assigned(draw: st.DrawFn, variable: str, arguments: list[str]) -> str:
    """One assignment in one of the ways to write it; the value says these arguments to GRUB."""
    blank = draw(st.sampled_from([" ", "  ", "\t", " \\\n"]))
    pieces = [words.quoted(one) for one in arguments]
    if draw(st.booleans()):
        pieces.insert(draw(st.integers(0, len(pieces))), draw(st.sampled_from([f"${variable}", f"${{{variable}}}"])))
        return f'{variable}="{blank.join(pieces)}"'
    if not any("'" in piece for piece in pieces) and draw(st.booleans()):
        return f"{variable}='{blank.replace(chr(92), '').replace(chr(10), ' ').join(pieces)}'"
    return f'{variable}="{blank.join(pieces)}"'


@st.composite
def defaults(draw: st.DrawFn) -> str:
    """A file of settings, some of them twice."""
    lines: list[str] = []
    for _number in range(draw(st.integers(0, 4))):
        variable = draw(st.sampled_from(words.VARIABLES))
        start = draw(st.sampled_from(["", "", "export ", "  "]))
        end = draw(st.sampled_from(["", "", "  # with a comment", "\t"]))
        lines.append(f"{start}{assigned(draw, variable, draw(foreign))}{end}")
        lines += draw(st.sampled_from([[], ["# it's a comment"], ["", "GRUB_TIMEOUT=5"], lines[-1:]]))
    return "\n".join(lines) + draw(st.sampled_from(["\n", "", "\n\n"]))


def evaluated(text: str) -> list[str]:
    """What the shell and GRUB make of a defaults file."""
    with tempfile.TemporaryDirectory() as folder:
        host = FakeHost(folder)
        host.put("/etc/default/grub", text)
        host.put("/boot/vmlinuz-1", "")
        status, menu, said = GrubMenu().generate(Path(folder))
    assert status == 0, said
    line = next(line for line in menu.decode().split("\n") if line.startswith("\tlinux"))
    return grub_words(line, {})[4:]


# Words -----------------------------------------------------------------------------------


@given(st.text("ab ;'\"\\\t\n#", max_size=20))
def test_words_are_those_of_a_posix_shell(text: str) -> None:
    try:
        expected = shlex.split(text)
    except ValueError:  # an open quote
        assume(False)
    assert [words.bare(word) for word in words.split_words(text)] == expected


@given(st.text("ab ;'\"\\\t\n", max_size=20))
def test_words_put_together_are_the_same_words(text: str) -> None:
    split = words.split_words(text)
    assert words.split_words(" ".join(split)) == split


@given(strange | pool)
def test_a_quoted_argument_reaches_the_kernel_as_it_is(argument: str) -> None:
    assert words.bare(words.quoted(argument)) == argument
    assert grub_words(f"linux {words.quoted(argument)}", {}) == ["linux", argument]


def next_arguments(line: str) -> list[str]:
    """The kernel's next_arg, sign by sign: quotes may open anywhere, and only double ones count."""
    found, at = [], 0
    while at < len(line):
        start, inside = at, False
        while at < len(line) and (inside or not line[at].isspace()):
            inside ^= line[at] == '"'
            at += 1
        found += [line[start:at]] if at > start else []
        at += 1
    return found


@given(st.text("ab=, \t\"'-_", max_size=24))
def test_a_line_is_split_as_the_kernel_splits_it(line: str) -> None:
    assert list(cmdline.split(line)) == next_arguments(line)


@given(st.text("ab-_.", min_size=1, max_size=6), st.text("ab-_=", max_size=6))
def test_dash_and_underscore_are_one_in_names_only(name: str, value: str) -> None:
    assert name_of(f"{name}={value}") == name_of(f"{name.replace('-', '_')}={value}") == name.replace("-", "_")
    assert cmdline.value_of(f"{name}={value}") == value


@settings(max_examples=60)
@given(defaults())
@example('GRUB_CMDLINE_LINUX="a"\nGRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX b"\nGRUB_CMDLINE_LINUX="c"\n')
@example("GRUB_CMDLINE_LINUX=a\\ b\\'c\\;d\\'\nGRUB_CMDLINE_LINUX_DEFAULT='e'\"f\"g\n")
def test_defaults_mean_what_the_shell_makes_of_them(text: str) -> None:
    assert list(grub.effective([text])) == evaluated(text)


@settings(max_examples=60)
@given(defaults(), st.sets(st.sampled_from([name_of(name) for name in NAMES]), min_size=1, max_size=3))
def test_taking_names_out_of_a_file_leaves_the_others_in_order(text: str, names: set[str]) -> None:
    without = grub.stripped(text, names)
    assert evaluated(without) == [one for one in evaluated(text) if name_of(one) not in names]
    assert grub.stripped(without, names) == without


@settings(max_examples=60)
@given(defaults(), st.lists(pool, max_size=3))
def test_extending_a_file_adds_to_the_variable(text: str, more: list[str]) -> None:
    before, default = (list(grub.effective([text, f"{name}=''"])) for name in reversed(words.VARIABLES))
    assert evaluated(grub.extended(text, more)) == [*before, *more, *default] or "$GRUB" in text


@given(foreign, foreign)
def test_the_line_of_an_entry_can_be_set(old: list[str], new: list[str]) -> None:
    text = f"title a\noptions  {'   '.join(map(words.quoted, old))} \ninitrd /i\n"
    changed_text = bls.changed("/e", text, tuple(new))
    assert bls.arguments_of("/e", changed_text) == tuple(new)
    assert changed_text.startswith("title a\n")
    assert changed_text.endswith("\ninitrd /i\n")
    assert bls.changed("/e", changed_text, tuple(new)) == changed_text
    assert bls.changed("/e", text, tuple(old)) == text


# Groups ----------------------------------------------------------------------------------


@given(foreign, wanted)
def test_a_line_that_was_set_meets_every_group_and_is_set_to_itself(line: list[str], intent: list[str]) -> None:
    groups = kernel_args.groups_of(intent)
    once = bls_store._wanted(groups, tuple(line))
    assert all(group.met_by(once) for group in groups)
    assert bls_store._wanted(groups, once) == once
    names = {name for group in groups for name in group.names}
    assert [one for one in once if name_of(one) not in names] == [one for one in line if name_of(one) not in names]


@given(st.lists(st.sampled_from(["a", "b", "c=1", "c=2", "c"]), max_size=5), st.sampled_from(["a", "c=1", "c"]))
def test_a_set_member_is_there_once_and_takes_nothing_of_others(members: list[str], mine: str) -> None:
    group = Group("x", frozenset({"pci"}), adds=(mine,), spelling="pci")
    (argument,) = group.wanted([f"pci={','.join(members)}"])
    got = argument.split("=", 1)[1].split(",")
    assert got.count(mine) == 1
    assert len(got) == len(set(got))
    assert {one for one in members if one[0] != mine[0]} <= set(got)
    assert not [one for one in got if one != mine and one[0] == mine[0] and mine[0] == "c"]


# Hosts -----------------------------------------------------------------------------------


def grub_host(root: Path, text: str, drop_ins: list[str]) -> FakeHost:
    files = {f"/etc/default/grub.d/{number}0-a.cfg": content for number, content in enumerate(drop_ins, 1)}
    return hosts.build(root, "debian_12", {"files": {"/etc/default/grub": text, **files}})


def holds_for(host: FakeHost, intents_: list[dict[str, Any]]) -> None:
    """Converge through intents: settled at once, foreign arguments as they were, and nothing left at the end."""
    found, before = host.disk(), host.line()
    ours: set[str] = set()
    for intent in intents_:
        assert settle(intent, host) <= 1
        desired = kernel_args.parse(kernel_args.SCHEMA.from_variables(intent))
        groups = kernel_args._groups(desired, kernel_args.read(host, desired), {})
        ours |= {name for group in groups for name in group.names}
        with host.only_read():
            assert not changed(run(intent, host))
        assert all(group.live_by or group.met_by(cmdline.split(host.line())) for group in groups)
    words_of = [[one for one in line.split() if name_of(one) not in ours] for line in (before, host.line())]
    assert words_of[0] == words_of[1]
    settle({}, host)
    assert host.disk() == found
    assert host.line() == before


@settings(max_examples=25)
@given(defaults(), st.lists(defaults(), max_size=2), st.lists(intents, min_size=1, max_size=2))
def test_any_intent_on_any_defaults_settles_and_can_be_undone(
    text: str, drop_ins: list[str], asked: list[dict[str, Any]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        holds_for(grub_host(Path(folder) / "root", text, drop_ins), asked)


@settings(max_examples=25)
@given(foreign, foreign, defaults(), st.lists(intents, min_size=1, max_size=2))
def test_any_intent_on_any_entries_settles_and_can_be_undone(
    first: list[str], second: list[str], text: str, asked: list[dict[str, Any]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        host = hosts.build(Path(folder) / "root", "rhel_9", {"files": {"/etc/default/grub": text}})
        for version, options in zip(hosts.RHEL_KERNELS, (first, second)):
            path = f"{hosts.ENTRIES}/{hosts.MACHINE}-{version}.conf"
            line = " ".join(["root=/dev/sda2", *map(words.quoted, options)])
            host.put(path, host.text(path).replace(hosts.RHEL_LINE, line))
        holds_for(host.boot(), asked)


@settings(max_examples=25)
@given(defaults(), intents, st.randoms(use_true_random=False))
def test_the_order_of_unrelated_input_changes_nothing(text: str, intent: dict[str, Any], random: Any) -> None:
    names = list(intent)
    random.shuffle(names)
    shuffled = {name: intent[name] for name in names}
    absent = ["a_b", "c", "d.e"]
    with tempfile.TemporaryDirectory() as folder:
        host = grub_host(Path(folder) / "root", text, [])
        plans = []
        for given_intent in (
            {**intent, "kernel_args_absent": absent},
            {"kernel_args_absent": absent[::-1], **shuffled},
        ):
            with host.only_read():
                reports = run(given_intent, host, check=True)
            plans.append([report.as_result() for report in reports])
        assert plans[0] == plans[1]


@settings(max_examples=25)
@given(st.lists(st.text("ab", min_size=1, max_size=90), max_size=40), st.booleans())
def test_a_line_is_refused_exactly_when_the_kernel_would_cut_it(more: list[str], on_rhel: bool) -> None:
    arguments = list(dict.fromkeys(f"m{number}={one}" for number, one in enumerate(more)))
    with tempfile.TemporaryDirectory() as folder:
        host = hosts.build(Path(folder) / "root", "rhel_9" if on_rhel else "debian_12")
        try:
            run({"kernel_args": arguments}, host)
        except HostRefused:
            assert len(" ".join([host.line(), *arguments])) > cmdline.LIMIT_BYTES - 10
        else:
            assert len(" ".join([host.line(), *arguments])) <= cmdline.LIMIT_BYTES
            assert all(one in host.boot().line() for one in arguments)


# Input -----------------------------------------------------------------------------------

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6)
documents = st.recursive(
    scalars | st.sampled_from(["--5", "²", "1G", "passthrough", "iommu=pt"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from([*sorted(site.known_variables()), "kernel_typo", "gpudirect_typo"])
entries = st.fixed_dictionaries({}, optional=dict.fromkeys(("size", "per_node", "nodes", "other"), documents))
some = st.dictionaries(names, documents | st.lists(entries, max_size=2), max_size=5)


@settings(max_examples=150)
@given(some)
@example({"kernel_hugepages": [{"size": "1G", "per_node": "--5"}]})
@example({"reboot_timeout_s": "²"})
@example({"kernel_hugepages": [{"size": "1G", "nodes": {"٣": "٣"}}]})
def test_input_is_accepted_or_an_error_of_the_inventory(params: dict[str, Any]) -> None:
    for parse in (kernel_args.parse, hugepages.parse, reboot.SCHEMA.parse, site.SCHEMA.parse, site.intent_of):
        problems: Sequence[Problem] = ()
        try:
            parse(params)
        except IntentError as error:
            problems = error.problems
        assert all(problem.path and problem.fact and problem.advice for problem in problems)


@given(intents)
def test_what_was_accepted_is_accepted_again(params: dict[str, Any]) -> None:
    intent = site.intent_of({**params, "gpudirect_allow": "guest", "reboot_timeout_s": "60", "other": 1})
    sent = json.loads(json.dumps(intent))
    assert site.intent_of(sent) == sent


# The record ------------------------------------------------------------------------------


class Shelf:
    """A store that keeps texts."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def read_text(self, path: str) -> Any:
        return self.texts.get(path, ABSENT)

    def write_text(self, path: str, text: str, mode: int = 0o644) -> None:
        self.texts[path] = text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")

    def remove(self, path: str, *, with_folder: bool = False) -> None:
        self.texts.pop(path, None)


raw = st.binary(max_size=8).map(lambda content: content.decode("utf-8", "surrogateescape"))
records = st.fixed_dictionaries({"before": st.none() | raw | st.dictionaries(raw, st.integers())}, optional={"x": raw})
steps = st.lists(
    st.builds(
        lambda remember, forget: Change("p", None, None, "w", remember=remember, forget=tuple(forget)),
        st.dictionaries(st.sampled_from("abc"), records, max_size=2),
        st.lists(st.sampled_from("abc"), max_size=1),
    ),
    max_size=6,
)


@given(steps)
def test_the_record_comes_back_as_it_was_kept(changes: list[Change]) -> None:
    shelf = Shelf()
    owned = Owned.load(shelf)
    firsts: dict[str, Any] = {}
    for change in changes:
        owned.remember(shelf, "r", change, "boot")
        for path, record in change.remember.items():
            firsts.setdefault(path, record["before"])
        owned.confirm(shelf, change)
        for path in change.forget:
            firsts.pop(path, None)
        again = Owned.load(shelf)
        assert again.records == owned.records
        assert {path: record["before"] for path, record in again.of("r").items()} == firsts
        assert (PATH in shelf.texts) == bool(firsts)


def test_merging_names_are_as_the_kernel_compares_them() -> None:
    assert [name for name in MERGING if name_of(name) != name] == []
    assert grub_store.UPDATE == ("update-grub",)
