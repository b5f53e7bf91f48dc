"""A table of broken bundles: each is refused, with its sums left alone or made anew."""

import pytest

from real_runs.evidence.checking import problems
from real_runs.evidence.environment import NAME as ENVIRONMENT
from real_runs.evidence.files import SUMS, BadBundle
from real_runs.evidence.manifest import MANIFEST, RESULTS
from real_runs.evidence.rejudging import rejudge
from tests.real_runs.evidence.conftest import edited, summed


def first(files, folder):
    return next(name for name in sorted(files) if name.startswith(folder))


def without(files, name):
    return {key: data for key, data in files.items() if key != name}


def with_text(files, name, old, new):
    assert old in files[name], (name, old)
    return {**files, name: files[name].replace(old, new, 1)}


def with_logs(files, line):
    """One line more in every log: one server was killed in this run, and may have said anything."""
    return {name: data + line if name.startswith("logs/") else data for name, data in files.items()}


def setting(**fields):
    return lambda files: edited(files, RESULTS, lambda data: data["settings"].update(fields))


def manifest(**fields):
    return lambda files: edited(files, MANIFEST, lambda data: data.update(fields))


def history(old, new):
    return lambda files: with_text(files, first(files, "histories/"), old, new)


def results(change):
    return lambda files: edited(files, RESULTS, change)


def environment(change):
    return lambda files: edited(files, ENVIRONMENT, change)


def held(data, status):
    return next(entry for entry in data["results"] if entry["status"] == status)


def violated(data, with_results):
    """A held rule is violated now, everything that counts it knows, and the run ended with 0 all the same."""
    for entry in [e for e in with_results["results"] if e["status"] == "held"][:1]:
        entry.update(status="violated")
    data["counts"].update(held=data["counts"]["held"] - 1, violated=1)
    data.update(exit_code=0)


UNSUMMED = {
    "one byte of a history": lambda f: with_text(f, first(f, "histories/"), b'"t":', b'"t" :'),
    "one byte of a log": lambda f: {**f, first(f, "logs/"): f[first(f, "logs/")] + b" "},
    "one byte of the results": lambda f: with_text(f, RESULTS, b'"held"', b'"hele"'),
    "a manifest edited": lambda f: with_text(f, MANIFEST, b"H200", b"H100"),
    "a log cut off": lambda f: {**f, first(f, "logs/"): f[first(f, "logs/")][:-100]},
    "a history emptied": lambda f: {**f, first(f, "histories/"): b""},
    "a history missing": lambda f: without(f, first(f, "histories/")),
    "a log missing": lambda f: without(f, first(f, "logs/")),
    "results missing": lambda f: without(f, RESULTS),
    "a manifest missing": lambda f: without(f, MANIFEST),
    "an environment missing": lambda f: without(f, ENVIRONMENT),
    "a file added": lambda f: {**f, "histories/z.jsonl": f[first(f, "histories/")]},
    "sums missing": lambda f: without(f, SUMS),
    "sums emptied": lambda f: {**f, SUMS: b""},
    "a sum missing": lambda f: {**f, SUMS: f[SUMS].split(b"\n", 1)[1]},
    "a sum twice": lambda f: {**f, SUMS: f[SUMS] + f[SUMS].split(b"\n", 1)[0] + b"\n"},
    "a sum edited": lambda f: {**f, SUMS: f[SUMS].replace(b"0", b"1", 1)},
    "sums of a file that is not there": lambda f: {**f, SUMS: f[SUMS] + b"0" * 64 + b"  logs/x.log\n"},
    "sums in another order": lambda f: {**f, SUMS: b"\n".join(sorted(f[SUMS].splitlines())) + b"\n"},
    "sums that are none": lambda f: {**f, SUMS: b"all is well\n"},
}

