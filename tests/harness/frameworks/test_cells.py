"""Cells: what becomes of a driver, each outcome from a client that is made to have it; in process."""

import dataclasses
import json

import pytest

from harness.errors import UsageError
from harness.frameworks import pages, running, upgrade
from harness.frameworks.cells import Cell
from harness.frameworks.cli import checkouts, options_for
from harness.history_files import read_history
from harness.settings import Settings

HERE = "tests.harness.frameworks.drivers"
SETTINGS = Settings(lane="fake", tp=2, side="refit", scenarios=(running.SCENARIO,), exploration="off", hang_timeout=2.0)


def cell(driver, version="0.5.23", **options):
    (found,) = running.cells(SETTINGS, (f"{HERE}:{driver}",), (version,), **options)
    return found


def test_a_driver_that_works(tmp_path):
    found = cell("Works", histories=tmp_path)
    assert (found.outcome, found.told, found.missing, found.unknown, found.violated) == ("works", "works", (), (), [])
    assert found.rules["SESS-1"] == "held"
    assert found.history.startswith(str(tmp_path))
    assert read_history(found.history).header.engine_version == "0.5.23"
    assert found.sequence == (
        "pause_generation > flush_cache > begin_weight_update > update_weights_from_tensor > end_weight_update"
        " > continue_generation"
    )
    assert any("/begin_weight_update -> 200" in call for call in found.calls)
    assert found.replay.startswith("refitcheck run --scenario refit/envelope/two-refits --engine fake:0.5.23")
    assert pages.causes(found) == []


def test_one_without_session_calls_is_refused_and_told_which_are_missing():
    found = cell("NoSession")
    assert (found.outcome, found.told) == ("refused", "refused loudly, engine left paused")
    assert "must run between begin_weight_update() and end_weight_update()" in found.why
    assert found.missing == ("begin_weight_update", "end_weight_update")
    assert found.paused == ("e0",)
    assert cell("NoSession", "0.5.20").outcome == "works"
    assert cell("NoSession", "0.5.20").missing == ()


def test_one_that_drops_the_reply_is_stale():
    found = cell("DropsReplies")
    assert (found.outcome, found.told) == ("stale", "silently stale")
    assert found.why.startswith("VERIF-1: ")


def test_one_that_sends_nothing_is_stale_too():
    assert cell("SendsNothing").outcome == "stale"


def test_one_that_kills_the_engine():
    found = cell("NoSession", "miles")
    assert found.outcome == "dies"
    assert "begin_weight_update" in found.why


def test_one_that_hangs_is_told_with_its_line():
    found = cell("Hangs")
    assert found.outcome == "hangs"
    assert "drivers.py" in found.why


def test_what_fails_first_and_hangs_afterwards_was_refused():
    found = cell("FailsThenHangs")
    assert found.outcome == "refused"
    assert found.why.startswith("RuntimeError: no such symbol; the next refit waits in ")


def test_a_call_that_no_interface_of_its_own_declares_is_told():
    found = cell("CallsUndeclared")
    assert (found.outcome, found.undeclared) == ("works", ("Policy.extra",))
    assert pages.causes(found)[0] == "it calls Policy.extra, which that interface of its own does not declare"


def test_routes_that_this_sglang_does_not_have():
    found = cell("CallsUnknownRoute")
    assert found.unknown == ("post_process_weights",)
    assert "it calls /post_process_weights, which SGLang 0.5.23 does not have" in pages.causes(found)


def test_one_that_is_not_installed_and_one_that_cannot_be_set_up():
    found = cell("NotInstalled")
    assert (found.outcome, found.why) == ("unsupported", "toy is not installed: pip install toy")
    broken = cell("BrokenSetup")
    assert (broken.outcome, broken.told) == ("error", "could not be judged")
    assert "setup() raised ValueError: no config" in broken.why
    with pytest.raises(UsageError, match="has no 'NoSuchDriver'"):
        cell("NoSuchDriver")


def test_options_are_everybody_s_or_one_driver_s():
    given = ("checkout=a", "slime.checkout=b", "pause-mode=abort")
    assert options_for("slime", given) == {"checkout": "b", "pause_mode": "abort"}
    assert options_for("verl", given) == {"checkout": "a", "pause_mode": "abort"}
    with pytest.raises(UsageError, match="not of the form"):
        options_for("verl", ("checkout",))
    own = ("slime-nccl.checkout=c", *given)
    assert options_for("slime-nccl", given)["checkout"] == "b"
    assert options_for("slime-nccl", own)["checkout"] == "c"
    assert options_for("slime", own)["checkout"] == "b"
    assert checkouts(("slime=x", "slime-nccl=y")) == ["slime.checkout=x", "slime-nccl.checkout=y"]
    seen = cell("TellsOptions", options_of=lambda sut: {"checkout": "folder"})
    assert "checkout is folder" in seen.why


