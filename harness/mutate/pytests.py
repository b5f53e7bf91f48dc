"""pytest items as checks: collected once, run through pytest's own hooks, without building a report.

The whole session runs inside `pytest_runtestloop`, so that configuration, fixtures and plugins are exactly pytest's.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import sys
import unittest
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from harness.lanes.run_folder import RunFolder, sweep
from harness.mutate.budget import BudgetSpent
from harness.mutate.checks import Check, Finding, one_line
from harness.mutate.source import TargetError

try:
    from _pytest.tmpdir import tmppath_result_key as _TMP_PATH  # noqa: N812
except ImportError:
    _TMP_PATH = None  # type: ignore[assignment]

T = TypeVar("T")
HOT_EXAMPLES = 5
SCRATCH = "refitcheck-mutate-"
# Without what prints reports, runs tests elsewhere, in another order or many times, or writes into the folder.
_WITHOUT = ("cacheprovider", "terminal", "randomly", "xdist", "benchmark")
_OPTIONS = ("-s", *(option for name in _WITHOUT for option in ("-p", f"no:{name}")))


class PytestCheck:
    """One collected item. With `verbose` a finding carries pytest's whole failure report, which costs much."""

    verbose = False

    def __init__(self, item: pytest.Item) -> None:
        self.item = item
        self.id = item.nodeid
        self.path = str(item.path)
        self.rules = frozenset(str(a) for m in item.iter_markers("rules") for a in m.args)
        self._plain: bool | None = None

    def run(self) -> list[Finding]:
        """Set up, call and tear down the item; fixtures of wider scope stay for the next one."""
        item = self.item
        hook = item.ihook
        session: Any = item.session
        found: list[Finding] = []
        if self._plain is None:
            self._plain = plain_item(item)
        plain = self._plain
        session._setupstate.teardown_exact(item)
        if isinstance(item, pytest.Function):
            item._initrequest()  # else it has the fixtures of its last run: a monkeypatch that is never undone
        if _TMP_PATH is not None:
            item.stash[_TMP_PATH] = {"call": True}  # a report would say so; without it tmp_path cannot be torn down
        try:
            if plain:
                os.environ["PYTEST_CURRENT_TEST"] = f"{self.id} (call)"
                session._setupstate.setup(item)
                item.runtest()
            else:
                hook.pytest_runtest_setup(item=item)
                item.__dict__.pop("_excinfo", None)
                hook.pytest_runtest_call(item=item)
            failed = item.__dict__.pop("_excinfo", None)  # where unittest cases leave what they caught
            if failed:
                found.append(self._finding(failed[0].value))
        except Exception as error:
            found.append(self._finding(error))
        except (pytest.skip.Exception, pytest.exit.Exception):
            pass
        except (BudgetSpent, KeyboardInterrupt):
            raise
        except BaseException as error:  # pytest calls these failures too: SystemExit, a deadlock, its own Failed
            found.append(self._finding(error))
        try:
            if plain:
                session._setupstate.teardown_exact(item.parent)
            else:
                hook.pytest_runtest_teardown(item=item, nextitem=item.parent)
        except Exception as error:
            found.append(self._finding(error))
        return found

    def _finding(self, error: BaseException) -> Finding:
        text = one_line(error)
        if self.verbose:
            shown = self.item.repr_failure(pytest.ExceptionInfo.from_exception(error))
            text = f"{text}\n{self.id}\n{shown}"
        return Finding(next(iter(sorted(self.rules)), ""), text)


_HOOKS = ("pytest_runtest_setup", "pytest_runtest_call", "pytest_runtest_teardown")
_HARMLESS = ("_pytest.", "pytest_timeout", "pytest_benchmark.", "_hypothesis_pytestplugin")
_WATCHED = frozenset({"caplog", "capsys", "capfd", "capsysbinary", "capfdbinary", "capteesys", "pytester", "benchmark"})


def plain_item(item: pytest.Item) -> bool:
    """Nothing but pytest's own set-up, call and tear-down happens to this item, so its hooks may be left out.

    Those hooks look for marks, logs and output; without them a quick test costs a fraction.
    """
    cls = getattr(item, "cls", None)
    if type(item) is not pytest.Function or (isinstance(cls, type) and issubclass(cls, unittest.TestCase)):
        return False
    if _WATCHED & set(item.fixturenames) or getattr(item.obj, "is_hypothesis_test", False):
        return False
    if any(item.get_closest_marker(name) for name in ("skip", "skipif", "xfail")):
        return False
    plugins = (impl.plugin for name in _HOOKS for impl in getattr(item.ihook, name).get_hookimpls())
    return all(
        (getattr(p, "__name__", "") or type(p).__module__).startswith(_HARMLESS)
        or type(p).__module__.startswith(_HARMLESS)
        for p in plugins
    )


