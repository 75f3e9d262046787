# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One table per resource: the source of strict parsing, module arguments, module documentation and role specs."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .errors import IntentError, Problem

# A check of one value: (path, value) -> the value as the engine keeps it, or raises IntentError.
Check = Callable[[str, Any], Any]

# What to do with a value of the wrong type, for who writes YAML.
QUOTED = "Put it in quotes, so that YAML leaves it as it is."
CORRECTED = "Correct the inventory."

_TYPE_WORDS = {"str": "text", "int": "a whole number", "bool": "true or false", "dict": "a mapping", "list": "a list"}


@dataclass(frozen=True)
class Field:
    """One option. Its name is the inventory variable and the module's option alike: one name for one thing.

    ``fields`` are the options inside: of each entry of a list (``elements`` is ``dict``), or of a ``dict`` itself.
    A ``dict`` without fields is any mapping. ``each`` checks every element of a list by itself, ``check`` the whole.
    ``public`` says that its value is no secret, though its name sounds like one.
    """

    name: str
    kind: str
    description: tuple[str, ...]
    default: Any = None
    choices: tuple[str, ...] = ()
    elements: str = ""
    minimum: int | None = None
    maximum: int | None = None
    required: bool = False
    fields: tuple[Field, ...] = ()
    check: Check | None = None
    each: Check | None = None
    public: bool = False


