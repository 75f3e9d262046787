# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host's variables on the controller: checked by all resources, and as the one document that goes to the host."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleError
from ansible.utils.vars import load_extra_vars
from ansible_collections.vela.gpudirect.plugins.module_utils import host_boot, site
from ansible_collections.vela.gpudirect.plugins.module_utils.core.errors import GpudirectError, IntentError, Problem
from ansible_collections.vela.gpudirect.plugins.module_utils.core.schema import Schema
from ansible_collections.vela.gpudirect.plugins.plugin_utils import engine

# The strategy loads an action plugin, and with it this file, before it forks a worker for each host: so the engine is
# packed once for all hosts of a run and not once for each.
ENGINE = engine.own()


# What the play itself is made of: Ansible reads it before it knows any host, so only -e can say it.
OF_THE_PLAY = (site.SERIAL_FIELD.name, site.MAX_FAIL_FIELD.name)


def no_options(task: str, given: Mapping[str, Any], known: frozenset[str]) -> list[Problem]:
    """What a task was given that its action plugin does not take."""
    advice = f"Options are: {', '.join(sorted(known))}."
    return [Problem(f"{task}.{name}", "is no option", advice) for name in sorted(given.keys() - known)]


def document(templar: Any, variables: Mapping[str, Any], loader: Any) -> str:
    """The checked intent of a host as JSON, with the digest of the engine that a host should have."""
    problems = _not_for_a_host(variables, loader)
    intent: dict[str, Any] = {}
    try:
        intent = site.intent_of(values_of(templar, variables))
    except IntentError as error:
        problems.extend(error.problems)
    if problems:
        raise IntentError(problems)
    return json.dumps({**intent, host_boot.ENGINE: ENGINE.digest}, sort_keys=True)


def _not_for_a_host(variables: Mapping[str, Any], loader: Any) -> list[Problem]:
    """Settings of the play that stand in the inventory, where they would silently do nothing."""
    given = load_extra_vars(loader)
    return [
        Problem(
            name,
            "stands in the inventory, where the play cannot see it",
            f"Give it on the command line: -e {name}={variables[name]}",
        )
        for name in OF_THE_PLAY
        if name in variables and name not in given
    ]


def of_placement(
    templar: Any, variables: Mapping[str, Any], given: Mapping[str, Any], schema: Schema
) -> dict[str, Any]:
    """The options of guest_placement from a host's variables and from the task, which counts, checked as for a run.

    So are those of the same resources that placement itself does not take, and the names of all that have our prefixes.
    """
    schemas = (site.SCHEMA, *(resource.SCHEMA for resource in site.OF_PLACEMENT))
    known = {name for one in schemas for name in one.variables()}
    problems = site.unknown_variables(variables)
    own = {name: value for name, value in variables.items() if name in known and given.get(name) is None}
    values: dict[str, Any] = {name: value for name, value in given.items() if name in known and value is not None}
    try:
        values |= values_of(templar, own)
    except IntentError as error:
        problems += error.problems
    problems += site.mistakes(values, (site.SCHEMA,), site.OF_PLACEMENT)
    if problems:
        raise IntentError(problems)
    root = site.SCHEMA.parse(site.SCHEMA.from_variables(values))[site.ROOT_FIELD.name]
    return {**schema.from_variables(values), site.ROOT_FIELD.name: root}


def values_of(templar: Any, variables: Mapping[str, Any]) -> dict[str, Any]:
    """Our variables with their templates resolved; an undefined one inside is an intent error of its name."""
    prefixes = tuple({schema.prefix for schema in site.SCHEMAS})
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    for name in [str(one) for one in variables if str(one).startswith(prefixes) and one not in site.RESULTS]:
        try:
            values[name] = as_json(name, templar.template(variables[name]), problems)
        except AnsibleError as error:
            cause = str(error).splitlines()[0].rstrip(".")
            problems.append(Problem(name, f"its template cannot be resolved: {cause}", "Correct the inventory."))
    if problems:
        raise IntentError(problems)
    return values


def as_json(path: str, value: Any, problems: list[Problem]) -> Any:
    """A value as JSON has it, whose keys are texts: YAML tells 1 from "1", and of two such keys one would silently be lost."""
    if isinstance(value, list | tuple):
        return [as_json(f"{path}[{at}]", one, problems) for at, one in enumerate(value)]
    if not isinstance(value, Mapping):
        return value
    found: dict[Any, Any] = {}
    for key, one in value.items():
        # bool, None and what else YAML has as a key are told by the schema of the variable, which knows what they should be.
        text = str(key) if isinstance(key, int) and not isinstance(key, bool) else key
        where = f"{path}.{text}" if isinstance(key, str) and key.isidentifier() else f"{path}[{text}]"
        if text in found:
            problems.append(Problem(where, "stands there as a number and as a text", "Keep one of them."))
        found[text] = as_json(where, one, problems)
    return found


def options(
    templar: Any, variables: Mapping[str, Any], given: Mapping[str, Any], schema: Schema, parse: Callable[[Any], Any]
) -> dict[str, Any]:
    """The options of a schema and the tree to look at, from a host's variables and from the task, which counts; all problems in one error."""
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    for name in [*schema.variables(), site.ROOT_FIELD.name]:
        if given.get(name) is not None:
            values[name] = given[name]
        elif name in variables:
            try:
                values[name] = as_json(name, templar.template(variables[name]), problems)
            except AnsibleError as error:
                cause = str(error).splitlines()[0].rstrip(".")
                problems.append(Problem(name, f"its template cannot be resolved: {cause}", "Correct the inventory."))
    root = values.pop(site.ROOT_FIELD.name, None)
    for check, one in ((site.SCHEMA.parse, {site.ROOT_FIELD.name: root}), (parse, values)):
        try:
            check(one)
        except IntentError as error:
            problems.extend(error.problems)
    if problems:
        raise IntentError(problems)
    return {**values, site.ROOT_FIELD.name: site.SCHEMA.parse({site.ROOT_FIELD.name: root})[site.ROOT_FIELD.name]}


def refusal(error: GpudirectError) -> dict[str, Any]:
    """The result of an action that stops before it reaches the host."""
    return {
        "failed": True,
        "changed": False,
        "msg": str(error),
        "kind": type(error).__name__,
        "problems": [str(one) for one in error.problems],
    }
