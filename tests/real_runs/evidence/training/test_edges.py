"""At the edge: what is just good stands, what is just bad is refused, wherever in a list it is."""

from __future__ import annotations

import os
import tracemalloc

import pytest

from real_runs.evidence.files import BadBundle
from real_runs.evidence.training import fatal, good, markers, metrics, validating
from real_runs.evidence.training import run as run_module
from real_runs.evidence.training.dishonest import (
    E0,
    NORM,
    READY,
    START,
    both,
    check,
    file,
    log,
    metric,
    of_json,
    put,
    said,
)
from real_runs.evidence.training.good import STARTED, STEPS, digest
from real_runs.evidence.training.markers import Doubt
from real_runs.evidence.training.metrics import BadMetrics, parsed, problems
from real_runs.evidence.training.provenance_checks import placeholder
from real_runs.evidence.training.run import LOG, Kept, TrainingRun, read_run
from real_runs.evidence.training.told import NAME as RUN
from real_runs.evidence.training.values import NAME as VALUES

EMBED = "model.embed_tokens.weight"
FIRST_LAST = {"1": 1.0, "4": 1.05}


def spoilt(phase, rank, name):
    return check(*E0, phase, rank, edit=lambda sums: sums.update({name: "ab"}))


STANDS = {
    "as few refits as steps": both(
        put("expected", "refits", to=STEPS),
        log(f"{START}5\n", ""),
        log("NRL_SGLANG_REFIT_SUCCESS transfer=distributed refit=5 duration_s=1.500\n", ""),
    ),
    "a window as long as the run": put("expected", "window", to=STEPS),
    "a bound of two": put("expected", "gate_bound", to=2.0),
    "an error of one and of its bound": metric(metrics.GATE, lambda s: s.update(FIRST_LAST)),
    "an error of one less its rounding": metric(metrics.GATE, lambda s: s.update({"1": 1 - 1e-6})),
    "a token a step": metric(metrics.TOKENS, lambda s: s.update({"1": 1})),
    "a gradient in the first step alone": metric(metrics.GRADIENTS, lambda s: s.update(dict.fromkeys("234", 0.0))),
    "written in the second it started": file("train_data_step1.jsonl", written=STARTED),
    "written a minute after its end": file("train_data_step1.jsonl", written=STARTED + 360),
    "started when it was launched": both(
        put("launched", to=good.run()["started"]),
        put("snapshot", "taken", to=good.run()["started"]),
        put("conversion", "made", to=good.run()["started"]),
    ),
    "a snapshot taken at the launch": put("snapshot", "taken", to=good.run()["launched"]),
    "converted at the launch": put("conversion", "made", to=good.run()["launched"]),
    "an exit of 255": put("exit_code", to=255),
    "an exit by signal 64": put("exit_code", to=-64),
    "a driver that only its group may execute": put("tests", "drivers", "run.sh", to="0610"),
    "a refit of less than a second": log("duration_s=1.200", "duration_s=0.5"),
    "an artefact of the whole run": of_json(RUN, lambda d: d["expected"]["artefacts"].append("logs/worker-1.log")),
}