def test_names_of_drivers():
    assert "verl" in running.named_suts("all")
    assert running.named_suts("a, b,a") == ("a", "b")
    with pytest.raises(UsageError, match="names no system under test"):
        running.named_suts(" ,")
    assert running.resolved("nemo-rl").endswith(("nemo-rl", "suts:nemo_rl"))
    assert running.resolved("x:y") == "x:y"


WORKS = Cell("d", "0.5.20", "works", rules={"SESS-1": "held"})
REFUSED = Cell(
    "d",
    "0.5.23",
    "refused",
    why="Refused: no\nsession",
    paused=("e0",),
    missing=("begin_weight_update", "end_weight_update"),
    unknown=("get_load",),
    rules={"SESS-1": "violated"},
    history="h.xz",
    replay="refitcheck run",
)


def test_an_upgrade_that_breaks_says_what_is_missing():
    first, *rest = upgrade.told(WORKS, REFUSED)
    assert first == (
        "d: 0.5.20 -> 0.5.23: it breaks. On 0.5.20 it works, on 0.5.23 it is refused and leaves the engine paused."
    )
    assert rest == [
        "  Refused: no session",
        "  it never calls begin_weight_update and end_weight_update, which SGLang 0.5.23 asks for around buckets",
        "  it calls /get_load, which SGLang 0.5.23 does not have",
        "  e0 stays paused",
        "  rules broken without any fault: SESS-1",
        "  history: h.xz",
        "  `refitcheck run`",
    ]
    assert upgrade.breaks(WORKS, REFUSED) == 1


@pytest.mark.parametrize(
    ("before", "after", "told", "code"),
    [
        (WORKS, WORKS, "nothing breaks.", 0),
        (REFUSED, REFUSED, "it is refused and leaves the engine paused on both.", 0),
        (WORKS, Cell("d", "0.5.23", "hangs"), "it breaks. On 0.5.20 it works, on 0.5.23 it hangs.", 1),
        (WORKS, dataclasses.replace(WORKS, rules={"SESS-1": "violated"}), "it works, but breaks SESS-1", 1),
        (
            Cell("d", "0.5.20", "error", why="broken"),
            WORKS,
            "cannot be said: on 0.5.20 it could not be judged: broken",
            3,
        ),
        (WORKS, Cell("d", "0.5.23", "unsupported", why="pip"), "cannot be said: on 0.5.23 it was not run: pip", 2),
    ],
)
def test_other_upgrades(before, after, told, code):
    assert told in upgrade.told(before, after)[0]
    assert upgrade.breaks(before, after) == code


def test_one_that_works_on_the_newer_version_only_is_not_told_as_one_that_works():
    before = dataclasses.replace(REFUSED, version="0.5.20", missing=(), unknown=("begin_weight_update",), rules={})
    after = dataclasses.replace(WORKS, version="0.5.23")
    assert upgrade.told(before, after) == [
        "d: 0.5.20 -> 0.5.23: it works on 0.5.23; on 0.5.20 it does not: it is refused and leaves the engine paused: "
        "Refused: no session; it calls /begin_weight_update, which SGLang 0.5.20 does not have; e0 stays paused",
        "  history: h.xz",
        "  `refitcheck run`",
    ]
    assert upgrade.breaks(before, after) == 0
    assert upgrade.told(Cell("d", "0.5.20", "hangs"), after)[0].endswith("on 0.5.20 it does not: it hangs.")


def test_the_pages(tmp_path):
    evil = dataclasses.replace(REFUSED, why="<script>alert(1)</script>")
    written = pages.write_all([WORKS, evil], tmp_path / "out")
    data = json.loads(written[0].read_text())
    assert [c["outcome"] for c in data["cells"]] == ["works", "refused"]
    assert data["cells"][1]["rules"] == {"SESS-1": "violated"}
    text = written[1].read_text()
    assert text.startswith(
        "| driver | 0.5.20 | 0.5.23 |\n|---|---|---|\n| d | works | refused loudly, engine left paused |"
    )
    page = written[2].read_text()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "<dt>broken</dt><dd><code>SESS-1</code></dd>" in page
    assert '<a href="histories/h.xz">' in page
    assert "http" not in page.replace("https://", "")
