"""A framework in processes of its own: what it does, what it raises, where it waits, and what is nobody's verdict."""

import json
import time

import psutil
import pytest

from harness.errors import HarnessError, Unsupported
from harness.sut.adapters.found import located
from harness.watchdog import Hung, watched
from tests.harness.adapters.toys import STATE, fleet, framework, sut, written

PUSH = "def push(about, names, version):\n    "


def gone(pids):
    """pytest-timeout ends it where they are not."""
    while any(psutil.pid_exists(pid) for pid in pids):
        time.sleep(0.01)


def raising(body):
    return f'__version__ = "1"\ndef started(about):\n    pass\n{PUSH}{body}\n'


@pytest.fixture
def ready(tmp_path):
    made = []

    def make(text=None, **options):
        folder = tmp_path / f"checkout{len(made)}"
        folder.mkdir()
        path = written(folder) if text is None else written(folder, text)
        one = sut()
        made.append(one)
        one.setup(fleet(**{"checkout": path, "told": str(tmp_path / "told"), **options}))
        one.set_weights(STATE, "v1")
        return one

    yield make
    for one in made:
        one.close()


def test_every_rank_refits_with_the_state_and_the_options(ready, tmp_path):
    one = ready()
    assert one.refit(60.0).version == "v1"
    told = [json.loads(line) for line in (tmp_path / "told").read_text().splitlines()]
    assert sorted(told) == [[rank, 2, "http://127.0.0.1:9", ["a", "b"], "v1"] for rank in (0, 1)]


CALLS_UNDECLARED = """__version__ = "1"
class Interface:
    def known(self): pass
class Policy(Interface):
    cfg = 7
    def extra(self): pass
def started(about):
    pass
def push(about, names, version):
    from harness.sut.adapters.drivers.common import Declared
    policy = Declared(Policy(), "Interface", {"known"})
    assert policy.cfg == 7
    policy.known(), policy.extra(), policy.extra()
"""


def test_a_call_that_its_own_interface_does_not_declare_is_recorded_once(tmp_path):
    one, given = sut(), fleet(checkout=written(tmp_path, CALLS_UNDECLARED), told="")
    one.setup(given)
    one.set_weights(STATE, "v1")
    one.refit(60.0)
    one.refit(60.0)
    one.close()
    assert given.told == [("undeclared", 0, {"call": "Interface.extra"})]


def test_its_seconds_are_the_lane_s(ready):
    one = ready(
        raising("import time\n    time.sleep(6000.0)\n    raise OSError(time.monotonic() > 0)"), time_scale=1e-6
    )
    with pytest.raises(Exception, match="True"):
        one.refit(60.0)


def test_what_it_raises_has_its_name_and_the_line_of_the_framework(ready):
    one = ready(raising("raise KeyError('w')"))
    with pytest.raises(Exception, match=r"'w' .in __init__.py:5 in push: raise KeyError") as caught:
        one.refit(60.0)
    assert type(caught.value).__name__ == "KeyError"


def test_one_rank_that_fails_does_not_wait_for_one_that_does_not_come_back(ready):
    wait = "import tests.harness.adapters.toy_driver as t\n    "
    one = ready(raising(f"{wait}t.wait_for_ever() if about['rank'] else 1 / 0"))
    with pytest.raises(Exception, match="division by zero"):
        one.refit(60.0)
    one.set_weights(STATE, "v2")  # the job is started again
    with pytest.raises(Exception, match="division by zero"):
        one.refit(60.0)


def test_a_hang_is_told_with_the_line_of_the_framework(ready):
    one = ready(raising("import time\n    while True: time.sleep(0.01)"))
    ranks = list(one._ranks)
    with pytest.raises(Hung) as caught, watched(1.0, "toy"):
        one.refit(60.0)
    assert caught.value.theirs
    assert "__init__.py:6 in push" in caught.value.where
    gone([rank.pid for rank in ranks])


def test_a_hang_in_c_code_too(ready):
    one = ready(raising("import threading\n    lock = threading.Lock(); lock.acquire(); lock.acquire()"))
    with pytest.raises(Hung) as caught, watched(1.0, "toy"):
        one.refit(60.0)
    assert "__init__.py:6 in push: lock = " in caught.value.where


def test_a_process_that_leaves_is_a_failure_with_its_last_words(ready):
    words = "import sys; print('last words', flush=True)\n    "
    one = ready(raising(f"{words}import os; os._exit(7)"))
    with pytest.raises(Exception, match="a trainer process of toyframe ended: last words"):
        one.refit(60.0)


def test_a_refit_that_asks_for_a_gpu_is_no_verdict(ready):
    one = ready(raising("raise AssertionError('Torch not compiled with CUDA enabled')"))
    with pytest.raises(HarnessError, match="asks for a GPU"):
        one.refit(60.0)


def test_what_the_shim_lacks_is_no_verdict_even_when_the_framework_catches_it(ready, tmp_path):
    caught = "try:\n        import sglang.srt.models\n    except ImportError:\n        pass"
    one = ready(raising(caught))
    with pytest.raises(HarnessError, match=r"toyframe asks for sglang\.srt\.models, which the sglang shim lacks"):
        one.refit(60.0)
    top = "try:\n    import sglang.srt.models\nexcept ImportError:\n    pass\n"
    folder = tmp_path / "top"
    folder.mkdir()
    with pytest.raises(HarnessError, match=r"imports sglang\.srt\.models, which the sglang shim lacks"):
        sut().setup(fleet(checkout=written(folder, top + raising("pass")), told=""))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("from sglang.srt.managers.io_struct import BeginWeightUpdateReqInput as B\n", ""),
        ("import no_such_package\n", r"cannot be imported beside SGLang 0.5.20: .*no_such_package.*\(__init__.py:1\)"),
        ("1 / 0\n", "ZeroDivisionError"),
        ("import os; os._exit(3)\n", "its process ended while it was imported"),
    ],
)
def test_one_that_cannot_be_imported_is_one_line(tmp_path, text, told):
    path = written(tmp_path, text + raising("pass"))
    told = told or "cannot import name 'BeginWeightUpdateReqInput'"
    with pytest.raises(HarnessError, match=told) as caught:
        sut().setup(fleet(version="0.5.20", checkout=path, told=""))
    assert "\n" not in str(caught.value)


def test_a_setup_that_raises_is_a_harness_error(tmp_path):
    path = written(
        tmp_path, f"def started(about):\n    raise ValueError('no such\\nthing')\n{PUSH}pass\n__version__ = ''\n"
    )
    with pytest.raises(HarnessError, match=r"toyframe: its setup raised .*no such") as caught:
        sut().setup(fleet(checkout=path, told=""))
    assert "\n" not in str(caught.value)


def test_a_framework_that_is_not_installed_is_unsupported_with_its_line(tmp_path):
    with pytest.raises(Unsupported, match=r"toyframe is not installed: pip install --no-deps toyframe==1\.2"):
        located(framework(), "")
    with pytest.raises(HarnessError, match="no folder"):
        located(framework(), str(tmp_path / "nowhere"))
    with pytest.raises(HarnessError, match=r"is no checkout of it: there is no toyframe/__init__\.py"):
        located(framework(), str(tmp_path))
    assert located(framework(), written(tmp_path)) == str(tmp_path)


def test_nothing_is_left_behind(ready):
    one = ready()
    pids = [rank.pid for rank in one._ranks]
    folder = one._folder
    one.close()
    assert not folder.exists()
    gone(pids)
