"""The commands of sim/rack."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path
from types import FrameType

from sim.describe import Host, read_hosts
from sim.errors import RackError
from sim.image import Image, ensure_image, prune
from sim.lifecycle import bring_up, control_socket, placement, take_down
from sim.machine import qemu_arguments
from sim.places import Rack, cache_folder
from sim.reach import ssh_command
from sim.supervisor import Duty, supervise


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


def _interrupt(_sent: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sim/rack", description="The simulated rack.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    up = commands.add_parser("up", help="start hosts and wait until ssh answers")
    up.add_argument("hosts", nargs="*", metavar="HOST")
    up.add_argument("--fresh", action="store_true", help="forget what the hosts wrote so far")
    up.set_defaults(run=_up)

    down = commands.add_parser("down", help="stop hosts; nothing is left running")
    down.add_argument("hosts", nargs="*", metavar="HOST")
    down.set_defaults(run=_down)

    ssh = commands.add_parser("ssh", help="open a shell or run a command on a host")
    ssh.add_argument("host", metavar="HOST")
    ssh.add_argument("remote", nargs=argparse.REMAINDER, metavar="-- COMMAND")
    ssh.set_defaults(run=_ssh)

    image = commands.add_parser("image", help="build the image if needed and print its path")
    image.add_argument("--prune", action="store_true", help="remove images that nobody uses")
    image.set_defaults(run=_image)

    hidden = commands.add_parser("supervise")
    hidden.add_argument("host")
    hidden.add_argument("key")
    hidden.add_argument("accelerator")
    hidden.set_defaults(run=_supervise)
    return parser


def _chosen(rack: Rack, names: list[str], hosts: dict[str, Host]) -> list[Host]:
    unknown = [name for name in names if name not in hosts]
    if unknown:
        raise RackError(f"{', '.join(unknown)}: not described. Run 'sim/rack list'.")
    if names:
        return [hosts[name] for name in dict.fromkeys(names)]
    return [host for host in hosts.values() if host.default]


def _up(rack: Rack, arguments: argparse.Namespace) -> int:
    hosts = read_hosts(rack.descriptions)
    chosen = _chosen(rack, arguments.hosts, hosts)
    bring_up(rack, chosen, hosts.values(), fresh=arguments.fresh)
    return 0


def _down(rack: Rack, arguments: argparse.Namespace) -> int:
    names = arguments.hosts or [path.parent.name for path in sorted(rack.state.glob("*/lock"))]
    take_down(rack, names, say=lambda name, what: print(f"{name}: {what}", file=sys.stderr))
    return 0


def _ssh(rack: Rack, arguments: argparse.Namespace) -> int:
    remote = arguments.remote[1:] if arguments.remote[:1] == ["--"] else arguments.remote
    argv = ssh_command(rack, arguments.host, remote)
    os.execvp(argv[0], argv)  # noqa: S606


def _image(rack: Rack, arguments: argparse.Namespace) -> int:
    def say(what: str) -> None:
        print(what, file=sys.stderr)

    image = ensure_image(rack, say)
    if arguments.prune:
        for folder in prune(rack):
            say(f"removed {folder}")
    print(image.disk)
    return 0


def _supervise(rack: Rack, arguments: argparse.Namespace) -> int:
    image = Image(cache_folder() / f"image-{arguments.key}")
    image.hold()
    name = arguments.host
    place = placement(rack, name, image, arguments.accelerator)

    def command() -> list[str]:
        host = read_hosts(rack.descriptions)[name]
        return [*image.emulator.command("qemu-system-x86_64"), *qemu_arguments(host, place)]

    duty = Duty(
        name=name,
        folder=rack.host(name),
        control=control_socket(rack, name),
        command=command,
        environment=image.emulator.environment,
    )
    return supervise(duty)
