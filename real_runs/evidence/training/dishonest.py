"""Evidence that must be refused: a table of mutations of a good run, each with the rule and a word of its reason."""

# ruff: noqa: E501 - a table: a case is a line
from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from real_runs.evidence.training import metrics, told, values
from real_runs.evidence.training.good import STARTED, digest, files
from real_runs.evidence.training.run import LOG, Kept, TrainingRun

Files = dict[str, Kept]
Change = Callable[[Files], None]
START = "NRL_SGLANG_REFIT_START transfer=distributed refit="
READY = "NRL_SGLANG_REFIT_GROUP_READY world_size=3 engines=1"
E0 = ("engines", "e0")


@dataclass(frozen=True)
class Case:
    """One mutation. Every refusal of `rule` that it brings about has `word` in one of its lines."""

    id: str
    rule: str
    word: str
    change: Change

    def run(self) -> TrainingRun:
        """The good run after it."""
        made = files()
        self.change(made)
        return TrainingRun(made)


def _put(made: Files, name: str, data: bytes) -> None:
    made[name] = Kept(data, made[name].written if name in made else STARTED + 60, len(data))


def log(old: str, new: str, count: int = 1) -> Change:
    """The log with `old` replaced. AssertionError where it is not there, or nothing changes."""

    def change(made: Files) -> None:
        text = made[LOG].data.decode()
        assert old in text, old
        assert old != new
        _put(made, LOG, text.replace(old, new, count).encode())

    return change


def said(line: str) -> Change:
    """One more line in the middle of the log."""
    return log(f"{START}3\n", f"{line}\n{START}3\n")


def of_json(name: str, edit: Callable[[Any], object]) -> Change:
    """A JSON file edited in place."""

    def change(made: Files) -> None:
        data = json.loads(made[name].data)
        before = json.dumps(data)
        edit(data)
        assert json.dumps(data) != before
        _put(made, name, json.dumps(data).encode())

    return change


def put(*path: Any, to: Any) -> Change:
    """One value of run.json."""
    return of_json(told.NAME, lambda data: _within(data, path[:-1]).__setitem__(path[-1], to))


def drop(*path: Any) -> Change:
    """One key of run.json gone."""
    return of_json(told.NAME, lambda data: _within(data, path[:-1]).__delitem__(path[-1]))


def metric(name: str, edit: Callable[[dict[str, Any]], object]) -> Change:
    """One series."""
    return of_json(metrics.NAME, lambda data: edit(data[name]))


def check(*path: Any, edit: Callable[[Any], object]) -> Change:
    """A place in the one value check."""
    return of_json(values.NAME, lambda data: edit(_within(data[0], path)))


def file(name: str, **fields: Any) -> Change:
    """A file with other content, or of another time."""

    def change(made: Files) -> None:
        old = made[name]
        data = fields.get("data", old.data)
        made[name] = Kept(data, fields.get("written", old.written), len(data))

    return change


def gone(name: str) -> Change:
    """A file less."""

    def change(made: Files) -> None:
        del made[name]

    return change


def both(*changes: Change) -> Change:
    """One after the other."""

    def change(made: Files) -> None:
        for one in changes:
            one(made)

    return change


