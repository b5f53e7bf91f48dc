"""Options of a system under test: what none declares, and a value that cannot work, is one line and exit code 4."""

from __future__ import annotations

import pytest

from harness.errors import HarnessError, UsageError
from harness.sut.options import check_options, refuse_unknown
from tests.examples.minimal_adapter import Adapter
from tests.harness.test_apart import command
from tests.harness.test_cli import cli  # noqa: F401 - a fixture
from tests.harness.toys import ToySut, soon


class Choosy(ToySut):
    options = ("colour", "size")

    def check_options(self, options):
        if options.get("colour") == "mauve":
            raise ValueError("colour mauve is out")
        if options.get("size") == "huge":
            raise KeyError("huge")
        if options.get("size") == "endless":
            soon()
            while True:
                pass


class Plain(ToySut):
    pass


CHOOSY, PLAIN = f"{__name__}:Choosy", f"{__name__}:Plain"


def test_a_name_that_is_declared_is_taken_and_one_that_is_not_is_refused():
    check_options({CHOOSY: {"colour": "red", "size": "1"}}, 60.0)
    with pytest.raises(UsageError, match=f"^--sut-option color: {CHOOSY} has no such option; it has colour, size$"):
        check_options({CHOOSY: {"color": "red"}}, 60.0)
    with pytest.raises(UsageError, match=f"^--sut-option size: {PLAIN} has no such option; it names none"):
        check_options({PLAIN: {"size": "1"}}, 60.0)


def test_one_of_several_may_know_it():
    check_options({CHOOSY: {"colour": "red"}, PLAIN: {"colour": "red"}}, 60.0)
    with pytest.raises(UsageError, match="--sut-option color"):
        check_options({CHOOSY: {"color": "red"}, PLAIN: {}}, 60.0)


def test_where_there_is_no_option_nobody_is_asked():
    check_options({"no.such.module:Adapter": {}}, 60.0)


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"colour": "mauve"}, UsageError, "Choosy': colour mauve is out"),
        ({"size": "endless"}, UsageError, "Choosy': its options: no return after 60 s of real time; it waits in "),
        ({"size": "huge"}, HarnessError, "Choosy': its options: KeyError: 'huge'"),
    ],
)
def test_a_value_that_cannot_work_is_told_as_the_adapter_says_it(options, error, told):
    with pytest.raises(error) as caught:
        check_options({CHOOSY: options}, 60.0)
    assert told in str(caught.value)


def test_nothing_runs_that_was_given_an_option_that_nobody_knows(cli):  # noqa: F811 - the fixture
    code, out, err = cli("run", "--lane", "toy", "--sut", CHOOSY, "--sut-option", "color=red")
    assert (code, out) == (4, "")
    assert err == f"refitcheck: --sut-option color: {CHOOSY} has no such option; it has colour, size\n"


@pytest.mark.parametrize("driver", ["slime", "nemo-rl"])
def test_a_checkout_that_is_none_is_refused_before_anything_runs(driver, tmp_path):
    with pytest.raises(UsageError, match=f"^--sut-option checkout={tmp_path}: {driver}: {tmp_path} is no checkout of"):
        check_options({driver: {"checkout": str(tmp_path)}}, 60.0)


class Optioned(Adapter):
    options = frozenset({"bucket"})


def test_a_client_in_a_worker_is_asked_there():
    code, out, err = command("harness.cli", "run", "--sut", f"{__name__}:Optioned", "--sut-option", "buckets=1")
    assert (code, out) == (4, "")
    assert err == f"refitcheck: --sut-option buckets: {__name__}:Optioned has no such option; it has bucket\n"


def test_known_names_are_told_in_order():
    with pytest.raises(UsageError, match=r"it has a, b$"):
        refuse_unknown(["c"], {"b", "a"}, "x")


def test_a_checkout_behind_links_that_lead_to_each_other_is_one_line(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(UsageError, match=f"^--sut-option checkout={tmp_path}/loop: "):
        check_options({"slime": {"checkout": f"{tmp_path}/loop"}}, 60.0)