class PytestChecks:
    """All items of a session, and what a child of the warm process must do before and after running some of them."""

    def __init__(self, session: pytest.Session, scratch: Path) -> None:
        self.session = session
        self.checks: list[Check] = [PytestCheck(item) for item in session.items]
        self._scratch = scratch

    def enter(self) -> None:
        """Give this process temporary folders of its own."""
        factory = getattr(self.session.config, "_tmp_path_factory", None)
        if factory is not None:
            own = self._scratch / str(os.getpid())
            own.mkdir(exist_ok=True)
            factory._basetemp = own

    def close(self) -> None:
        """Tear down every fixture that is still up."""
        state: Any = self.session._setupstate
        state.teardown_exact(None)


HOT_PROFILE = "refitcheck-mutate"


def hot_profile() -> None:
    """Let tests that run a state machine by themselves be quick, too: their settings come from the profile in force.

    A conftest that loads `$HYPOTHESIS_PROFILE` loads this one, unless the user has named another.
    """
    try:
        from hypothesis import HealthCheck, Phase, settings
    except ImportError:
        return
    settings.register_profile(
        HOT_PROFILE,
        max_examples=HOT_EXAMPLES,
        stateful_step_count=20,
        phases=[Phase.explicit, Phase.generate],
        derandomize=True,
        database=None,
        deadline=None,
        print_blob=False,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    settings.load_profile(os.environ.setdefault("HYPOTHESIS_PROFILE", HOT_PROFILE))
    from hypothesis import stateful

    real = stateful.run_state_machine_as_test

    def quick_machine(factory: Any, *, settings: Any = None, **more: Any) -> None:
        real(factory, settings=_quick(settings or factory.TestCase.settings), **more)

    stateful.run_state_machine_as_test = quick_machine  # type: ignore[assignment]


def _quick(old: Any, examples: int = HOT_EXAMPLES) -> Any:
    """These settings, for finding a failure and nothing else."""
    from hypothesis import HealthCheck, Phase, settings

    return settings(
        old,
        max_examples=min(old.max_examples, examples),
        phases=[Phase.explicit, Phase.generate],
        derandomize=True,
        database=None,
        deadline=None,
        print_blob=False,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )


def hasten(items: Sequence[pytest.Item], examples: int = HOT_EXAMPLES) -> None:
    """Make Hypothesis tests stop at the first failure: few examples, always the same, no shrinking, no database."""
    if "hypothesis" not in sys.modules:
        return
    done: set[int] = set()
    for item in items:
        obj = getattr(item, "obj", None)
        function: Any = getattr(obj, "__func__", obj)
        if hasattr(function, "_hypothesis_state_machine_class"):
            cls: Any = getattr(item, "cls", None)
            if cls is not None and id(cls) not in done:
                done.add(id(cls))
                cls.settings = _quick(cls.settings, examples)
        elif hasattr(function, "_hypothesis_internal_use_settings") and id(function) not in done:
            done.add(id(function))
            function._hypothesis_internal_use_settings = _quick(function._hypothesis_internal_use_settings, examples)


def quick_packages() -> None:
    """Import the `__init__` of a package of tests once, not at every set-up: pytest looks for its place each time."""
    import _pytest.python as theirs

    real = getattr(theirs, "importtestmodule", None)
    if real is not None and not hasattr(real, "__wrapped__"):
        theirs.importtestmodule = functools.cache(real)


def with_items(args: Sequence[str], use: Callable[[PytestChecks], T], *, hot: bool = True) -> T:
    """Collect with pytest and call `use` inside its session; TargetError when nothing can be collected."""
    if hot:
        hot_profile()
    got: list[T] = []
    sweep(SCRATCH)
    scratch = RunFolder(SCRATCH)

    class Loop:
        error: BaseException | None = None
        broken: tuple[str, ...] = ()

        @pytest.hookimpl(tryfirst=True)
        def pytest_collectreport(self, report: Any) -> None:
            if report.failed:
                self.broken += (str(report.nodeid or report.longrepr).splitlines()[0],)

        @pytest.hookimpl(tryfirst=True)
        def pytest_runtestloop(self, session: pytest.Session) -> bool:
            if self.broken:
                return True
            if hot:
                hasten(session.items)
                quick_packages()
            try:
                with contextlib.redirect_stderr(real):
                    got.append(use(PytestChecks(session, scratch.path)))
            except BaseException as error:
                self.error = error
            return True

    loop, real, said = Loop(), sys.stderr, io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            code = pytest.main([*_OPTIONS, *args], plugins=[loop])
    finally:
        scratch.close()
    if loop.error is not None:
        raise loop.error
    if loop.broken:
        raise TargetError(f"tests do not collect: {', '.join(loop.broken[:3])}")
    if not got:
        why = next((line.strip() for line in said.getvalue().splitlines() if line.strip()), f"exit {int(code)}")
        raise TargetError(f"pytest collected nothing from {' '.join(args) or 'here'}: {why}")
    return got[0]
