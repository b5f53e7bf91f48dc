"""Checks of where everything came from: digests, snapshots, patches, packages, the recipe, the tests themselves."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from harness.errors import UsageError
from harness.words import quoted
from real_runs.evidence.training.run import TrainingRun
from real_runs.launching import recipes

_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_IMAGE = re.compile(r"[^\s@]+@sha256:([0-9a-f]{64})")
CLAIMS = {"revision": _COMMIT, "container": _COMMIT, "model": _COMMIT, "dataset": _COMMIT, "image": _IMAGE}
ENVIRONMENTS = ("trainer", "engine")
_NOBODY = {"", "default", "none", "null", "unknown"}
_EMPTY = {  # of nothing at all
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "da39a3ee5e6b4b0d3255bfef95601890afd80709",
    "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
}


def placeholder(digest: str) -> bool:
    """Whether a digest is one that somebody typed: few different digits, a short piece again and again, a count."""
    if digest in _EMPTY or len(set(digest)) < 6:
        return True
    if any(digest == (digest[:size] * len(digest))[: len(digest)] for size in range(1, 17)):
        return True
    return any(digest.startswith((run * 4)[:16]) for run in ("0123456789abcdef", "123456789abcdef0", "1234567890"))


def claims(run: TrainingRun) -> Iterator[str]:
    """What ran is what was to run: digests whole and real, the expectation from elsewhere than the finding."""
    told = run.told.claims
    for name in sorted(CLAIMS.keys() - told.keys()):
        yield f"run.json: nothing is claimed of {name}"
    for name, claim in sorted(told.items()):
        where = f"run.json: {quoted(name, 40)}"
        shape = CLAIMS.get(name)
        if shape is None:
            yield f"{where} is no claim that anybody knows"
            continue
        for word, value in (("expected", claim.expected), ("found", claim.found)):
            match = shape.fullmatch(value)
            if match is None:
                yield f"{where}: {word} {quoted(value, 80)} is no immutable revision"
            elif placeholder(match[match.re.groups]):
                yield f"{where}: {word} {quoted(value, 80)} is a placeholder"
        sources = {claim.expected_from.strip().lower(), claim.found_from.strip().lower()}
        if len(sources) < 2 or sources & _NOBODY:
            yield f"{where} is compared with its own default ({quoted(claim.expected_from or 'nobody', 60)})"
        if claim.expected != claim.found:
            yield f"{where} is {quoted(claim.found, 80)}, expected {quoted(claim.expected, 80)}"


def tests(run: TrainingRun) -> Iterator[str]:
    """The tests of the evidence were collected and ran; its drivers can be executed."""
    told = run.told.tests
    if not told.collected:
        yield "run.json: no test of the evidence is collected"
    missed = sorted(set(told.collected) - set(told.ran) - set(told.deselected))
    if missed:
        yield f"run.json: {len(missed)} collected tests did not run: {quoted(missed[0], 80)}"
    strange = sorted(set(told.ran) - set(told.collected))
    if strange:
        yield f"run.json: {quoted(strange[0], 80)} ran and is outside what is collected"
    if not told.drivers:
        yield "run.json: no driver is named"
    for driver, mode in sorted(told.drivers.items()):
        if not re.fullmatch(r"0?[0-7]{3}", mode) or not int(mode, 8) & 0o111:
            yield f"run.json: driver {quoted(driver, 80)} cannot be executed (mode {quoted(mode, 10)})"


def preflight(run: TrainingRun) -> Iterator[str]:
    """Everything that was looked at was good; what was not is told with the chain of its causes."""
    if not run.told.preflight:
        yield "run.json: no preflight"
    for one in run.told.preflight:
        where = f"preflight: {quoted(one.what, 40)}: {quoted(one.said, 120)}"
        if not one.ok:
            causes = " <- ".join(quoted(cause, 120) for cause in one.causes)
            yield f"{where} <- {causes}" if causes else f"{where}, without a cause"
        elif one.causes:
            yield f"{where}: said to be good beside an error: {quoted(one.causes[0], 120)}"


def snapshot(run: TrainingRun) -> Iterator[str]:
    """The sources were copied for this run, submodules are as the checkout wants them, nothing was converted before."""
    told = run.told
    trees = (told.snapshot.tree, told.snapshot.checkout_tree)
    if not all(_COMMIT.fullmatch(tree) and not placeholder(tree) for tree in trees):
        yield "run.json: the snapshot's trees are no git trees"
    elif trees[0] != trees[1]:
        yield f"run.json: the snapshot is tree {trees[0]}, the checkout is {trees[1]}: it never ran"
    if told.snapshot.taken < told.launched:
        yield "run.json: the snapshot was taken before the launch: one of an earlier run"
    paths = [one.path for one in told.submodules]
    for path in _twice(paths):
        yield f"run.json: submodule {quoted(path, 80)} is there twice"
    for one in told.submodules:
        where = f"run.json: submodule {quoted(one.path, 80)}"
        if not one.fetched:
            yield f"{where} could not be fetched"
        if not all(_COMMIT.fullmatch(commit) and not placeholder(commit) for commit in (one.wanted, one.found)):
            yield f"{where}: no commits"
        elif one.wanted != one.found:
            yield f"{where} has diverged: {one.found}, wanted {one.wanted}"
    if told.conversion is not None:
        if told.conversion.fingerprint != told.conversion.expected or not told.conversion.fingerprint:
            yield "run.json: the converted checkpoint is of another converter"
        if told.conversion.made < told.launched:
            yield "run.json: the conversion cache is one of an earlier run"


def patches(run: TrainingRun) -> Iterator[str]:
    """What was to be patched is, by its content."""
    files = [one.file for one in run.told.patches]
    for file in _twice(files):
        yield f"run.json: {quoted(file, 80)} is patched twice"
    for one in run.told.patches:
        where = f"run.json: {quoted(one.file, 80)}"
        sums = (one.stock, one.wanted, one.found)
        if not all(_SHA256.fullmatch(digest) and not placeholder(digest) for digest in sums):
            yield f"{where}: no digests"
        elif one.wanted == one.stock:
            yield f"{where}: patched and stock are the same"
        elif one.found != one.wanted:
            yield f"{where} is {'as shipped' if one.found == one.stock else 'something else'}: the patch is not in it"


def packages(run: TrainingRun) -> Iterator[str]:
    """Every environment has its own list of packages, and what its own lock asks for."""
    told = run.told.environments
    for name in ENVIRONMENTS:
        if name not in told:
            yield f"run.json: no packages of environment {name}"
    for name, one in sorted(told.items()):
        where = f"run.json: environment {quoted(name, 40)}"
        if not one.packages or not one.pins:
            yield f"{where}: no {'pins' if one.packages else 'packages'}"
        for package, version in sorted(one.pins.items()):
            found = one.packages.get(package)
            if found != version:
                yield f"{where} has {quoted(package, 60)} {quoted(found, 40)}, its lock says {quoted(version, 40)}"


def launch(run: TrainingRun) -> Iterator[str]:
    """The recipe is one that there is, with overrides that it declares, its topology and its budget."""
    told = run.told
    try:
        recipe = recipes.named(told.launch.recipe)
        recipes.settled(recipe, told.launch.overrides)
    except UsageError as error:
        yield f"run.json: {error}"
        return
    for name in ("world_size", "engines", "tp", "transfer"):
        said, value = getattr(told.expected, name), getattr(recipe, name)
        if said != value:
            yield f"run.json: {name} {said}, recipe {told.launch.recipe} has {value}"
    if told.launch.gpus != recipe.gpus:
        yield f"run.json: {told.launch.gpus} GPUs, recipe {told.launch.recipe} has {recipe.gpus}"
    if not 0 < told.launch.gpu_hours <= recipe.gpu_hours:
        yield f"run.json: {told.launch.gpu_hours:g} GPU hours, the cap is {recipe.gpu_hours:g}"
    stale = sorted(set(told.tests.deselected) - set(told.tests.collected))
    if stale:
        yield f"run.json: {quoted(stale[0], 80)} is deselected and does not exist"


def times(run: TrainingRun) -> Iterator[str]:
    """Launched, started, ended: in this order, with their zones, and the exit is recorded."""
    told = run.told
    if not told.launched <= told.started < told.ended:
        yield "run.json: not launched, started and ended in this order"
    if not -64 <= told.exit_code <= 255:
        yield f"run.json: exit code {told.exit_code} is none"


def _twice(names: list[str]) -> list[str]:
    return sorted(name for name, count in Counter(names).items() if count > 1)
