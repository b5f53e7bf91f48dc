"""What a bundle says of itself: read off its own files, so that a check can read it off again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from real_runs.evidence.environment import NAME as ENVIRONMENT
from real_runs.evidence.environment import git_state
from real_runs.evidence.files import SUMS, BadBundle, Files, sums_of
from real_runs.validation import sources_hash

MANIFEST, RESULTS = "manifest.json", "results.json"
SCHEMA = 1


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The head of a bundle. `sources` is a hash of the judging code, `revision` the commit that has it.

    `revision_of`: "run" when the run itself told it, "sources" when a checkout with the very same sources did, "" when
    nobody knows. Versions and GPUs are null where the machine did not tell. `seconds` is real time.
    """

    schema: int
    refitcheck: str
    sources: str
    revision: str | None
    dirty: bool | None
    revision_of: str
    lane: str
    engines: list[str]
    tp: int
    side: str
    seed: int
    suts: list[str]
    argv: list[str]
    started: str
    seconds: float
    exit_code: int
    counts: dict[str, int]
    gpus: list[dict[str, str]]
    torch: str | None
    cuda: str | None
    nccl: str | None
    packages: int
    servers: int
    histories: int


def make_bundle(run: Path, *, checkout: Path | None = None) -> dict[str, bytes]:
    """The files of the bundle of a run's folder: results.json, environment.json, histories/ and logs/, unpacked.

    `checkout` may know the revision of a run that could not tell. BadBundle for what is missing or cannot be read.
    """
    from real_runs.evidence.unpacking import unpacked

    files = unpacked(run)
    for name in (RESULTS, ENVIRONMENT):
        if name not in files:
            raise BadBundle(
                f"{run}: {name} is missing; a run writes it with --report {run}/{RESULTS} and "
                f"--lane-option evidence={run}"
            )
    environment = loaded(files, ENVIRONMENT)
    known = environment.get("refitcheck", {})
    state, of = {"revision": known.get("revision"), "dirty": known.get("dirty")}, "run"
    if not state["revision"]:
        of = ""
        if known.get("sources") == sources_hash():
            state = git_state(checkout or Path(__file__).parent)
            of = "sources" if state["revision"] else ""
    manifest = derived(files, revision=state["revision"], dirty=state["dirty"], revision_of=of)
    files[MANIFEST] = msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"
    files[SUMS] = sums_of(files)
    return files


def read_manifest(files: Files) -> Manifest:
    """BadBundle where it is missing or none."""
    if MANIFEST not in files:
        raise BadBundle(f"{MANIFEST} is missing")
    try:
        found = msgspec.json.decode(files[MANIFEST], type=Manifest)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise BadBundle(f"{MANIFEST}: {error}") from None
    if found.schema != SCHEMA:
        raise BadBundle(f"{MANIFEST}: schema {found.schema}, this refitcheck reads schema {SCHEMA}")
    return found


def derived(files: Files, *, revision: str | None, dirty: bool | None, revision_of: str) -> Manifest:
    """The manifest that results and environment ask for. BadBundle where they do not say what it needs."""
    results, environment = loaded(files, RESULTS), loaded(files, ENVIRONMENT)
    try:
        settings, engine = results["settings"], environment["engine"]
        found = {
            "schema": SCHEMA,
            "refitcheck": results["refitcheck"],
            "sources": environment["refitcheck"]["sources"],
            "revision": revision,
            "dirty": dirty,
            "revision_of": revision_of,
            **{name: settings[name] for name in ("lane", "engines", "tp", "side", "seed", "suts")},
            "argv": environment["argv"],
            **{name: results[name] for name in ("started", "seconds", "exit_code", "counts")},
            "gpus": environment["machine"]["gpus"],
            **{name: engine.get(name) for name in ("torch", "cuda", "nccl")},
            "packages": len(engine["packages"] or []),
            "servers": len(environment["servers"]),
            "histories": sum(name.startswith("histories/") for name in files),
        }
        return msgspec.convert(found, Manifest)
    except (KeyError, TypeError, AttributeError, msgspec.ValidationError) as error:
        raise BadBundle(f"{RESULTS} and {ENVIRONMENT} say too little: {type(error).__name__} {error}") from None


def loaded(files: Files, name: str) -> Mapping[str, Any]:
    """One JSON file. BadBundle when it is none."""
    try:
        found = json.loads(files[name])
    except KeyError:
        raise BadBundle(f"{name} is missing") from None
    except (ValueError, RecursionError) as error:
        raise BadBundle(f"{name}: {error}") from None
    if not isinstance(found, dict):
        raise BadBundle(f"{name} is no JSON object")
    return found
