"""Defects of NeMo-RL's refit stack (D01 to D120) and lenient fakes that have no mutant or plant here, and why.

An entry leaves this list when the part that it breaks comes. A test says when one is missing or stale. Public reports
have a list of their own, with the rules that judge them: `reports.py`.
"""

from __future__ import annotations

NO_PART = "nothing here has it yet: {} (issue {})"
GPU = "only a GPU shows it: {} (issue 8)"
PACKAGING = "packaging or CI of another project: {}"
EQUAL = "no client here can do it: {}"


def _all(ids: str, reason: str, *what: object) -> dict[str, str]:
    return dict.fromkeys(ids.split(), reason.format(*what))


DEFECTS: dict[str, str] = {
    **_all("D19", NO_PART, "a transport whose rebinding cannot be repeated", 4),
    **_all("D20 D21 D22 D23", NO_PART, "several algorithms, topologies and set-ups of one trainer", 6),
    **_all("D26 D27", PACKAGING, "interfaces and commit messages"),
    **_all("D30", EQUAL, "collectives of the trainer kit end by their deadline, the first error is raised either way"),
    **_all("D33 D34", EQUAL, "the trainer kit loses no payload and gives text only"),
    **_all("D39", NO_PART, "pipeline stages", 4),
    **_all("D40", GPU, "the export registry refuses an open by its own process, as CUDA does"),
    **_all("D45 D46", EQUAL, "the trainer kit makes the group: no default group is initialised, no torch compared"),
    **_all("D51 D52", NO_PART, "actors and node ranks of a fleet", 6),
    **_all("D57 D58", NO_PART, "driver and worker modules", 6),
    **_all("D60 D61 D62", NO_PART, "Ray actors", 6),
    **_all("D66", EQUAL, "a round of the aligner gives something out or ends it; a property with a time limit says so"),
    **_all("D71 D74 D75 D76 D79", PACKAGING, "schemas, scripts and environments"),
    **_all("D81 D82 D83 D84 D85 D86 D87 D88 D89 D90 D91 D92 D93 D94 D95", NO_PART, "a monitor and recovery", 6),
    **_all("D96", EQUAL, "the models have no experts; that no router is covered is a test of the client's own"),
    **_all("D98 D105", NO_PART, "a conversion of checkpoints ahead of time", 4),
    **_all("D100 D101", PACKAGING, "tests that never ran"),
    **_all("D102", PACKAGING, "imports between stacked branches"),
    **_all("D115 D117", PACKAGING, "schemas and launch arguments"),
    **_all("D113 D114", NO_PART, "rollout environments", 6),
    **_all("D118", GPU, "kernel layouts of MoE weights"),
}

LENIENT: dict[str, str] = {}
