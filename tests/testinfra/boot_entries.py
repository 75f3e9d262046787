"""What the boot loader of a host will give to its kernels: read from the files that it reads itself."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

GRUB_CONFIGS = ("/boot/grub/grub.cfg", "/boot/grub2/grub.cfg")
BLS_FOLDER = "/boot/loader/entries"
_TITLE = re.compile(r"^\s*menuentry\s+(['\"])(?P<title>.*?)\1")
_KERNEL = re.compile(r"^\s*linux(?:16|efi)?\s+(?P<kernel>\S+)(?P<line>.*)$")


@dataclass(frozen=True)
class Entry:
    """One entry of the boot menu."""

    title: str
    kernel: str
    line: tuple[str, ...]

    @property
    def rescue(self) -> bool:
        """True for an entry that is only chosen by hand."""
        return "single" in self.line or "recovery" in self.line


def grub_entries(text: str) -> list[Entry]:
    """The Linux entries of a grub.cfg, hand-written ones and those of other systems included."""
    entries, title = [], ""
    for line in text.splitlines():
        if match := _TITLE.match(line):
            title = match["title"]
        elif match := _KERNEL.match(line):
            line_words = tuple(map(_unquoted, match["line"].split()))
            entries.append(Entry(title or match["kernel"], match["kernel"], line_words))
    return entries


def bls_entries(texts: Iterable[tuple[str, str]]) -> list[Entry]:
    """The entries of Boot Loader Specification files, given as (path, text)."""
    entries = []
    for path, text in texts:
        keys = [line.strip().partition(" ") for line in text.splitlines() if line.strip()]
        options = " ".join(value for key, _, value in keys if key == "options")
        values = {key: value.strip() for key, _, value in keys}
        words = tuple(map(_unquoted, options.split()))
        entries.append(Entry(values.get("title", path), values.get("linux", ""), words))
    return entries


def _unquoted(word: str) -> str:
    """A word of the boot loader's script as the kernel will get it."""
    return re.sub(r"\\(.)", r"\1", word.strip("'\""))
