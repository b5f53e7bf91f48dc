"""weights_checker, as a CPU server answers it and with Tensor.cuda as the identity (utils/weight_checker.py@0.5.23)."""

from typing import Any

from real_runs.recipes import Entry
from real_runs.sequence import BEGIN, END, Sequence, Step, call, get, update, whole


def check(action: str | None, **more: Any) -> Step:
    """One weights_checker call."""
    return call("weights_checker", more if action is None else {"action": action, **more})


_COMMON = [
    (
        "checker/checksum",
        "the checksums of all ranks",
        [check("checksum"), call("weights_checker"), get("weights_checker"), check(None)],
    ),
    ("checker/bogus", "an unknown action", [check("bogus"), check(""), check("checksum", bogus=1)]),
    (
        "checker/bad-body",
        "bodies of the wrong type",
        [call("weights_checker", {"action": 5}), call("weights_checker", raw="nonsense")],
    ),
    ("checker/compare-without-snapshot", "compare with nothing to compare to", [check("compare")]),
    (
        "checker/checksum-follows-weights",
        "the checksum changes with the weights and comes back with them",
        [
            check("checksum"),
            BEGIN,
            update(whole(1)),
            check("checksum"),
            update(Entry(seed=0, drop=["model.norm.weight"])),
            check("checksum"),
            update(whole(0)),
            END,
            check("checksum"),
        ],
    ),
    (
        "checker/skip-list",
        "checksum and compare with a skip list",
        [check("snapshot", skip_tensor_list=["norm"]), check("checksum", skip_tensor_list=["norm"])],
    ),
]
_ROUND = [
    ("checker/same", "snapshot, then compare the same", [check("snapshot"), check("compare"), check("compare")]),
    (
        "checker/round",
        "snapshot, reset, compare fails; a whole reload makes it right",
        [
            check("snapshot"),
            check("reset_tensors"),
            check("compare"),
            BEGIN,
            update(whole(0)),
            END,
            check("compare"),
        ],
    ),
    (
        "checker/left-out",
        "a tensor left out of the reload is found, whichever it is",
        [
            step
            for pattern in (
                "model.norm.weight",
                "*layers.1.input_layernorm*",
                "*layers.0.self_attn.k_proj*",
                "lm_head.weight",
            )
            for step in (
                check("snapshot"),
                check("reset_tensors"),
                BEGIN,
                update(Entry(seed=0, drop=[pattern])),
                END,
                check("compare"),
                BEGIN,
                update(whole(0)),
                END,
                check("compare"),
            )
        ],
    ),
]

SEQUENCES = [
    *[Sequence(name=name, about=about, steps=steps) for name, about, steps in [*_COMMON, *_ROUND]],
    *[
        Sequence(
            name=f"{name}-cuda", about=f"{about} (Tensor.cuda as the identity)", steps=steps, flavour="checker_cuda"
        )
        for name, about, steps in [*_COMMON, *_ROUND]
    ],
]
