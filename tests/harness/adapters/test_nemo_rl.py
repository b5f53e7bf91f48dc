"""Defects of NeMo-RL that were reproduced on its public commits: found before their fix, gone after it.

REFITCHECK_NEMO_RL names a folder with one checkout for each commit (COMMIT/nemo_rl). Nothing here was written for a
commit: each row names a scenario and a rule of the suites.
"""

import os
from pathlib import Path
from typing import NamedTuple

import pytest

from harness.frameworks import running
from harness.runner import Runner
from harness.settings import Settings
from harness.units import Unit

VARIABLE = "REFITCHECK_NEMO_RL"
PARENT, REVIEWED, HEAD = "1bbff6520", "cd46d6cd9", "f4d36efa5"
WATCHED, MENDED, STOPPED = "644c80de7", "6e5105502", "4ba11c5a6"
NIXL = "21d5576f6"


class Row(NamedTuple):
    """`before` has the defect: the rule is violated, with `actual` in its words; for rule "" the refit that nothing was
    done to raises that. `after` has not."""

    defect: str
    scenario: str
    rule: str
    before: tuple[str, ...]
    after: tuple[str, ...] = ()
    actual: str = ""
    sut: str = "nemo-rl"
    options: tuple[tuple[str, str], ...] = ()


FT = (("fault_tolerance", "true"),)
FSDP2 = (("trainer", "fsdp2"),)
BEHIND = (("asyncio_actor", "off"),)
FAULTS = "refit/faults"
COLL = running.OVER_A_GROUP
ROWS = (
    Row("D01 begin", f"{FAULTS}/begin-fails", "PAUSE-1", (PARENT,), (REVIEWED, HEAD), "left paused"),
    Row("D01 flush", f"{FAULTS}/never-idle", "CACHE-1", (PARENT, REVIEWED), (HEAD,), "a bucket"),
    Row("D02", f"{FAULTS}/end-is-lost", "PAUSE-1", (PARENT,), (REVIEWED, HEAD), "left paused"),
    Row("D04", f"{FAULTS}/one-of-two-is-not-paused", "PAUSE-1", (PARENT, REVIEWED, HEAD), (), "left paused"),
    Row("D05", "refit/memory/the-onload-fails", "MEM-71", (PARENT, REVIEWED, HEAD)),
    Row(
        "D24",
        COLL,
        "",
        (HEAD,),
        (),
        "only for the Megatron policy",
        sut="nemo-rl-nccl",
        options=(("trainer", "fsdp2"),),
    ),
    Row("D28", "refit/fleet/a-rank-without-an-engine", "EXPLORE-8", (PARENT, REVIEWED), (HEAD,)),
    Row("D37", f"{FAULTS}/success-false-with-200", "ERR-1", (PARENT, REVIEWED, HEAD), (), "unknown err"),
    Row("D42", "refit/coll/strided-views", "COLL-10", (PARENT, REVIEWED), (HEAD,), sut="nemo-rl-nccl"),
    Row("D09", running.SCENARIO, "SESS-1", (NIXL,), sut="nemo-rl-nixl", options=BEHIND),
    Row("D12", "refit/memory/a-refit-fails-on-released-memory", "MEM-71", (NIXL,), sut="nemo-rl-nixl", options=BEHIND),
    Row("D60", running.SCENARIO, "", (NIXL,), (), "asyncio.run() cannot be called", sut="nemo-rl-nixl"),
    Row("D63", "refit/state/nothing-and-less-than-all", "NAME-2", (NIXL,), sut="nemo-rl-nixl", options=BEHIND),
    Row("D81", running.SCENARIO, "NAME-71", (WATCHED,), (MENDED, STOPPED), "never sent", options=FT),
)
CASES = [(row, commit, commit in row.before) for row in ROWS for commit in (*row.before, *row.after)]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("row", "commit", "there"), CASES, ids=[f"{row.defect.replace(' ', '-')}-{commit}" for row, commit, _ in CASES]
)
def test_a_defect_is_found_before_its_fix_and_gone_after_it(row, commit, there):
    folder = os.environ.get(VARIABLE, "")
    if not folder:
        pytest.skip(f"{VARIABLE} names no folder with a checkout of NeMo-RL for each commit")
    options = {**dict(row.options), "checkout": str(Path(folder) / commit)}
    sut = running.resolved(row.sut)
    settings = Settings(
        lane="http",
        suts=(sut,),
        side="refit",
        scenarios=(row.scenario,),
        exploration="off",
        hang_timeout=20.0,
        sut_options=options,
    )
    runner = Runner(settings)
    try:
        report = runner.execute(Unit(row.scenario, "0.5.23", runner.tp, sut))
    finally:
        runner.close()
    assert report.error == ""
    finding = report.findings.get(row.rule)
    status = finding.verdict.status if finding is not None else ""
    told = f"{status} {finding.verdict.actual if finding is not None else ''}".strip()
    print(row.defect, commit, row.rule, told, report.raised, report.hung, sep=" | ")
    found = (status == "violated" or not row.rule) and row.actual in (told if row.rule else report.raised)
    assert found is there, told
