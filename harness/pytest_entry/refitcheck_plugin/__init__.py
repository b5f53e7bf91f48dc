"""The pytest plugin: options, static items (rule x engine x system under test), a header, and nothing else.

It does nothing until a suite's own folder is collected (`pytest --pyargs conformance`) or one of its options is used,
and imports the harness only then. Installed under a name of its own, since pytest imports it in every run of the
environment: a project with a folder `harness/` or `fakes/` of its own must keep it, and be told when ours is needed.
"""

from __future__ import annotations

from argparse import ArgumentError
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from harness.pytest_items import Session

_OPTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("--engine", {"default": None, "help": "engine versions, as fake:0.5.21,0.5.23, or all"}),
    ("--lane", {"default": None, "help": "where engines come from: fake, http, sglang-cpu, ..."}),
    ("--sut", {"default": None, "help": "systems under test: reference, package.module:factory, ..."}),
    ("--policy", {"default": None, "help": "after a partial update: resume, quarantine or terminal"}),
    ("--tp", {"default": None, "help": "tensor parallel size of each engine; 0 is the lane's default"}),
    ("--seed", {"default": None, "help": "seed of everything random"}),
    ("--rule", {"action": "append", "default": None, "help": "only this rule or family; may be repeated"}),
    ("--scenario", {"action": "append", "default": None, "help": "only this scenario; may be repeated"}),
    ("--side", {"default": None, "help": "scenarios of which side: engine, refit or both"}),
    ("--exploration", {"default": None, "help": "fault exploration: off, sample or full"}),
    ("--fatal-sample", {"default": None, "help": "keep only N scenarios that kill an engine"}),
    ("--fault", {"default": None, "help": "faults in the client's calls, as e0:flush_cache#1:before:drop"}),
    ("--plant", {"default": None, "help": "plant this defect first"}),
    ("--hang-timeout", {"default": None, "help": "real seconds after which a client that does not come back is hung"}),
    ("--death", {"default": None, "help": "an engine's death to a client in its process: raise, or process (SIGKILL)"}),
    ("--lane-option", {"action": "append", "default": None, "help": "an option of the lane, as time_scale=0.02"}),
    ("--sut-option", {"action": "append", "default": None, "help": "an option of the system under test"}),
    (
        "--allow-inconclusive",
        {"action": "append", "default": None, "help": "rule or family that may stay inconclusive; may be repeated"},
    ),
    ("--refit-report", {"default": None, "metavar": "FILE", "help": "write results.json here, as refitcheck run does"}),
    ("--refit-summary", {"default": None, "metavar": "FILE", "help": "write a Markdown summary here"}),
)
_SESSION = pytest.StashKey["Session"]()
_SUITES = pytest.StashKey[dict[Path, str]]()


_SAID = pytest.StashKey[list[str]]()
_DONE_THERE = "refitcheck_done"
_LOADGROUP = "refitcheck_loadgroup"
_PACKAGES = ("fakes", "harness", "conformance", "real_runs")
_HERE = Path(__file__).resolve()
# Installed, this package lies beside ours; in the source tree (an editable install) inside one of them.
HOME = _HERE.parents[3] if _HERE.parents[2].name == "harness" else _HERE.parents[1]