REFUSED = {
    "two refits more than a check explains": ("EVID-6", put("expected", "refits", to=STEPS + 3)),
    "a bound of one": ("EVID-7", put("expected", "gate_bound", to=1.0)),
    "the first step beyond the bound": ("EVID-7", metric(metrics.GATE, lambda s: s.update({"1": 1.06}))),
    "an error just below one": ("EVID-7", metric(metrics.GATE, lambda s: s.update({"1": 1 - 3e-6}))),
    "no errors at all": ("EVID-7", of_json(metrics.NAME, lambda d: d.pop(metrics.GATE))),
    "no tokens in the first step": ("EVID-8", metric(metrics.TOKENS, lambda s: s.update({"1": 0}))),
    "tokens hidden": ("EVID-8", put("expected", "series", to=[metrics.REWARD, metrics.GRADIENTS])),
    "rewards hidden": ("EVID-8", put("expected", "series", to=[metrics.TOKENS, metrics.GRADIENTS])),
    "a series that is not there": ("EVID-8", of_json(RUN, lambda d: d["expected"]["series"].append("train/x"))),
    "the first artefact missing": ("EVID-9", lambda made: made.pop("train_data_step1.jsonl")),
    "the last artefact missing": ("EVID-9", lambda made: made.pop("train_data_step4.jsonl")),
    "written a second before it started": ("EVID-9", file("train_data_step1.jsonl", written=STARTED - 1)),
    "written just after the minute": ("EVID-9", file("train_data_step1.jsonl", written=STARTED + 360.5)),
    "an artefact of the whole run missing": (
        "EVID-9",
        of_json(RUN, lambda d: d["expected"]["artefacts"].append("all.jsonl")),
    ),
    "a doubt in the first line": ("EVID-1", log("NRL_REFIT_VALUE_CHECK=1 is set", "saw NRL_SGLANG_REFIT_START")),
    "a group without its first word": ("EVID-1", said("SGLANG_GROUP_READY world_size=9 engines=9")),
    "a marker with its first field missing": ("EVID-1", log("transfer=distributed refit=2\n", "refit=2\n")),
    "a first field that is none": ("EVID-1", log("transfer=distributed refit=2\n", "transfer=- refit=2\n")),
    "a start of another prefix first": ("EVID-1", log("NRL_SGLANG_REFIT_START", "AAA_REFIT_START")),
    "an unknown first field": (
        "EVID-1",
        log(f"{START}2\n", "NRL_SGLANG_REFIT_START odd=1 transfer=distributed refit=2\n"),
    ),
    "a skipped start": ("EVID-1", said("NRL_SGLANG_REFIT_START skipped=1")),
    "a shape check that is nothing": ("EVID-1", said("NRL_REFIT_EXPORT_SHAPE_CHECK compared=3")),
    "an assigned start": ("EVID-1", said("NRL_SGLANG_REFIT_START=1")),
    "a duration in words": ("EVID-1", log("duration_s=1.200", "duration_s=soon")),
    "a duration of an underscore": ("EVID-1", log("duration_s=1.200", "duration_s=1_0")),
    "a duration beyond all numbers": ("EVID-1", log("duration_s=1.200", f"duration_s=1{'0' * 400}")),
    "a group in the first line after a success": (
        "EVID-3",
        both(log(f"{READY}\n", "\n"), lambda made: _before_and_after(made)),
    ),
    "the first tensor unwritten": ("EVID-10", spoilt("again", "0/2", EMBED)),
    "the first tensor spoilt every time": ("EVID-10", spoilt("disk", "0/2", EMBED)),
    "the first tensor not reset": (
        "EVID-11",
        check(*E0, edit=lambda p: p["reset"]["0/2"].update({EMBED: p["refit"]["0/2"][EMBED]})),
    ),
    "a tensor too many from disk": ("EVID-10", check(*E0, "disk", "0/2", edit=lambda s: s.update(x="1"))),
    "one empty checksum": ("EVID-10", check(*E0, "reset", "1/2", edit=lambda s: s.update({EMBED: ""}))),
    "the last tensor written with something else": ("EVID-10", spoilt("refit", "1/2", NORM)),
    "a check twice": ("EVID-10", of_json(VALUES, lambda d: d.append(dict(d[0])))),
    "a check beyond the last step": ("EVID-10", of_json(VALUES, lambda d: d.append({**d[0], "step": STEPS + 1}))),
    "an engine too many": ("EVID-11", check("engines", edit=lambda e: e.update(e1=e["e0"]))),
    "a rank too many": ("EVID-11", check(*E0, edit=lambda p: [r.update({"2/2": {}}) for r in p.values()])),
    "a first rank by arrival": ("EVID-11", check(*E0, "disk", edit=lambda r: r.update({"first": r.pop("0/2")}))),
    "expected by nobody": ("EVID-13", put("claims", "model", "expected_from", to="")),
    "an expectation that can move": ("EVID-13", put("claims", "model", "expected", to="main")),
    "a mode that is none": ("EVID-14", put("tests", "drivers", "run.sh", to="rwxr-xr-x")),
    "the first look failed": ("EVID-15", put("preflight", 0, "ok", to=False)),
    "no tree wanted": ("EVID-16", put("snapshot", "checkout_tree", to="main")),
    "a tree that is a word": (
        "EVID-16",
        both(put("snapshot", "tree", to="some tree"), put("snapshot", "checkout_tree", to="some tree")),
    ),
    "a submodule that wants a word": (
        "EVID-16",
        both(put("submodules", 0, "wanted", to="a branch"), put("submodules", 0, "found", to="a branch")),
    ),
    "a submodule that wants noughts": (
        "EVID-16",
        both(put("submodules", 0, "wanted", to="0" * 40), put("submodules", 0, "found", to="0" * 40)),
    ),
    "a conversion that nobody knows": (
        "EVID-16",
        both(put("conversion", "fingerprint", to=""), put("conversion", "expected", to="")),
    ),
    "a patch of noughts": ("EVID-17", put("patches", 0, "stock", to="0" * 64)),
    "a stock that is a word": ("EVID-17", put("patches", 0, "stock", to="as shipped, of course")),
    "no packages of the trainer": ("EVID-18", of_json(RUN, lambda d: d["environments"].pop("trainer"))),
    "no hours": ("EVID-19", put("launch", "gpu_hours", to=0.0)),
    "ended when it started": ("EVID-20", put("ended", to=good.run()["started"])),
    "an exit of 256": ("EVID-20", put("exit_code", to=256)),
    "an exit by signal 65": ("EVID-20", put("exit_code", to=-65)),
    "a traceback in a worker's log": (
        "EVID-4",
        file("logs/worker-1.log", data=b"\xff\n\nTraceback (most recent call last):"),
    ),
}


