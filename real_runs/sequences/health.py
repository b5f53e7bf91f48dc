"""Health in all states (entrypoints/http_server.py:705-721@0.5.23)."""

from real_runs.sequence import BEGIN, CONTINUE, END, Sequence, get, join, long_generation, pause, sleep

SEQUENCES = [
    Sequence(
        name="health/idle",
        about="each takes a second: it polls once a second",
        steps=[get("health"), get("health_generate"), get("ping")],
    ),
    Sequence(
        name="health/running",
        about="while a request runs",
        steps=[long_generation("a"), sleep(0.1), get("health"), join("a")],
    ),
    Sequence(name="health/session", about="in an open session", versions=">=0.5.21", steps=[BEGIN, get("health"), END]),
    *[
        Sequence(
            name=f"health/paused-{mode}",
            about=f"paused ({mode}): 503 after 20 s, and well again after continue",
            tp=[1],
            steps=[pause(mode), get("health"), CONTINUE, get("health")],
        )
        for mode in ("abort", "retract", "in_place")
    ],
    Sequence(
        name="health/ready-after-503",
        about="a 503 marks the server unhealthy until the next good health",
        versions=">=0.5.20",
        tp=[1],
        steps=[
            pause("in_place"),
            get("health_generate"),
            CONTINUE,
            get("ready"),
            get("ping"),
            get("health"),
            get("ready"),
            get("ping"),
        ],
    ),
]