def _within(data: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        data = data[key]
    return data


def _copied(phase: str, of: str, *tensors: str) -> Change:
    """Of every rank, `phase` has what `of` has; of these tensors, or of all."""

    def edit(phases: dict[str, Any]) -> None:
        for rank, sums in phases[phase].items():
            sums.update({name: found for name, found in phases[of][rank].items() if not tensors or name in tensors})

    return check(*E0, edit=edit)


def _renamed(*names: str) -> Callable[[Any], object]:
    """Ranks under other names, in every phase."""

    def edit(phases: dict[str, Any]) -> None:
        for phase, ranks in phases.items():
            phases[phase] = dict(zip(names, ranks.values(), strict=True))

    return edit


def _without_rank(phases: Mapping[str, Any]) -> None:
    for ranks in phases.values():
        del ranks["1/2"]


def _of_every(key: str, value: str) -> Callable[[Any], object]:
    def edit(phases: dict[str, Any]) -> None:
        for ranks in phases.values():
            for sums in ranks.values():
                sums[key] = value

    return edit


NORM = "model.norm.weight"
ZEROS, SHA = "0" * 40, digest("another", 40)
PINS = ("environments", "engine", "pins")

_MARKERS = (
    Case("a success counted by substring", "EVID-1", "inside other words", said(f"saw {START}9")),
    Case("a success that is none", "EVID-1", "looks like", said("NRL_SGLANG_REFIT_SUCCESSFUL refit=9")),
    Case("a marker in small letters", "EVID-1", "looks like", said("nrl_sglang_refit_success refit=9")),
    Case("a marker glued to a word", "EVID-1", "looks like", said("x.NRL_SGLANG_REFIT_START refit=9")),
    Case("a marker without its index", "EVID-1", "lacks refit", log(f"{START}2", START.removesuffix(" refit="))),
    Case("a marker without its duration", "EVID-1", "lacks duration_s", log(" duration_s=1.200", "")),
    Case("a marker with a field of its own", "EVID-1", "unknown", log(f"{START}2", f"{START}2 ok=true")),
    Case("a field twice", "EVID-1", "twice", log(f"{START}2", f"{START}2 refit=2")),
    Case("an index that is no number", "EVID-1", "no value", log(f"{START}2", f"{START}two")),
    Case("an index with a nought in front", "EVID-1", "no value", log(f"{START}2", f"{START}02")),
    Case("a duration that is not a number", "EVID-1", "no value", log("duration_s=1.200", "duration_s=nan")),
    Case("words behind a marker", "EVID-1", "no field", log(f"{START}2", f"{START}2 and so on")),
    Case("a marker folded by Ray", "EVID-1", "no field", log(READY, f"{READY} [repeated 3x across cluster]")),
    Case("two markers on one line", "EVID-1", "2 markers", log(f"{START}2", f"{START}2 {READY}")),
    Case("markers of two prefixes", "EVID-1", "2 prefixes", log("NRL_SGLANG_REFIT_START", "MY_REFIT_START")),
    Case("a marker cut off", "EVID-1", "lacks", log(f"{START}2\n", f"{START.split(' transfer')[0]}\n")),
    Case("an index twice", "EVID-2", "grow by one", log("step 4/4 done", f"{START}5\nNRL_SGLANG_REFIT_SUCCESS transfer=distributed refit=5 duration_s=1.500")),
    Case("an index left out", "EVID-2", "grow by one", log("refit=5", "refit=6", 2)),
    Case("indices from nought", "EVID-2", "from 1", both(log("refit=1", "refit=0"), log("refit=1", "refit=0"))),
    Case("a start without an end", "EVID-2", "has not ended", log("_SUCCESS transfer=distributed refit=2", "_START transfer=distributed refit=2 ")),
    Case("a start behind a progress bar", "EVID-2", "has not ended", log(f"{START}3\n", f" 50%|## |\r{START}3\n{START}4\n")),
    Case("the last refit has no end", "EVID-2", "has no end", log("NRL_SGLANG_REFIT_SUCCESS transfer=distributed refit=5 duration_s=1.500\n", "")),
    Case("a success without a start", "EVID-2", "not under way", log(f"{START}3\n", "")),
    Case("a success of another refit", "EVID-2", "not under way", log("_SUCCESS transfer=distributed refit=3", "_SUCCESS transfer=distributed refit=4")),
    Case("a refit that failed", "EVID-2", "failed in transfer", said("NRL_SGLANG_REFIT_FAILURE transfer=distributed refit=3 phase=transfer error_type=RuntimeError")),
    Case("a refit that took no time", "EVID-2", "took 0.000 s", log("duration_s=1.200", "duration_s=0.000")),
    Case("another transfer than was to be", "EVID-2", "transfer tensor", log("transfer=distributed refit=2", "transfer=tensor refit=2")),
    Case("no group", "EVID-3", "no GROUP_READY", log(f"{READY}\n", "\n")),
    Case("a group after the first success", "EVID-3", "after the first success", both(log(f"{READY}\n", "\n"), said(READY))),
    Case("a group of another size", "EVID-3", "world_size 2", log("world_size=3", "world_size=2")),
    Case("a group of other engines", "EVID-3", "2 engines", log("engines=1", "engines=2")),
    Case("a later group of another size", "EVID-3", "world_size 2", said(READY.replace("3", "2"))),
)  # fmt: skip

_FATAL = tuple(
    Case(name, "EVID-4", word, said(line))
    for name, word, line in (
        ("a traceback", "traceback", "Traceback (most recent call last):"),
        ("a traceback over two lines", "traceback", "Traceback (most recent\ncall last):"),
        ("a traceback broken in a word", "traceback", "Traceback (most rec\nent call last):"),
        ("a traceback between colours", "traceback", "Traceback \x1b[31m(most recent\x1b[0m call last):"),
        ("a traceback of a worker, broken", "traceback", "(W pid=1) Traceback (most\n(W pid=1) recent call last):"),
        ("CUDA out of memory", "out of memory", "torch.cuda.OutOfMemoryError: CUDA out of memory."),
        ("out of memory over two lines", "out of memory", "CUDA out of\n memory. Tried to allocate 20 MiB"),
        ("killed by the kernel", "out of memory", "oom-kill:constraint=CONSTRAINT_MEMCG"),
        ("a watchdog", "watchdog", "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9)"),
        ("a watchdog over two lines", "watchdog", "[Rank 3] Watchdog caught collective\noperation timeout"),
        ("a watchdog of SGLang", "watchdog", "Scheduler watchdog timeout (self.watchdog_timeout=300)"),
        ("a collective error", "collective", "ncclRemoteError: A call failed possibly due to a network error"),
        ("a collective error, broken", "collective", "nccl\nSystemError: System call failed"),
        ("a peer that left", "collective", "recvValue failed: Connection reset\n by peer"),
        ("an error of NIXL", "collective", "nixl._bindings.nixlBackendError: NIXL_ERR_BACKEND"),
        ("an error of CUDA", "CUDA error", "RuntimeError: CUDA error: an illegal memory access was encountered"),
        ("a worker that died", "died", "ray.exceptions.ActorDiedError: The actor died"),
        ("a signal", "signal", "Received sigquit from a child process"),
        ("a flush that failed", "flush", "KV cache invalidation failed\nbefore refit"),
    )
)  # fmt: skip

_COUNTS = (
    Case("a loss that is not finite", "EVID-5", "not finite", metric(metrics.LOSS, lambda s: s.update({"2": float("nan")}))),
    Case("a loss without bound", "EVID-5", "not finite", metric(metrics.LOSS, lambda s: s.update({"4": float("inf")}))),
    Case("a loss that is text", "EVID-5", "no number", metric(metrics.LOSS, lambda s: s.update({"2": "0.5"}))),
    Case("a loss that is true", "EVID-5", "no number", metric(metrics.LOSS, lambda s: s.update({"2": True}))),
    Case("a step without a loss", "EVID-5", "no step 2", metric(metrics.LOSS, lambda s: s.pop("2"))),
    Case("the last step missing", "EVID-5", "no step 4", metric(metrics.LOSS, lambda s: s.pop("4"))),
    Case("the first step missing", "EVID-5", "no step 1", metric(metrics.LOSS, lambda s: s.pop("1"))),
    Case("only the last step", "EVID-5", "no step 1, 2, 3", metric(metrics.LOSS, lambda s: [s.pop(k) for k in "123"])),
    Case("more steps than there were", "EVID-5", "has step 5", metric(metrics.LOSS, lambda s: s.update({"5": 0.1}))),
    Case("a step that is none", "EVID-5", "no step", metric(metrics.LOSS, lambda s: s.update({"1.5": 0.1}))),
    Case("no losses", "EVID-5", "no series", of_json(metrics.NAME, lambda data: data.pop(metrics.LOSS))),
    Case("a refit less", "EVID-6", "4 refits", both(log(f"{START}5\n", ""), log("NRL_SGLANG_REFIT_SUCCESS transfer=distributed refit=5 duration_s=1.500\n", ""))),
    Case("fewer refits than steps expected", "EVID-6", "3 refits expected", put("expected", "refits", to=3)),
    Case("more refits than checks explain", "EVID-6", "9 refits expected", put("expected", "refits", to=9)),
    Case("windows longer than the run", "EVID-6", "windows", put("expected", "window", to=9)),
    Case("one step beyond the bound", "EVID-7", "step 3", metric(metrics.GATE, lambda s: s.update({"3": 1.2}))),
    Case("the last step beyond the bound", "EVID-7", "step 4", metric(metrics.GATE, lambda s: s.update({"4": 1.0501}))),
    Case("an error below its least", "EVID-7", "step 1", metric(metrics.GATE, lambda s: s.update({"1": 0.0}))),
    Case("a step without its error", "EVID-7", "no step 2", metric(metrics.GATE, lambda s: s.pop("2"))),
    Case("a bound that bounds nothing", "EVID-7", "gate_bound", put("expected", "gate_bound", to=1e9)),
    Case("no tokens in a step", "EVID-8", "step 2 is 0", metric(metrics.TOKENS, lambda s: s.update({"2": 0}))),
    Case("no gradient anywhere", "EVID-8", "every step", metric(metrics.GRADIENTS, lambda s: s.update(dict.fromkeys("1234", 0.0)))),
    Case("a gradient below nought", "EVID-8", "is -1", metric(metrics.GRADIENTS, lambda s: s.update({"1": -1.0}))),
    Case("a step without its reward", "EVID-8", "no step 3", metric(metrics.REWARD, lambda s: s.pop("3"))),
    Case("a series that was hidden", "EVID-8", "does not say so", put("expected", "series", to=[metrics.REWARD, metrics.TOKENS])),
    Case("an artefact missing", "EVID-9", "missing", gone("train_data_step3.jsonl")),
    Case("an artefact empty", "EVID-9", "empty", file("train_data_step3.jsonl", data=b"")),
    Case("an artefact of an earlier run", "EVID-9", "before the run", file("train_data_step3.jsonl", written=STARTED - 9)),
    Case("metrics of an earlier run", "EVID-9", "metrics.json was written before", file(metrics.NAME, written=STARTED - 9)),
    Case("a log of an earlier run", "EVID-9", "run.log was written before", file(LOG, written=STARTED - 9)),
    Case("an artefact of a later run", "EVID-9", "after the run", file("train_data_step3.jsonl", written=STARTED + 999)),
    Case("no artefacts asked for", "EVID-9", "no artefact", put("expected", "artefacts", to=[])),
)  # fmt: skip

_VALUES = (
    Case("shapes alone", "EVID-10", "shapes cannot see", log("NRL_REFIT_VALUE_CHECK result=pass ranks=2\n", "")),
    Case("a value check that failed", "EVID-10", "says fail", log("result=pass", "result=fail")),
    Case("shapes that were not compared", "EVID-10", "skipped", log("compared=3 exported=3 reference=3 mismatches=0", "skipped=1")),
    Case("shapes that differ", "EVID-10", "shapes of the export", log("mismatches=0", "mismatches=1")),
    Case("fewer shapes than exported", "EVID-10", "shapes of the export", log("compared=3", "compared=2")),
    Case("no shapes", "EVID-10", "no shape", log("compared=3 exported=3 reference=3", "compared=0 exported=0 reference=0")),
    Case("a pass beside other values", "EVID-10", "something else", check(*E0, "again", "0/2", edit=lambda s: s.update({NORM: "ab"}))),
    Case("a tensor that was not written", "EVID-10", "did not write", _copied("again", "reset", NORM)),
    Case("a tensor spoilt every time", "EVID-10", "before any training", check(*E0, "disk", "1/2", edit=lambda s: s.update({NORM: "ab"}))),
    Case("a tensor that is not checked again", "EVID-10", "every phase", check(*E0, "again", "0/2", edit=lambda s: s.pop(NORM))),
    Case("no tensor at all", "EVID-10", "no tensor", check(*E0, edit=lambda p: [r.update({"0/2": {}}) for r in p.values()])),
    Case("checksums that are empty", "EVID-10", "no checksum", check(*E0, edit=_of_every(NORM, ""))),
    Case("a value check that is only said", "EVID-10", "expected 1", of_json(values.NAME, lambda data: data.clear())),
    Case("a value check too late to be fresh", "EVID-10", "from 1", check(edit=lambda c: c.update(step=2))),
    Case("no reset control", "EVID-11", "as it was", _copied("reset", "refit")),
    Case("a partial reset", "EVID-11", NORM, _copied("reset", "refit", NORM)),
    Case("ranks by the order of arrival", "EVID-11", "no rank/size", check(*E0, edit=_renamed("first", "second"))),
    Case("a rank missing", "EVID-11", "1/2", check(*E0, edit=_without_rank)),
    Case("ranks of another size", "EVID-11", "ranks differ", check(*E0, edit=_renamed("0/4", "1/4"))),
    Case("a phase missing", "EVID-11", "phases", check(*E0, edit=lambda phases: phases.pop("disk"))),
    Case("an engine missing", "EVID-11", "0 engines", check("engines", edit=lambda engines: engines.clear())),
    Case("an action that is none", "EVID-12", "'reset'", check("actions", edit=lambda a: a.__setitem__(2, "'reset'"))),
    Case("no reset asked for", "EVID-12", "one reset_tensors", check("actions", edit=lambda a: a.remove("reset_tensors"))),
    Case("a checksum too few", "EVID-12", "every phase", check("actions", edit=lambda a: a.pop())),
    Case("reset before anything", "EVID-12", "comes before", check("actions", edit=lambda a: a.insert(0, a.pop(2)))),
)  # fmt: skip

_PROVENANCE = (
    Case("an image by its tag", "EVID-13", "no immutable", put("claims", "image", "found", to="nemo:latest")),
    Case("a model by its branch", "EVID-13", "no immutable", put("claims", "model", "found", to="main")),
    Case("a digest of noughts", "EVID-13", "placeholder", put("claims", "model", "found", to=ZEROS)),
    Case("a digest that somebody typed", "EVID-13", "placeholder", put("claims", "model", "found", to="deadbeef" * 5)),
    Case("a digest that counts", "EVID-13", "placeholder", put("claims", "model", "found", to=("0123456789abcdef" * 3)[:40])),
    Case("a digest of nothing", "EVID-13", "placeholder", put("claims", "model", "found", to="da39a3ee5e6b4b0d3255bfef95601890afd80709")),
    Case("another revision than expected", "EVID-13", "expected", put("claims", "revision", "found", to=SHA)),
    Case("a container of another commit", "EVID-13", "container is", put("claims", "container", "found", to=SHA)),
    Case("compared with itself", "EVID-13", "own default", put("claims", "model", "expected_from", to="the container")),
    Case("compared with a default", "EVID-13", "own default", put("claims", "model", "expected_from", to="default")),
    Case("nothing said of the data", "EVID-13", "dataset", drop("claims", "dataset")),
    Case("a claim of something else", "EVID-13", "no claim", of_json(told.NAME, lambda d: d["claims"].update(luck=d["claims"]["model"]))),
    Case("tests outside what is collected", "EVID-14", "outside", put("tests", "ran", 0, to="elsewhere/test_x.py::test")),
    Case("tests that did not run", "EVID-14", "did not run", put("tests", "ran", to=[])),
    Case("no tests", "EVID-14", "no test", put("tests", to={"collected": [], "ran": [], "deselected": [], "drivers": {"a": "755"}})),
    Case("a driver that cannot be executed", "EVID-14", "mode 644", put("tests", "drivers", "run.sh", to="644")),
    Case("no drivers", "EVID-14", "no driver", put("tests", "drivers", to={})),
    Case("a preflight that failed", "EVID-15", "timed out", put("preflight", 1, to={"what": "ray", "ok": False, "said": "no cluster", "causes": ["ConnectionError: refused", "OSError: timed out"]})),
    Case("a preflight that failed for nothing", "EVID-15", "without a cause", put("preflight", 1, "ok", to=False)),
    Case("a preflight that hides an error", "EVID-15", "beside an error", put("preflight", 1, "causes", to=["OSError: no"])),
    Case("no preflight", "EVID-15", "no preflight", put("preflight", to=[])),
    Case("a snapshot of an earlier run", "EVID-16", "before the launch", put("snapshot", "taken", to="2026-01-01T00:00:00Z")),
    Case("a snapshot of another tree", "EVID-16", "never ran", put("snapshot", "tree", to=SHA)),
    Case("a snapshot of no tree", "EVID-16", "no git trees", put("snapshot", "tree", to=ZEROS)),
    Case("a submodule that cannot be fetched", "EVID-16", "could not be fetched", put("submodules", 0, "fetched", to=False)),
    Case("a submodule that has diverged", "EVID-16", "diverged", put("submodules", 0, "found", to=SHA)),
    Case("a submodule without a commit", "EVID-16", "no commits", put("submodules", 0, "found", to="")),
    Case("a submodule twice", "EVID-16", "twice", of_json(told.NAME, lambda d: d["submodules"].append(d["submodules"][0]))),
    Case("a conversion of another run", "EVID-16", "earlier run", put("conversion", "made", to="2026-01-01T00:00:00Z")),
    Case("a conversion by another converter", "EVID-16", "another converter", put("conversion", "fingerprint", to="1")),
    Case("a patch that was not applied", "EVID-17", "as shipped", put("patches", 0, "found", to=digest("stock"))),
    Case("a patch that is something else", "EVID-17", "something else", put("patches", 0, "found", to=digest("x"))),
    Case("a patch that changes nothing", "EVID-17", "are the same", put("patches", 0, "wanted", to=digest("stock"))),
    Case("a patch without digests", "EVID-17", "no digests", put("patches", 0, "found", to="applied")),
    Case("a file patched twice", "EVID-17", "twice", of_json(told.NAME, lambda d: d["patches"].append(d["patches"][0]))),
    Case("no packages of the engine", "EVID-18", "environment engine", drop("environments", "engine")),
    Case("an environment without packages", "EVID-18", "no packages", put("environments", "engine", "packages", to={})),
    Case("an environment without a lock", "EVID-18", "no pins", put(*PINS, to={})),
    Case("a version that leaked in", "EVID-18", "its lock says 5.3.0", put(*PINS, "transformers", to="5.3.0")),
    Case("another version than the lock's", "EVID-18", "0.5.23", put(*PINS, "sglang", to="0.5.22")),
    Case("a recipe that nobody registered", "EVID-19", "no recipe", put("launch", "recipe", to="mine")),
    Case("an override of an undeclared key", "EVID-19", "no key", put("launch", "overrides", "learning_rate", to="1")),
    Case("an override of another type", "EVID-19", "no int", put("launch", "overrides", "seed", to="lots")),
    Case("another topology than the recipe's", "EVID-19", "world_size", put("expected", "world_size", to=5)),
    Case("more GPUs than the recipe has", "EVID-19", "4 GPUs", put("launch", "gpus", to=4)),
    Case("a budget over its cap", "EVID-19", "cap", put("launch", "gpu_hours", to=99.0)),
    Case("a deselection that is stale", "EVID-19", "does not exist", of_json(told.NAME, lambda d: d["tests"]["deselected"].append("tests/gone.py::test"))),
    Case("no exit of the process", "EVID-20", "exit_code", drop("exit_code")),
    Case("an exit that is none", "EVID-20", "exit code", put("exit_code", to=4711)),
    Case("ended before it started", "EVID-20", "in this order", put("ended", to="2026-01-01T00:00:00Z")),
    Case("times without a zone", "EVID-20", "started", put("started", to="2026-11-30T18:00:00")),
    Case("counts that are switched off", "EVID-20", "refits", put("expected", "refits", to=0)),
    Case("value checks that are switched off", "EVID-20", "value_checks", put("expected", "value_checks", to=0)),
    Case("a field that nobody knows", "EVID-20", "trust_me", put("trust_me", to=True)),
    Case("a run of another schema", "EVID-20", "schema", put("schema", to=2)),
    Case("no run.json", "EVID-20", "run.json is missing", gone(told.NAME)),
    Case("no log", "EVID-20", "run.log is missing", gone(LOG)),
    Case("an empty log", "EVID-20", "empty", file(LOG, data=b"\n")),
    Case("no metrics", "EVID-20", "metrics.json is missing", gone(metrics.NAME)),
    Case("metrics that are none", "EVID-20", "no object", file(metrics.NAME, data=b"[]")),
    Case("a step twice", "EVID-20", "twice", file(metrics.NAME, data=b'{"train/loss": {"1": 0.5, "1": 0.4}}')),
    Case("no value checks", "EVID-20", "value_check.json is missing", gone(values.NAME)),
)  # fmt: skip

CASES: tuple[Case, ...] = (*_MARKERS, *_FATAL, *_COUNTS, *_VALUES, *_PROVENANCE)