def _before_and_after(made):
    text = made[LOG].data.decode()
    first, rest = text.split("NRL_SGLANG_REFIT_SUCCESS", 1)
    line, after = rest.split("\n", 1)
    made[LOG] = Kept(f"{first}NRL_SGLANG_REFIT_SUCCESS{line}\n{READY}\n{after}".encode(), STARTED + 60, 1)


@pytest.mark.parametrize("name", STANDS)
def test_it_stands(name):
    files = good.files()
    STANDS[name](files)

    assert validating.refusals(TrainingRun(files)) == []


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused(name):
    rule, change = REFUSED[name]
    files = good.files()
    change(files)

    assert rule in {found for found, _ in validating.refusals(TrainingRun(files))}


@pytest.mark.parametrize("block", [1, 20, 2**20])
@pytest.mark.parametrize("worker", ["", "(W pid=1) ", "\x1b[36m(W pid=1)\x1b[0m ", " (W)"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\n\n \n"])
def test_a_fatal_line_is_found_whatever_block_it_is_in(monkeypatch, block, worker, end):
    monkeypatch.setattr(fatal, "BLOCK", block)
    lines = ["nothing to be seen here", "trace", "Traceback (most", "recent call", "last):", "more", ""]
    text = end.join(worker + line for line in lines)

    assert list(fatal.found("x.log", text)) == [
        f"x.log:{1 + 2 * end.count(chr(10))}: a traceback (traceback(mostrecentcalllast))"
    ]


@pytest.mark.parametrize("line", ["step 1 loss nan refit\n", "a b c d ", "REFIT\n \r"])
def test_no_list_of_a_log_s_lines_is_made(monkeypatch, line):
    monkeypatch.setattr(fatal, "BLOCK", 2**14)
    text = line * 15_000
    tracemalloc.start()
    assert not list(markers.found("x", text))
    assert not list(fatal.found("x", text))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert most < 5 * len(text)


def test_more_markers_than_any_run_has_are_one_refusal(monkeypatch):
    files = good.files()
    there = len(TrainingRun(files).seen)
    monkeypatch.setattr(markers, "MOST", there)
    assert not validating.refusals(TrainingRun(files))
    monkeypatch.setattr(markers, "MOST", there - 1)
    (refused,) = validating.refusals(TrainingRun(files))

    assert refused.rule == "EVID-20"
    assert refused.line == f"run.log and logs/: more than {there - 1} markers of refits"


def test_of_one_rule_the_first_reasons_are_told_and_the_others_counted(monkeypatch):
    files = good.files()
    files[LOG] = Kept(files[LOG].data + b"REFIT_STARTS\n" * 7, files[LOG].written, files[LOG].size)
    for most, told in ((3, ["and 4 more reasons"]), (7, [])):
        monkeypatch.setattr(validating, "MOST_LINES", most)
        lines = [line for rule, line in validating.refusals(TrainingRun(files)) if rule == "EVID-1"]

        assert len(lines) == most + len(told)
        assert lines[most:] == told


@pytest.mark.parametrize("before", [0, 1, 5])
def test_a_fatal_line_is_found_where_it_begins(before):
    lines = ["nothing to see"] * before + ["Traceback (most", " recent call", "last):", "more"]

    assert list(fatal.found("x.log", "\n".join(lines))) == [
        f"x.log:{before + 1}: a traceback (traceback(mostrecentcalllast))"
    ]


def test_markers_know_their_lines():
    found = list(markers.found("x", "REFIT_START transfer=a refit=1\n\nREFIT_START"))
    later = [one.line[:4] for one in markers.found("x", "a\n\nrefit_starts\nb\nrefit_starts refit_\nrefit_starts\n")]

    assert later == ["x:3:", "x:5:", "x:6:"]
    assert (found[0].place, found[0].number("refit")) == ("x:1", 1)
    assert found[1] == Doubt("x:3: REFIT_START lacks transfer, refit")


@pytest.mark.parametrize(
    ("digest_", "typed"),
    [
        (digest("x", 40), False),
        ("0123456789abcdef" * 2 + "01234567", True),
        ("123456789abcdef0" + digest("x", 24), True),
        ("1234567890123456" + digest("x", 24), True),
        (digest("x", 16) * 4, True),
        (digest("x", 17) * 2, False),
        (digest("x", 8) * 5, True),
        ("abcde" * 8, True),
        ("01" * 20, True),
        ("aabbccddeef" + "01234f" * 4 + "aabbc", False),
        ("4b825dc642cb6eb9a060e54bf8d69288fbee4904", True),
    ],
)
def test_a_digest_that_somebody_typed_is_known(digest_, typed):
    assert placeholder(digest_) is typed


def test_steps_are_told_a_few_at_a_time():
    assert list(problems("x", {}, 5)) == ["metrics.json: x has no step 1, 2, 3, 4, 5 of 5"]
    assert list(problems("x", {}, 6)) == ["metrics.json: x has no step 1, 2, 3, 4, 5 and 1 more of 6"]


@pytest.mark.parametrize(
    ("data", "said_"),
    [
        (b"{", "Expecting property name"),
        (b'{"a": {}, "b": []}', "no object of series"),
        (b'{"b": [], "a": {}}', "no object of series"),
        (b'{"a": {}, "b": {}, "b": {}}', "metrics.json: b is there twice"),
        (b"\xff", "metrics.json: "),
    ],
)
def test_metrics_that_are_none_are_one_line(data, said_):
    with pytest.raises(BadMetrics, match=said_):
        parsed(data)


def test_a_folder_is_read_up_to_its_limits(tmp_path, monkeypatch):
    (tmp_path / "run.log").write_bytes(b"x" * 60)
    (tmp_path / "b").write_bytes(b"y" * 40)
    monkeypatch.setattr(run_module, "MAX_FILE", 60)
    monkeypatch.setattr(run_module, "MAX_TOTAL", 100)
    monkeypatch.setattr(run_module, "MAX_FILES", 2)

    assert {name: kept.size for name, kept in read_run(tmp_path).files.items()} == {"run.log": 60, "b": 40}
    for limit, most in (("MAX_FILE", 59), ("MAX_TOTAL", 99), ("MAX_FILES", 1)):
        with monkeypatch.context() as patch:
            patch.setattr(run_module, limit, most)
            with pytest.raises(BadBundle, match=r"more than \d+ files, 0 MiB in one or 0 MiB in all"):
                read_run(tmp_path)


def test_what_cannot_be_read_is_named(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadBundle, match="pipe is no plain file"):
        read_run(tmp_path)
    with pytest.raises(BadBundle, match="none is no folder of a run"):
        read_run(tmp_path / "none")