SUMMED = {
    "a GPU of another name": manifest(gpus=[{"name": "NVIDIA H100"}]),
    "another seed in the manifest": manifest(seed=7),
    "another version in the manifest": manifest(engines=["0.5.21"]),
    "a manifest with a field of its own": manifest(comment="trust me"),
    "a manifest of another schema": manifest(schema=2),
    "a manifest of no sources": manifest(sources=""),
    "a revision from nowhere": manifest(revision_of=""),
    "no revision, from somewhere": manifest(revision=None),
    "counts of the manifest": manifest(counts={"held": 99}),
    "fewer servers in the manifest": manifest(servers=1),
    "a manifest that is no JSON": lambda f: {**f, MANIFEST: b"{"},
    "a manifest missing": lambda f: without(f, MANIFEST),
    "results missing": lambda f: without(f, RESULTS),
    "results that are no JSON": lambda f: {**f, RESULTS: b"{'a': 1}"},
    "results that are a list": lambda f: {**f, RESULTS: b"[]"},
    "results without settings": results(lambda data: data.pop("settings")),
    "results without units": results(lambda data: data.pop("units")),
    "no results at all": results(lambda data: data.update(results=[])),
    "a result missing": results(lambda data: data["results"].pop()),
    "a result twice": results(lambda data: data["results"].append(dict(data["results"][0]))),
    "a status edited": results(lambda data: held(data, "inconclusive").update(status="held")),
    "an exit code of 0 beside a violation": lambda f: edited(
        edited(f, RESULTS, lambda data: violated(data, data)),
        MANIFEST,
        lambda head: violated(head, {"results": []}),
    ),
    "a unit missing": results(lambda data: data["units"].pop(0)),
    "a unit that ran once more": results(lambda data: data["units"][0].update(runs=data["units"][0]["runs"] + 1)),
    "a unit without its runs": results(lambda data: data["units"][0].pop("runs")),
    "an engine that is a fake": setting(kind="fake"),
    "another seed": setting(seed=1),
    "another tp": setting(tp=4),
    "another lane": setting(lane="sglang-cpu"),
    "another policy": setting(policy="terminal"),
    "a plant that is not told": setting(plant="no-session"),
    "a history missing": lambda f: without(f, first(f, "histories/")),
    "a history twice": lambda f: {**f, "histories/z.jsonl": f[first(f, "histories/")]},
    "a history of another seed": history(b'"seed":20261130', b'"seed":20261131'),
    "a history of another lane": history(b'"lane":"sglang-gpu"', b'"lane":"fake"'),
    "a history of another scenario": history(b'"scenario":"refit/', b'"scenario":"rafit/'),
    "a history of another version": history(b'"engine_version":"0.5.23"', b'"engine_version":"0.5.22"'),
    "a history cut off": lambda f: {**f, first(f, "histories/"): f[first(f, "histories/")][:-20]},
    "a history that is none": lambda f: {**f, first(f, "histories/"): b"once upon a time\n"},
    "a history that is not text": lambda f: {**f, first(f, "histories/"): b"\xff\xfe\x00"},
    "a history without its header": lambda f: {
        **f,
        first(f, "histories/"): f[first(f, "histories/")].split(b"\n", 1)[1],
    },
    "a refit without an end": history(b'"name":"REFIT_SUCCESS"', b'"name":"REFIT_SUCCES"'),
    "a refit without a start": history(b'"name":"REFIT_START"', b'"name":"REFIT_STARTED"'),
    "an index that jumps": history(b'"index":1,"version":"v1"', b'"index":7,"version":"v1"'),
    "a success of another version": history(b'"version":"v1","duration_s"', b'"version":"v9","duration_s"'),
    "a success that took no time": history(b'"duration_s":', b'"duration_s":-'),
    "no GROUP_READY": history(b'"name":"GROUP_READY"', b'"name":"GROUP_REDY"'),
    "a GROUP_READY of no engines": history(b'"engines":1,"names"', b'"engines":0,"names"'),
    "tracebacks in logs": lambda f: with_logs(f, b"Traceback (most recent\n call last):\n"),
    "watchdogs in logs": lambda f: with_logs(f, b"[Rank 0] Watchdog caught collective operation timeout\n"),
    "a log missing": lambda f: without(f, first(f, "logs/")),
    "a log of no server": lambda f: {**f, "logs/999.log": b"x"},
    "one log for two servers": environment(lambda data: data["servers"][1].update(log=data["servers"][0]["log"])),
    "no server": environment(lambda data: data.update(servers=[])),
    "servers that are none": environment(lambda data: data.update(servers=["a", "b"])),
    "an environment missing": lambda f: without(f, ENVIRONMENT),
    "an environment without an engine": environment(lambda data: data.pop("engine")),
    "another driver": environment(lambda data: data["machine"]["gpus"][0].update(driver="1")),
    "another command line": environment(lambda data: data.update(argv=[])),
    "a revision that the run did tell": environment(lambda data: data["refitcheck"].update(revision="0" * 40)),
    "a script": lambda f: {**f, "run.sh": b"#!/bin/sh\n"},
}


@pytest.mark.parametrize("name", UNSUMMED)
def test_what_was_edited_is_found_by_its_sum(good, name):
    assert problems(UNSUMMED[name](good))


@pytest.mark.parametrize("name", SUMMED)
def test_what_was_edited_and_summed_anew_does_not_fit(good, name):
    broken = summed(SUMMED[name](good))

    assert broken != good
    assert problems(broken)


def test_the_good_one_is_good(good):
    assert problems(good) == []


def test_every_line_of_a_wrong_sum_names_its_file(good):
    name = first(good, "logs/")

    assert problems({**good, name: b"", "x.txt": b""}) == [
        f"{name} is not what {SUMS} says",
        f"x.txt is not listed in {SUMS}",
    ]


def test_a_verdict_that_was_edited_with_all_that_counts_it_is_found_by_judging_again(good):
    def change(data):
        entry = held(data, "inconclusive")
        entry.update(status="held")
        data["counts"]["held"] += 1
        data["counts"]["inconclusive"] -= 1

    counts = {}
    files = edited(good, RESULTS, lambda data: (change(data), counts.update(data["counts"])))
    files = summed(edited(files, MANIFEST, lambda data: data.update(counts=counts)))

    assert problems(files) == []
    assert [why.split(":")[0] for why in rejudge(files).different.values()] == ["was held, is inconclusive"]


def test_a_history_whose_calls_were_edited_is_found_by_judging_again(good):
    name = next(name for name in good if "two-refits-0.5.23" in name)
    torn = good[name].replace(b'"op":"begin_weight_update"', b'"op":"begin_weight_updatf"')

    assert "SESS-1" in rejudge({**good, name: torn}).different


def test_what_a_lane_provided_must_be_told(good):
    with pytest.raises(BadBundle, match="provides"):
        rejudge(edited(good, ENVIRONMENT, lambda data: data.pop("provides")))
