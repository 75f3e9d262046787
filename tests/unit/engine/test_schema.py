"""Strict input: every problem at once, each with its dotted path, typos with the nearest known name."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils import (
    hugepages,
    kernel_args,
    pci_path,
    reboot,
    site,
)
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import IntentError, Problem
from ansible_collections.vela.gpudirect.plugins.module_utils.core.schema import Field, Schema, right_fields
from ansible_collections.vela.gpudirect.plugins.module_utils.path.intent import BOOT_FIELDS


def even(path: str, value: Any) -> Any:
    if value % 2:
        raise IntentError([Problem(path, "is odd", "Give an even number.", found=str(value))])
    return value // 2


PORT = (
    Field("name", "str", ("What it is called.",), required=True),
    Field("vfs", "int", ("How many.",), minimum=0, check=even),
    Field("trust", "bool", ("Whether.",), default=True),
)
SCHEMA = Schema(
    "toy",
    "toy_",
    (
        Field("toy_mode", "str", ("The mode.",), default="slow", choices=("slow", "fast")),
        Field("toy_ports", "list", ("The ports.",), default=[], elements="dict", fields=PORT),
        Field("toy_words", "list", ("Words.",), default=[], elements="str"),
        Field("toy_extra", "raw", ("Anything.",), default=None),
        Field("toy_map", "dict", ("A mapping.",)),
    ),
)
NESTED = Schema(
    "nest",
    "nest_",
    (
        Field(
            "nest_port",
            "dict",
            ("One port.",),
            fields=(*PORT, Field("inner", "dict", ("A port in it.",), fields=PORT)),
        ),
    ),
)


def problems(params: dict[str, Any]) -> list[str]:
    with pytest.raises(IntentError) as caught:
        SCHEMA.parse(params)
    return [str(problem) for problem in caught.value.problems]


def test_defaults_fill_what_is_omitted_and_null_means_omitted() -> None:
    expected = {"toy_mode": "slow", "toy_ports": [], "toy_words": [], "toy_extra": None, "toy_map": None}
    assert SCHEMA.parse({}) == expected
    assert SCHEMA.parse(dict.fromkeys(expected)) == expected


def test_nested_values_are_typed_checked_and_filled() -> None:
    parsed = SCHEMA.parse({"toy_ports": [{"name": "a", "vfs": "8"}, {"name": "b", "trust": "no"}]})
    assert parsed["toy_ports"] == [{"name": "a", "vfs": 4, "trust": True}, {"name": "b", "vfs": None, "trust": False}]


def test_all_problems_come_at_once_with_dotted_paths() -> None:
    found = problems(
        {
            "toy_mod": "fast",
            "toy_mode": "fats",
            "toy_ports": [{"vfs": 3}, "x", {"name": "b", "vfs": -2, "trsut": True}],
            "toy_words": ["a", 1],
            "toy_map": [],
        }
    )
    assert found == [
        "toy_map: has the wrong type (found [], wanted a mapping). Correct the inventory.",
        "toy_mod: is not a known name. Did you mean toy_mode?",
        "toy_mode: is not one of the choices (found 'fats', wanted slow or fast). Did you mean fast?",
        "toy_ports[0].name: is missing. Set it: What it is called.",
        "toy_ports[0].vfs: is odd (found 3). Give an even number.",
        "toy_ports[1]: has the wrong type (found 'x', wanted a mapping). Correct the inventory.",
        "toy_ports[2].trsut: is not a known name. Did you mean trust?",
        "toy_ports[2].vfs: is too small (found -2, wanted at least 0). Give a larger number.",
        "toy_words[1]: has the wrong type (found 1, wanted text). Put it in quotes, so that YAML leaves it as it is.",
    ]


def test_a_name_like_no_other_lists_the_known_ones() -> None:
    (found,) = problems({"zzz": 1})
    assert found == "zzz: is not a known name. Known are: toy_extra, toy_map, toy_mode, toy_ports, toy_words."


@pytest.mark.parametrize(
    ("kind", "given", "kept"),
    [
        ("int", 5, 5),
        ("int", "5", 5),
        ("int", " -5 ", -5),
        ("bool", True, True),
        ("bool", "Yes", True),
        ("bool", "false", False),
        ("str", "", ""),
        ("list", ("a",), ["a"]),
        ("raw", [1], [1]),
    ],
)
def test_numbers_and_truth_may_come_as_text(kind: str, given: Any, kept: Any) -> None:
    schema = Schema("t", "t_", (Field("t_x", kind, ("X.",), elements="str" if kind == "list" else ""),))
    assert schema.parse({"t_x": given}) == {"t_x": kept}


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        *(("int", one) for one in (True, 1.0, "--5", "5.0", "²", "", "9" * 30, [])),
        *(("bool", one) for one in (1, "on", "")),
        *(("str", one) for one in (5, True, ["a"])),
        *(("list", one) for one in ("a", {"a": 1}, 5)),
        *(("dict", one) for one in ("a", ["a"])),
    ],
)
def test_a_wrong_type_is_an_error_that_shows_the_value(kind: str, given: Any) -> None:
    schema = Schema("t", "t_", (Field("t_x", kind, ("X.",), elements="str" if kind == "list" else ""),))
    with pytest.raises(IntentError, match=r"^t_x: has the wrong type \(found .*, wanted .*\)") as caught:
        schema.parse({"t_x": given})
    assert repr(given) in str(caught.value)


def test_module_arguments_and_documentation_are_the_same_table() -> None:
    spec, options = SCHEMA.argument_spec(), SCHEMA.options()
    assert spec["toy_mode"] == {"type": "str", "default": "slow", "choices": ["slow", "fast"]}
    assert spec["toy_ports"]["options"]["name"] == {"type": "str", "required": True}
    assert list(spec) == list(options) == list(SCHEMA.variables())
    assert options["toy_ports"]["options"]["vfs"] == {"description": ["How many."], "type": "int"}


# A mapping with options of its own -----------------------------------------------------------


def test_a_mapping_with_fields_is_filled_and_checked_like_the_entries_of_a_list() -> None:
    inner = {"name": "b", "vfs": None, "trust": False}
    parsed = NESTED.parse({"nest_port": {"name": "a", "vfs": "8", "inner": {"name": "b", "trust": "no"}}})
    assert parsed == {"nest_port": {"name": "a", "vfs": 4, "trust": True, "inner": inner}}
    assert NESTED.parse({}) == {"nest_port": None}


def test_problems_of_a_mapping_with_fields_have_dotted_paths() -> None:
    with pytest.raises(IntentError) as caught:
        NESTED.parse({"nest_port": {"vfs": 3, "inner": {"name": "b", "vsf": 1, 7: "x"}}})
    assert [str(problem) for problem in caught.value.problems] == [
        "nest_port.inner.7: is not a known name. Known are: name, trust, vfs.",
        "nest_port.inner.vsf: is not a known name. Did you mean vfs?",
        "nest_port.name: is missing. Set it: What it is called.",
        "nest_port.vfs: is odd (found 3). Give an even number.",
    ]
    with pytest.raises(IntentError, match=r"^nest_port: has the wrong type \(found \['a'\], wanted a mapping\)"):
        NESTED.parse({"nest_port": ["a"]})


def test_a_mapping_with_fields_is_documented_with_them() -> None:
    spec, options = NESTED.argument_spec()["nest_port"], NESTED.options()["nest_port"]
    assert spec["type"] == "dict"
    assert spec["options"]["inner"]["options"]["name"] == {"type": "str", "required": True}
    assert options["options"]["inner"]["options"]["vfs"] == {"description": ["How many."], "type": "int"}
    assert "options" not in SCHEMA.argument_spec()["toy_map"]


@pytest.mark.parametrize("given", [194, 60.0, True])
def test_text_that_yaml_took_for_something_else_is_asked_for_in_quotes(given: Any) -> None:
    schema = Schema("t", "t_", (Field("t_x", "str", ("X.",)),))
    with pytest.raises(IntentError, match=r"wanted text\)\. Put it in quotes, so that YAML leaves it as it is\.$"):
        schema.parse({"t_x": given})


# The variables of a site -----------------------------------------------------------------


def test_intent_is_the_part_of_the_variables_that_is_ours() -> None:
    variables = {"kernel_iommu": "passthrough", "gpudirect_allow": "host", "ansible_host": "h", "gpudirect_plan": {}}
    assert site.intent_of(variables) == {"kernel_iommu": "passthrough", "gpudirect_allow": "host"}


def test_a_variable_under_our_prefixes_that_no_schema_knows_is_an_error_with_the_nearest() -> None:
    with pytest.raises(IntentError) as caught:
        site.intent_of({"kernel_iomu": "x", "gpudirect_alow": "host", "reboot_timeout": 5, "other_thing": 1})
    assert [str(problem) for problem in caught.value.problems] == [
        "gpudirect_alow: is not a known name. Did you mean gpudirect_allow?",
        "kernel_iomu: is not a known name. Did you mean kernel_iommu?",
        "reboot_timeout: is not a known name. Did you mean reboot_timeout_s?",
    ]


def test_problems_of_all_resources_come_together_and_once() -> None:
    with pytest.raises(IntentError) as caught:
        site.intent_of(
            {
                "kernel_args": ["root=x"],
                "kernel_hugepages": [{"size": "3G"}],
                "reboot_timeout_s": 1,
                "gpudirect_allow": "all",
            }
        )
    paths = [problem.path for problem in caught.value.problems]
    assert paths == ["gpudirect_allow", "kernel_args[0]", "kernel_hugepages[0].size", "reboot_timeout_s"]


def test_every_schema_keeps_to_its_prefix_and_names_are_described_once_the_same() -> None:
    described: dict[str, Any] = {}
    for schema in (kernel_args.SCHEMA, hugepages.SCHEMA, pci_path.SCHEMA, reboot.SCHEMA, site.SCHEMA):
        for entry in schema.fields:
            assert entry.name.startswith(schema.prefix) or entry in BOOT_FIELDS
            assert all(sentence.endswith((".", ";", ",")) or sentence[-1].isalnum() for sentence in entry.description)
            assert described.setdefault(entry.name, entry) is entry


def test_what_is_wrong_in_one_entry_does_not_hide_what_is_wrong_between_the_others() -> None:
    entries = Field("toy_list", "list", ("x",), default=[], elements="dict", fields=(Field("n", "int", ("x",)),))
    values, problems = Schema("toy", "toy_", (entries,)).parse_all({"toy_list": [{"n": 1}, {"n": "one"}, {"n": 3}]})
    assert values["toy_list"] == [{"n": 1}, None, {"n": 3}]
    assert [problem.path for problem in problems] == ["toy_list[1].n"]


def test_a_choice_that_is_not_near_is_not_advised() -> None:
    """A yes to gpudirect_allow must not be led to a larger disruption."""
    schema = Schema("toy", "toy_", (Field("toy_allow", "str", ("x",), choices=("nothing", "link", "guest", "host")),))
    with pytest.raises(IntentError, match="Take one of them"):
        schema.parse({"toy_allow": "yes"})
    with pytest.raises(IntentError, match=r"Did you mean guest\?"):
        schema.parse({"toy_allow": "gest"})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (67, "is too small (found 67, wanted at least 68). Give a larger number."),
        ("65536", "is too large (found 65536, wanted at most 65535). Give a smaller number."),
    ],
)
def test_a_number_outside_of_its_range(given: Any, said: str) -> None:
    schema = Schema("t", "t_", (Field("t_mtu", "int", ("X.",), minimum=68, maximum=65535),))
    with pytest.raises(IntentError) as caught:
        schema.parse({"t_mtu": given})
    assert str(caught.value) == f"t_mtu: {said}"
    assert [schema.parse({"t_mtu": one}) for one in (68, "65535")] == [{"t_mtu": 68}, {"t_mtu": 65535}]


def test_what_is_right_in_the_entries_of_a_list_inside() -> None:
    inner = Field("ports", "list", ("X.",), default=[], elements="dict", fields=PORT)
    fields = (Field("n", "int", ("X.",)), inner)
    right = {"name": "b", "vfs": None, "trust": True}
    found = right_fields(fields, {"n": "one", "ports": [{"name": 1, "vfs": 4}, {"name": "b"}, "x"]})
    assert found == {"ports": [{"vfs": 2, "trust": True}, right, {}]}
    assert right_fields(fields, {"n": 1, "ports": "x"}) == {"n": 1}


def test_every_element_of_a_list_is_checked_by_itself() -> None:
    entry = Field("t_list", "list", ("X.",), default=[], elements="int", each=even)
    assert Schema("t", "t_", (entry,)).parse({"t_list": [2, "4"]}) == {"t_list": [1, 2]}
    with pytest.raises(IntentError) as caught:
        Schema("t", "t_", (entry,)).parse({"t_list": [1, 2, "x", 3]})
    assert [one.path for one in caught.value.problems] == ["t_list[0]", "t_list[2]", "t_list[3]"]
    assert right_fields((entry,), {"t_list": [1, 2, "x"]}) == {"t_list": [None, 1, None]}
