from __future__ import annotations

import time

import pytest
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import UnreadableState
from ansible_collections.vela.gpudirect.plugins.module_utils.pci import xml_input

LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 12))


def refused(data: bytes | str, **limits: int) -> str:
    started = time.monotonic()
    with pytest.raises(UnreadableState) as error:
        xml_input.parse(data, "x.xml", **limits)
    assert time.monotonic() - started < 2
    return str(error.value)


def test_elements_and_attributes() -> None:
    root = xml_input.parse(
        '<?xml version="1.0"?><a b="1 &amp; 2">text<c/><d e="&#65;"><c/></d><!-- no --></a>', "x.xml"
    )
    assert (root.tag, root.get("b"), root.get("z")) == ("a", "1 & 2", "")
    assert [one.tag for one in root.children] == ["c", "d"]
    assert [one.tag for one in root.inside()] == ["a", "c", "d", "c"]
    assert next(root.all("d")).get("e") == "A"


def test_a_plain_doctype_is_passed_over_and_not_fetched(tmp_path) -> None:
    dtd = tmp_path / "hwloc2.dtd"
    dtd.write_text("<!ELEMENT a EMPTY><!broken")
    assert xml_input.parse(f'<!DOCTYPE a SYSTEM "{dtd}"><a/>', "x.xml").tag == "a"
    assert xml_input.parse('<!DOCTYPE a PUBLIC "p" "http://192.0.2.1/x.dtd"><a/>', "x.xml").tag == "a"


@pytest.mark.parametrize(
    "text",
    [
        f'<!DOCTYPE a [<!ENTITY l0 "ha">{LAUGHS}]><a>&l11;</a>',
        f'<!DOCTYPE a [<!ENTITY l0 "{"ha" * 50_000}">]><a>{"&l0;" * 50_000}</a>',
        '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>',
        '<!DOCTYPE a [<!ENTITY % x SYSTEM "http://192.0.2.1/x"> %x;]><a/>',
        '<!DOCTYPE a SYSTEM "x" [<!ATTLIST a b CDATA "c">]><a/>',
    ],
)
def test_declarations_are_refused(text: str) -> None:
    assert "x.xml:1: has declarations of its own in its DOCTYPE" in refused(text)


def test_limits() -> None:
    assert "nests its elements too deeply (found more, wanted at most 200 levels)" in refused("<a>" * 100_000)
    assert "has too many elements (found more, wanted at most 10)" in refused(f"<a>{'<b/>' * 10}</a>", elements=10)
    assert xml_input.parse(f"<a>{'<b/>' * 9}</a>", "x.xml", elements=10).tag == "a"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("<a>\n<b/>", "x.xml:2: is no XML: no element found. It seems to be cut off"),
        ("<a><b", "It seems to be cut off"),
        ("<a></b>", "x.xml:1: is no XML: mismatched tag"),
        ("<a/><a/>", "is no XML: junk after document element"),
        ("<a>&nothing;</a>", "is no XML: undefined entity"),
        (b"<a>\xff</a>", "is no XML: not well-formed"),
        ("", "is no XML: no element found"),
    ],
)
def test_what_is_no_xml_says_where(text: str, says: str) -> None:
    assert says in refused(text)
