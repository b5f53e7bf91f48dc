"""Small drivers and workers that guards must tell apart: every spelling of an import that must not be, and what may be.

Each was missed by some guard, or accused by one: a guard is only worth what it finds here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from harness.guards.subjects import Subject

PACKAGE = "guarded_toy"
WORKER = f"{PACKAGE}.worker"
CLEAN = "import json\n"
COMPUTED = "import importlib\nname = 'no_such_'\nimportlib.import_module(name + 'engine')\n"
TYPING = "from typing import TYPE_CHECKING\n"


@dataclass(frozen=True)
class Case:
    """Files of the toy package. `word`: what a finding must say; "" when there must be none."""

    id: str
    files: Mapping[str, str]
    word: str
    executed: bool = False


def _driver(id: str, text: str, word: str = "driver.py:1", **others: str) -> Case:
    return Case(id, {"driver": text + "\n", **others}, word)


IMPORTS = (
    _driver("plain", CLEAN, ""),
    _driver("import", f"import {WORKER}"),
    _driver("import-as", f"import {WORKER} as w"),
    _driver("from-package", f"from {PACKAGE} import worker"),
    _driver("from-module", f"from {WORKER} import Worker"),
    _driver("relative", "from . import worker"),
    _driver("relative-module", "from .worker import Worker"),
    _driver("star", "from .worker import *"),
    _driver("part-of-it", f"import {WORKER}.part"),
    _driver("in-a-function", "def refit():\n    from .worker import Worker", "driver.py:2"),
    _driver("in-a-method", "class Driver:\n    def refit(self):\n        import guarded_toy.worker", "driver.py:3"),
    _driver("in-a-lambda", f"load = lambda: __import__('{WORKER}')"),
    _driver("for-types", f"{TYPING}if TYPE_CHECKING:\n    from .worker import Worker", "driver.py:3"),
    _driver("by-name", f"import importlib\nimportlib.import_module('{WORKER}')", "driver.py:2"),
    _driver("by-keyword", f"import importlib\nimportlib.import_module(name='{WORKER}')", "driver.py:2"),
    _driver(
        "by-another-name", f"from importlib import import_module as load\nload('.worker', '{PACKAGE}')", "driver.py:2"
    ),
    _driver("in-two-parts", f"import importlib\nimportlib.import_module('{PACKAGE}.' + 'worker')", "driver.py:2"),
    _driver("in-text-that-is-executed", "exec('from . import worker')"),
    _driver("in-the-handler", "try:\n    import json\nexcept ImportError:\n    from . import worker", "driver.py:4"),
    _driver("caught-and-raised", "try:\n    from . import worker\nexcept ImportError:\n    raise", "driver.py:2"),
    _driver("on-the-way", "from . import helper", "helper.py:1", helper="from .worker import Worker\n"),
    _driver("by-its-package", CLEAN, "__init__.py:1", __init__="from .worker import Worker\n"),
    _driver("two-steps", "from . import one", "two.py:1", one="from . import two\n", two="from . import worker\n"),
    _driver("late-on-the-way", "from . import helper", "", helper="def make():\n    from .worker import Worker\n"),
    _driver("optional", "try:\n    from . import worker\nexcept ImportError:\n    worker = None", ""),
    _driver("another-worker", "from . import worker_names", "", worker_names="NAMES = ()\n"),
    Case("computed", {"driver": COMPUTED}, "no_such_engine", executed=True),
)  # fmt: skip

ACTORS = {
    "threads": ("class Actor:\n    def refit(self): ...\n", ""),
    "coroutine": ("class Actor:\n    async def refit(self): ...\n", "refit"),
    "inherited": ("class Mixin:\n    async def send(self): ...\nclass Actor(Mixin): ...\n", "send of"),
    "generator": ("class Actor:\n    async def stream(self):\n        yield 1\n", "stream"),
    "nested": ("class Actor:\n    def refit(self):\n        async def send(): ...\n", ""),
}
"""Module -> its source, and what a finding about its class Actor must say."""

ARGUMENTS = (
    ("0.5.23", "tp_size", ""),
    ("0.5.23", "--tp-size=2", ""),
    ("0.5.23", "--tp", ""),
    ("0.5.23", "disable_piecewise_cuda_graph", "0.5.12.post1"),
    ("0.5.23", "cuda_graph_bs", "not in 0.5.23"),
    ("0.5.12.post1", "cuda_graph_bs", ""),
    ("0.5.19", "--enable-expert-distribution-metrics", "only to refuse"),
    ("0.5.23", "--tp-sise", "--tp-size"),
)


@contextmanager
def subject_of(case: Case) -> Iterator[Subject]:
    """The toy package of a case in a folder that is gone afterwards."""
    with _package({"worker": "class Worker: ...\n", **case.files}) as folder:
        yield Subject(
            drivers=(f"{PACKAGE}.driver",),
            workers=(WORKER,),
            not_installed=("no_such_engine",),
            executed=case.executed,
            paths=(folder,),
        )


@contextmanager
def toy_actors() -> Iterator[Subject]:
    """All of ACTORS, each `guarded_toy.NAME:Actor`."""
    with _package({name: text for name, (text, _) in ACTORS.items()}) as folder:
        yield Subject(actors=tuple(f"{PACKAGE}.{name}:Actor" for name in ACTORS), paths=(folder,))


@contextmanager
def _package(files: Mapping[str, str]) -> Iterator[str]:
    with TemporaryDirectory(prefix="refitcheck-toy-") as folder:
        package = Path(folder) / PACKAGE
        package.mkdir()
        for name, text in {"__init__": "", **files}.items():
            (package / f"{name}.py").write_text(text, encoding="utf-8")
        yield folder