def _dest(option: str) -> str:
    return "refitcheck_" + option.lstrip("-").replace("-", "_")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options; one that another plugin owns stays with it, ours is then --refitcheck-NAME."""
    group = parser.getgroup("refitcheck", "weight refit conformance")
    for option, settings in _OPTIONS:
        try:
            group.addoption(option, dest=_dest(option), **settings)
        except (ValueError, ArgumentError):
            group.addoption(f"--refitcheck-{option.lstrip('-')}", dest=_dest(option), **settings)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Under xdist our items need --dist loadgroup: those that share a history should run on one worker.

    Workers parse the command line again, so they are told by `pytest_configure_node`.
    """
    told = getattr(config, "workerinput", {}).get(_LOADGROUP)
    if told:
        config.option.loadgroup = True
    several = getattr(config.option, "numprocesses", None)
    if several and getattr(config.option, "dist", "") in ("no", "load") and _ours(config):
        config.option.dist = "loadgroup"


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """The controller of xdist makes a worker: tell it how items are distributed."""
    node.workerinput[_LOADGROUP] = node.config.option.dist == "loadgroup"


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Every setting of the run, and a warning for each of our packages that is shadowed."""
    if not _ours(config):
        return []
    return _session(config).header()


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """A wrong option or a shadowed package is one line and exit code 4; raised while a file is collected, pytest would
    print a traceback."""
    if _ours(session.config):
        _session(session.config)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """The file that an entry point of `refitcheck.suites` names collects its rules."""
    suite = _suite_files(parent.config).get(file_path)
    if suite is None:
        return None
    from harness.pytest_items import SuiteFile

    return SuiteFile.from_parent(parent, path=file_path, session_=_session(parent.config), suite=suite)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker of xdist ended: what it ran."""
    ours = node.config.stash.get(_SESSION, None)
    if ours is not None:
        ours.take((getattr(node, "workeroutput", None) or {}).get(_DONE_THERE))


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write what was asked for. A fault that met no call anywhere is no pass, nor is a file that cannot be written."""
    config, ours = session.config, session.config.stash.get(_SESSION, None)
    if ours is None or config.option.collectonly:
        return
    if hasattr(config, "workeroutput"):
        config.workeroutput[_DONE_THERE] = ours.done()
        return
    if session.exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        return  # interrupted, as a run that then writes nothing
    unmet = ours.unmet()
    said, unwritten = ours.write()
    beside = [*ours.raised(), *ours.starting()]
    config.stash[_SAID] = [*beside, *(f"? {line}" for line in (unmet, *unwritten) if line), *said]
    if session.exitstatus == 0 and (unmet or unwritten):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED if unmet else pytest.ExitCode.USAGE_ERROR


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """What `pytest_sessionfinish` failed for, and the files that it wrote."""
    for line in config.stash.get(_SAID, ()):
        terminalreporter.write_line(line, yellow=line.startswith(("?", "!")))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the lane."""
    session = config.stash.get(_SESSION, None)
    if session is not None:
        session.close()


def _session(config: pytest.Config) -> Session:
    session = config.stash.get(_SESSION, None)
    if session is None:
        _refuse_shadowed()
        from harness.errors import RefitcheckError
        from harness.pytest_items import Session

        try:
            given = {option: config.getoption(_dest(option)) for option, _ in _OPTIONS}
            session = Session(given, writes=not hasattr(config, "workerinput"))
        except RefitcheckError as error:
            raise pytest.UsageError(str(error)) from None
        config.stash[_SESSION] = session
    return session


def _suite_files(config: pytest.Config) -> dict[Path, str]:
    """The modules that `refitcheck.suites` names, found without importing them."""
    found = config.stash.get(_SUITES, None)
    if found is None:
        found = dict(_find_suites())
        config.stash[_SUITES] = found
    return found


def _find_suites() -> Iterable[tuple[Path, str]]:
    import importlib.util
    from importlib.metadata import entry_points

    for point in entry_points(group="refitcheck.suites"):
        try:
            spec = importlib.util.find_spec(point.module)
        except (ImportError, ValueError):
            continue
        if spec is None or spec.origin is None:
            continue
        folder = Path(spec.origin).resolve().parent
        if point.module.split(".")[0] not in _PACKAGES or HOME in folder.parents:
            yield Path(spec.origin), point.name


def _refuse_shadowed() -> None:
    """UsageError when Python finds a foreign package where ours is needed."""
    import importlib.util

    for name in _PACKAGES:
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            spec = None
        found = Path(next(iter(spec.submodule_search_locations or [""]))).resolve() if spec else None
        if found != HOME / name:
            raise pytest.UsageError(
                f"refitcheck's package {name} is shadowed: Python finds {found}, ours is {HOME / name}; "
                f"run pytest from another folder, or take {found.parent if found else 'it'} off PYTHONPATH"
            )


def _ours(config: pytest.Config) -> bool:
    """Whether this run has anything to do with us: one of our options, or a suite's folder among the arguments."""
    if any(config.getoption(_dest(option), None) is not None for option, _ in _OPTIONS):
        return True
    folders = {path.parent for path in _suite_files(config)}
    names = {folder.name for folder in folders}
    for argument in config.args or config.invocation_params.args:
        text = str(argument).split("::")[0]
        if text in names or any(text.startswith(f"{name}.") for name in names):
            return True
        path = (config.invocation_params.dir / text).resolve()
        if any(path == folder or folder in path.parents for folder in folders):
            return True
    return False