@dataclass(frozen=True)
class Schema:
    """All options of one resource (or role), in the order in which they are documented."""

    name: str
    prefix: str
    fields: tuple[Field, ...]

    def variables(self) -> tuple[str, ...]:
        """The inventory variables this schema knows."""
        return tuple(entry.name for entry in self.fields)

    def from_variables(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        """The options that a host's inventory variables set; the rest keeps its default."""
        return {name: variables[name] for name in self.variables() if name in variables}

    def parse(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Checked values with defaults filled in; raises IntentError with every problem at once."""
        return parse_fields(self.fields, params)

    def parse_all(self, params: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
        """Checked values, and the problems of those that are wrong, which have their defaults in the values.

        For checks over several options, which are then made for the right ones too. In a list of mappings only the
        entries that are wrong are missing: None stands in their place.
        """
        try:
            return self.parse(params), []
        except IntentError as error:
            wrong = {re.split(r"[.\[]", problem.path)[0] for problem in error.problems}
            right = {name: params[name] for name in self.variables() if name in params and name not in wrong}
            values = self.parse(right)
            for entry in self.fields:
                if entry.name in wrong and entry.fields and isinstance(params[entry.name], (list, tuple)):
                    values[entry.name] = _right_elements(entry, params[entry.name])
            return values, [*error.problems]

    def argument_spec(self) -> dict[str, dict[str, Any]]:
        """The argument spec of a module."""
        return {entry.name: _argument(entry) for entry in self.fields}

    def options(self) -> dict[str, dict[str, Any]]:
        """The ``options`` part of a role's argument specs, from which a module's documentation is made too."""
        return {entry.name: _option(entry) for entry in self.fields}


def parse_fields(fields: Sequence[Field], params: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Values of a mapping by its field table; collects every problem before raising."""
    problems: list[Problem] = []
    values: dict[str, Any] = {}
    known = {entry.name: entry for entry in fields}
    for key in params:
        if key not in known:
            problems.append(unknown(f"{prefix}{key}", str(key), known))
    for entry in fields:
        path = f"{prefix}{entry.name}"
        given = params.get(entry.name)
        if given is None and entry.required:
            problems.append(Problem(path, "is missing", f"Set it: {entry.description[0]}"))
            continue
        try:
            values[entry.name] = entry.default if given is None else _value(entry, path, given)
        except IntentError as error:
            problems.extend(error.problems)
    if problems:
        raise IntentError(problems)
    return values


def unknown(path: str, name: str, known: Iterable[str]) -> Problem:
    """The problem of a name that no table has, with the nearest one that does."""
    names = sorted(known)
    near = _meant(name, names)
    advice = f"Did you mean {near[0]}?" if near else f"Known are: {', '.join(names)}."
    return Problem(path, "is not a known name", advice)


def _meant(name: str, known: Sequence[str]) -> list[str]:
    """The nearest known name, if any is near."""
    return difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.5)


def right_fields(fields: Sequence[Field], given: Any) -> dict[str, Any]:
    """The checked values of those fields of one mapping that are right, for checks over several of them.

    A default is not among them where a name that no table has may have been meant for its field. Of a list of mappings in it
    each entry has those of its own that are right; in a list whose elements are checked each, None stands for the wrong ones.
    """
    if not isinstance(given, Mapping):
        return {}
    known = [entry.name for entry in fields]
    meant = {name for key in given if key not in known for name in _meant(str(key), known)}
    values: dict[str, Any] = {}
    for entry in fields:
        value = given.get(entry.name)
        if value is None:
            if not entry.required and entry.name not in meant:
                values[entry.name] = entry.default
            continue
        try:
            values[entry.name] = _value(entry, entry.name, value)
        except IntentError:
            if isinstance(value, (list, tuple)) and entry.kind == "list":
                values.update(_right_in_list(entry, value))
    return values


def _right_in_list(entry: Field, items: Sequence[Any]) -> dict[str, list[Any]]:
    """What is right in a list that is not, where it can be told."""
    if entry.fields:
        return {entry.name: right_entries(entry, {entry.name: items})}
    return {entry.name: _right_elements(entry, items)} if entry.each else {}


def right_entries(entry: Field, params: Mapping[str, Any]) -> list[dict[str, Any]]:
    """``right_fields`` of every entry of an option that is a list of mappings."""
    given = params.get(entry.name)
    return [right_fields(entry.fields, one) for one in given] if isinstance(given, (list, tuple)) else []


def wrong_type(path: str, value: Any, wanted: str) -> IntentError:
    """The error of a value whose type does not fit.

    Where text is wanted and YAML made something else of it (0302 is the number 194, 0000:01:00.0 is 60.0), quotes help.
    """
    scalar = isinstance(value, (bool, int, float)) and wanted == _TYPE_WORDS["str"]
    advice = QUOTED if scalar else CORRECTED
    return IntentError([Problem(path, "has the wrong type", advice, found=f"{value!r}", wanted=wanted)])


def _value(entry: Field, path: str, given: Any) -> Any:
    value = _typed(entry.kind, path, given)
    if entry.choices and value not in entry.choices:
        near = difflib.get_close_matches(str(value), entry.choices, n=1, cutoff=0.6)
        raise IntentError(
            [
                Problem(
                    path,
                    "is not one of the choices",
                    f"Did you mean {near[0]}?" if near else "Take one of them.",
                    found=repr(value),
                    wanted=" or ".join(entry.choices),
                )
            ]
        )
    _require_in_range(entry, path, value)
    if entry.kind == "list":
        value = _elements(entry, path, value)
    elif entry.fields:
        value = parse_fields(entry.fields, value, f"{path}.")
    return entry.check(path, value) if entry.check else value


def _require_in_range(entry: Field, path: str, value: Any) -> None:
    if entry.minimum is not None and value < entry.minimum:
        fact, advice, wanted = "is too small", "Give a larger number.", f"at least {entry.minimum}"
    elif entry.maximum is not None and value > entry.maximum:
        fact, advice, wanted = "is too large", "Give a smaller number.", f"at most {entry.maximum}"
    else:
        return
    raise IntentError([Problem(path, fact, advice, found=str(value), wanted=wanted)])


def _elements(entry: Field, path: str, items: list[Any]) -> list[Any]:
    problems: list[Problem] = []
    values: list[Any] = []
    for index, item in enumerate(items):
        here = f"{path}[{index}]"
        try:
            typed = _typed(entry.elements, here, item)
            if entry.fields:
                typed = parse_fields(entry.fields, typed, f"{here}.")
            values.append(entry.each(here, typed) if entry.each else typed)
        except IntentError as error:
            problems.extend(error.problems)
    if problems:
        raise IntentError(problems)
    return values


def _right_elements(entry: Field, items: Sequence[Any]) -> list[Any]:
    """The elements of a list by their index, None for each that is wrong by itself."""
    values: list[Any] = []
    for item in items:
        try:
            values += _elements(entry, entry.name, [item])
        except IntentError:
            values.append(None)
    return values


def _typed(kind: str, path: str, given: Any) -> Any:
    """The value when its type fits; numbers may come as text, since INI inventories and -e know only text."""
    if kind == "raw":
        return given
    if kind == "bool" and isinstance(given, str) and given.lower() in ("true", "false", "yes", "no"):
        return given.lower() in ("true", "yes")
    if kind == "int" and isinstance(given, str) and re.fullmatch(r"-?[0-9]{1,18}", given.strip()):
        return int(given)
    python = {"str": str, "int": int, "bool": bool, "dict": Mapping, "list": (list, tuple)}[kind]
    if not isinstance(given, python) or (kind == "int" and isinstance(given, bool)):  # type: ignore[arg-type]
        raise wrong_type(path, given, _TYPE_WORDS[kind])
    return given


def _argument(entry: Field) -> dict[str, Any]:
    spec: dict[str, Any] = {"type": entry.kind}
    if entry.required:
        spec["required"] = True
    if entry.default is not None:
        spec["default"] = entry.default
    if entry.choices:
        spec["choices"] = list(entry.choices)
    if entry.elements:
        spec["elements"] = entry.elements
    if entry.fields:
        spec["options"] = {inner.name: _argument(inner) for inner in entry.fields}
    if entry.public:
        spec["no_log"] = False
    return spec


def _option(entry: Field) -> dict[str, Any]:
    spec: dict[str, Any] = {"description": list(entry.description), "type": entry.kind}
    for key, value in _argument(entry).items():
        if key not in ("options", "no_log"):
            spec[key] = value
    if entry.fields:
        spec["options"] = {inner.name: _option(inner) for inner in entry.fields}
    return spec
