"""Whether a bundle is whole and agrees with itself. Fail-closed: what is unknown, missing or doubtful is a line."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.errors import MalformedHistory
from harness.history import History
from harness.history_files import read_history
from harness.words import quoted
from real_runs.evidence.environment import NAME as ENVIRONMENT
from real_runs.evidence.files import BadBundle, Files, wrong_sums
from real_runs.evidence.manifest import MANIFEST, RESULTS, derived, loaded, read_manifest
from real_runs.evidence.refit_markers import wrong_logs, wrong_markers

Key = tuple[str, str, str]
"""(scenario, engine version, system under test) of a history and of a unit."""


def problems(files: Files) -> list[str]:
    """Everything that is wrong, one line each; empty for a good bundle."""
    sums = wrong_sums(files)
    if sums:
        return sums
    try:
        return [*_manifest(files), *_files(files), *_histories(files), *_logs(files), *_results(files)]
    except BadBundle as error:
        return [str(error)]


def histories_of(files: Files) -> dict[str, History]:
    """File name -> history. BadBundle for one that cannot be read."""
    out: dict[str, History] = {}
    with tempfile.TemporaryDirectory(prefix="refitcheck-bundle-") as folder:
        path = Path(folder) / "history.jsonl"
        for name in sorted(files):
            if name.startswith("histories/"):
                path.write_bytes(files[name])
                try:
                    out[name] = read_history(path)
                except MalformedHistory as error:
                    raise BadBundle(str(error).replace(str(path), name)) from None
    return out


def key_of(history: History) -> Key:
    """What its header says that it is of."""
    meta = history.header.meta
    return str(meta.get("scenario", "")), history.header.engine_version, str(meta.get("sut", ""))


def units(files: Files) -> list[Mapping[str, Any]]:
    """The units of results.json. BadBundle where they are none."""
    found = loaded(files, RESULTS).get("units")
    needed = {"scenario": str, "engine": str, "sut": str, "tp": int, "runs": int, "error": str, "hung": str}
    if not isinstance(found, list) or not all(isinstance(unit, dict) for unit in found):
        raise BadBundle(f"{RESULTS}: no list of units")
    for unit in found:
        for name, kind in needed.items():
            if not isinstance(unit.get(name), kind):
                raise BadBundle(f"{RESULTS}: a unit's {name} is {quoted(unit.get(name), 60)}")
    return found


def _manifest(files: Files) -> Iterator[str]:
    said = read_manifest(files)
    known = loaded(files, ENVIRONMENT).get("refitcheck", {})
    told = {"revision": said.revision, "dirty": said.dirty}
    if known.get("revision") and (said.revision_of != "run" or told != {name: known.get(name) for name in told}):
        yield f"{MANIFEST}: the run said that it was revision {known['revision']}, dirty {known.get('dirty')}"
    if said.revision_of not in ("run", "sources", "") or bool(said.revision) != bool(said.revision_of):
        yield f"{MANIFEST}: revision {said.revision} of {said.revision_of!r}"
    if derived(files, revision=said.revision, dirty=said.dirty, revision_of=said.revision_of) != said:
        yield f"{MANIFEST} is not what {RESULTS} and {ENVIRONMENT} say"
    if not said.engines or not said.sources or not said.argv or not said.started:
        yield f"{MANIFEST}: engines, sources, argv and the time of start may not be empty"
    if said.servers < 1:
        yield f"{ENVIRONMENT}: no server was started"


def _files(files: Files) -> Iterator[str]:
    top = {MANIFEST, RESULTS, ENVIRONMENT, "SHA256SUMS", "summary.md", "junit.xml"}
    for name in sorted(files):
        if name not in top and not name.startswith(("histories/", "logs/")):
            yield f"{name} is no file of a bundle"


def _histories(files: Files) -> Iterator[str]:
    settings = loaded(files, RESULTS)["settings"]
    found: Counter[Key] = Counter()
    histories = histories_of(files)
    yield from wrong_logs(files, histories)
    for name, history in histories.items():
        yield from wrong_markers(name, history)
        header = history.header
        said = (header.lane, header.tp, header.seed, header.clock, header.meta.get("policy"))
        run = tuple(settings.get(field) for field in ("lane", "tp", "seed", "clock", "policy"))
        if said != run or header.meta.get("plant", "") != settings.get("plant"):
            yield f"{name} is of another run: lane, tp, seed, clock, policy {quoted(said)}, not {quoted(run)}"
        found[key_of(history)] += 1
    wanted: Counter[Key] = Counter()
    for unit in units(files):
        wanted[unit["scenario"], unit["engine"], unit["sut"]] += unit["runs"]
    for key in sorted(found.keys() | wanted.keys()):
        if found[key] != wanted[key]:
            yield f"{' '.join(filter(None, key))}: {found[key]} histories, {RESULTS} says {wanted[key]}"


def _logs(files: Files) -> Iterator[str]:
    servers = loaded(files, ENVIRONMENT).get("servers")
    named = [str(server.get("log", "")).removesuffix(".xz") for server in servers or [] if isinstance(server, dict)]
    there = {name for name in files if name.startswith("logs/")}
    for name, count in sorted(Counter(named).items()):
        if name not in there or count > 1:
            yield f"{ENVIRONMENT}: a server's log {quoted(name, 80)} is missing or another's too"
    for name in sorted(there - set(named)):
        yield f"{name} is no server's log"


def _results(files: Files) -> Iterator[str]:
    results = loaded(files, RESULTS)
    found = results.get("results")
    if not isinstance(found, list) or not found or not all(isinstance(entry, dict) for entry in found):
        yield f"{RESULTS}: no results"
        return
    counts = Counter(str(entry.get("status")) for entry in found)
    told = {name: count for name, count in results["counts"].items() if count}
    if told != dict(counts):
        yield f"{RESULTS}: counts {quoted(told)}, the results are {quoted(dict(counts))}"
    keys = Counter((entry.get("rule"), entry.get("engine"), entry.get("sut")) for entry in found)
    twice = sorted(str(key[0]) for key, count in keys.items() if count > 1)
    if twice:
        yield f"{RESULTS}: two results of {', '.join(twice)}"
    if results["settings"].get("kind") != "sglang":
        yield f"{RESULTS}: kind {quoted(results['settings'].get('kind'), 40)} is no real engine"
    worst = 3 if counts["error"] else 1 if counts["violated"] else None
    if worst is not None and results["exit_code"] != worst:
        said = f"{counts['error']} errors, {counts['violated']} violated"
        yield f"{RESULTS}: exit code {results['exit_code']} beside {said}"
