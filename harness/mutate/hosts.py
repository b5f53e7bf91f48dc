"""How checks are made from a description that a fresh interpreter can read too: pytest arguments, or a run of rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from typing import Any, TypeVar

from harness.errors import UsageError
from harness.mutate import pytests
from harness.mutate.checks import Check
from harness.suites import load_point

T = TypeVar("T")


class Joined:
    """Checks of several hosts as one."""

    def __init__(self, hosts: Sequence[Any]) -> None:
        self._hosts = hosts
        self.checks: list[Check] = [check for host in hosts for check in host.checks]

    def enter(self) -> None:
        """Every host prepares this process."""
        for host in self._hosts:
            host.enter()

    def close(self) -> None:
        """Every host cleans up."""
        for host in self._hosts:
            host.close()


class _Replays:
    """Recordings, each exchange of them a check; who can replay them is an entry point of `refitcheck.replays`."""

    def __init__(self, folder: str) -> None:
        points = sorted(entry_points(group="refitcheck.replays"), key=lambda p: p.name)
        if not points:
            raise UsageError("--replay: nothing installed can replay recordings")
        self.checks: list[Check] = [check for point in points for check in load_point(point)(folder)]

    def enter(self) -> None:
        """Nothing to prepare: every replay makes its own world."""

    def close(self) -> None:
        """Nothing stays."""


def with_host(
    described: dict[str, Any], use: Callable[[Any], T], *, hot: bool = True, only: frozenset[str] = frozenset()
) -> T:
    """Make the checks that `described` asks for and call `use` with them.

    Keys: `pytest` (arguments; absent for no tests), `rules` (what `rule_checks.host` takes; absent for no rules) and
    `replay` (a folder of recordings; absent for no replay).
    Without `hot` tests run as Hypothesis' profile says; `only` are the ids that will be asked for.
    """
    rules: list[Any] = []
    if described.get("rules") is not None:
        from harness.mutate import rule_checks

        rules.append(rule_checks.host(described["rules"], only))
    if described.get("replay") is not None:
        rules.append(_Replays(described["replay"]))
    if described.get("pytest") is None:
        return use(Joined(rules))
    args = described["pytest"]
    if only and not hot:
        args = [*_options(args), *sorted(only & _node_ids(only))] or args
    return pytests.with_items(args, lambda host: use(Joined([host, *rules])), hot=hot)


def _node_ids(names: frozenset[str]) -> frozenset[str]:
    return frozenset(name for name in names if "::" in name)


def _options(args: Sequence[str]) -> list[str]:
    """The arguments that are options, without the files."""
    out, takes = [], False
    for arg in args:
        if takes or arg.startswith("-"):
            out.append(arg)
        takes = arg in ("-p", "-c", "-m", "-k", "-o", "--rootdir")
    return out
