# Copyright: (c) 2026, vela.gpudirect contributors (!UNKNOWN)
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands of sim/rack."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from sim import power
from sim.console import follow, tail
from sim.describe import Host, read_hosts
from sim.errors import RackError
from sim.image import Image, ensure_image, prune
from sim.lifecycle import bring_up, placement, take_down
from sim.machine import qemu_arguments
from sim.places import Rack, cache_folder
from sim.ports import read_port
from sim.reach import ssh_command
from sim.report import check_machine, list_text, status_text
from sim.supervisor import Duty, supervise

Command = Callable[[Rack, argparse.Namespace], int]


def main(words: list[str]) -> int:
    """Run one command and return the exit status."""
    arguments = _parser().parse_args(words)
    rack = Rack(Path(__file__).resolve().parent.parent)
    for sent in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(sent, _interrupt)
    try:
        return int(arguments.run(rack, arguments))
    except RackError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader (head, less) has seen enough; keep Python from saying so at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _interrupt(_sent: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sim/rack", description="The simulated rack. See sim/README.md.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, run: Command, text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(run=run)
        return command

    up = add("up", _up, "start hosts (default: the starred ones of 'list') and wait until ssh answers")
    up.add_argument("hosts", nargs="*", metavar="HOST")
    up.add_argument("--fresh", action="store_true", help="begin with blank disks: forget what the hosts wrote")
    down = add("down", _down, "stop hosts (default: all); nothing is left running")
    down.add_argument("hosts", nargs="*", metavar="HOST")
    add("status", _status, "show what runs").add_argument("--json", action="store_true")
    ssh = add("ssh", _ssh, "open a shell on a host, or run a command there")
    ssh.add_argument("host", metavar="HOST")
    ssh.add_argument("remote", nargs=argparse.REMAINDER, metavar="-- COMMAND")
    console = add("console", _console, "show the end of a host's serial log")
    console.add_argument("host", metavar="HOST")
    how = console.add_mutually_exclusive_group()
    how.add_argument("--tail", type=int, default=40, metavar="N", help="so many lines (default: 40)")
    how.add_argument("--follow", action="store_true", help="and go on until interrupted")
    button = add("power", _power, "off presses the button and waits, cut is a power failure, cycle is off and on")
    button.add_argument("host", metavar="HOST")
    button.add_argument("what", choices=("on", "off", "cycle", "cut"))
    image = add("image", _image, "build the image if needed and print its path")
    image.add_argument("--prune", action="store_true", help="remove other images that no running host uses")
    add("list", _list, "show all described hosts")
    add("check", _check, "tell whether this machine can run the rack")
    supervise_one = commands.add_parser("supervise")  # without help: for the rack itself
    for word in ("host", "key", "accelerator"):
        supervise_one.add_argument(word)
    supervise_one.set_defaults(run=_supervise)
    return parser


def _described(rack: Rack, names: list[str]) -> list[Host]:
    hosts = read_hosts(rack.descriptions)
    unknown = [name for name in names if name not in hosts]
    if unknown:
        raise RackError(f"{', '.join(unknown)}: no such host is described. 'sim/rack list' shows them.")
    return [hosts[name] for name in dict.fromkeys(names)]


def _known(rack: Rack, name: str) -> str:
    (host,) = _described(rack, [name])
    if read_port(rack.host(host.name) / "port") is None:
        raise RackError(f"{name}: was never up. Run 'sim/rack up {name}'.")
    return host.name


def _up(rack: Rack, arguments: argparse.Namespace) -> int:
    everyone = list(read_hosts(rack.descriptions).values())
    chosen = _described(rack, arguments.hosts) or [host for host in everyone if host.default]
    bring_up(rack, chosen, everyone, fresh=arguments.fresh)
    return 0


def _down(rack: Rack, arguments: argparse.Namespace) -> int:
    named = [host.name for host in _described(rack, arguments.hosts)]
    # What has a state folder, described still or no longer.
    names = named or [path.parent.name for path in sorted(rack.state.glob("*/lock"))]
    take_down(rack, names, say=lambda name, what: print(f"{name}: {what}", file=sys.stderr))
    return 0


def _status(rack: Rack, arguments: argparse.Namespace) -> int:
    print(status_text(rack, read_hosts(rack.descriptions).values(), as_json=arguments.json))
    return 0


def _ssh(rack: Rack, arguments: argparse.Namespace) -> int:
    remote = arguments.remote[1:] if arguments.remote[:1] == ["--"] else arguments.remote
    argv = ssh_command(rack, _known(rack, arguments.host), remote)
    os.execvp(argv[0], argv)  # noqa: S606 - an argument list, and this process becomes ssh


def _console(rack: Rack, arguments: argparse.Namespace) -> int:
    path = rack.host(_known(rack, arguments.host)) / "console.log"
    if arguments.follow:
        follow(path, arguments.tail)
    print("\n".join(tail(path, arguments.tail)))
    return 0


def _power(rack: Rack, arguments: argparse.Namespace) -> int:
    name, what = _known(rack, arguments.host), arguments.what
    if what == "off" and not power.is_on(rack, name):
        print(f"{name}: is off already")
    elif what in ("off", "cycle"):
        print(f"{name}: off after {power.shut_down(rack, name):.1f} s")
    if what == "cut":
        power.cut(rack, name)
        print(f"{name}: off, its power was cut")
    if what in ("on", "cycle"):
        power.switch_on(rack, name)
        print(f"{name}: on; 'sim/rack up {name}' waits until it answers")
    return 0


def _image(rack: Rack, arguments: argparse.Namespace) -> int:
    def say(what: str) -> None:
        print(what, file=sys.stderr)

    image = ensure_image(rack, say)
    if arguments.prune:
        for folder in prune(rack, say):
            say(f"removed {folder}")
    print(image.disk)
    return 0


def _list(rack: Rack, _arguments: argparse.Namespace) -> int:
    print(list_text(read_hosts(rack.descriptions).values()))
    return 0


def _check(rack: Rack, _arguments: argparse.Namespace) -> int:
    claims = check_machine(rack, read_hosts(rack.descriptions).values())
    for holds, claim in claims:
        print(f"{'ok' if holds else 'NO':3}{claim}")
    return 0 if all(holds for holds, _ in claims) else 1


def _supervise(rack: Rack, arguments: argparse.Namespace) -> int:
    image = Image(cache_folder() / f"image-{arguments.key}")
    image.hold()
    name = arguments.host
    place = placement(rack, name, image, arguments.accelerator)

    def command() -> list[str]:
        (host,) = _described(rack, [name])
        return [*image.emulator.command("qemu-system-x86_64"), *qemu_arguments(host, place)]

    duty = Duty(
        name=name,
        folder=rack.host(name),
        control=power.control_socket(rack, name),
        command=command,
        environment=image.emulator.environment,
    )
    return supervise(duty)
