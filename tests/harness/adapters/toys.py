"""A framework of a few lines, written into a folder, and a fleet of urls for it."""

from types import SimpleNamespace

import numpy as np

from harness.sut.adapters.remote import RemoteSut
from harness.sut.adapters.table import Framework

WHOLE = """
__version__ = "1.2"
def started(about):
    pass
def push(about, names, version):
    import json, pathlib
    told = pathlib.Path(about["settings"]["told"])
    with told.open("a") as file:
        file.write(json.dumps([about["rank"], about["ranks"], about["engines"][0]["url"], names, version]) + "\\n")
"""


def framework(**fields):
    about = {
        "name": "toyframe",
        "package": "toyframe",
        "driver": "tests.harness.adapters.toy_driver",
        "marker": "toyframe/__init__.py",
        "install": "pip install --no-deps toyframe==1.2",
        "ranks": "tp",
        "settings": {"told": ""},
    }
    return Framework(**{**about, **fields})


def written(folder, text=WHOLE):
    package = folder / "toyframe"
    package.mkdir()
    (package / "__init__.py").write_text(text)
    return str(folder)


def fleet(tp=2, version="0.5.23", **options):
    endpoint = SimpleNamespace(name="e0", url="http://127.0.0.1:9", tp=tp, gpu_ids=tuple(range(tp)), incarnation=0)
    options = {"time_scale": 1.0, **options}
    told = []
    about = {"version": version, "options": options, "trainer": None}
    return SimpleNamespace(endpoints=(endpoint,), **about, told=told, record=lambda *note: told.append(note))


STATE = {"b": np.zeros(2, np.float32), "a": np.ones(2, np.float32)}


def sut(**fields):
    return RemoteSut(framework(**fields))
