"""Runs a command exactly as the README prints it: `python tests/readme_commands.py NAME`.

A block is named by the HTML comment on the line before its fence: `<!-- command: tests -->`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_BLOCK = re.compile(r"<!-- command: (?P<name>[\w-]+) -->\n```\w*\n(?P<text>.*?)\n```", re.S)


def commands(readme: str) -> dict[str, str]:
    """Name to shell text of every marked block; ValueError for a name used twice."""
    found: dict[str, str] = {}
    for match in _BLOCK.finditer(readme):
        if match["name"] in found:
            raise ValueError(f"README names the command {match['name']!r} twice")
        found[match["name"]] = match["text"]
    return found


def main(argv: list[str]) -> int:
    known = commands((ROOT / "README.md").read_text(encoding="utf-8"))
    if len(argv) != 1 or argv[0] not in known:
        print(f"usage: readme_commands.py {'|'.join(sorted(known))}", file=sys.stderr)
        return 4
    print("$", known[argv[0]], flush=True)
    return subprocess.call(["bash", "-euo", "pipefail", "-c", known[argv[0]]], cwd=ROOT)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
