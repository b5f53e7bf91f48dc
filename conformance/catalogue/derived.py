"""Mutants of quantised refits: the client's pairs, and what the fake derives from them."""

from __future__ import annotations

from conformance.catalogue.engine import code
from conformance.catalogue.envelope import after_transfer, mutant
from harness.mutate.edits import Body, Drop, Insert, Replace, ReplaceExpr

PAIRS = "harness.reference.quantised"
UPDATER = "fakes.engine.weight_update:WeightUpdater"
KERNELS = "fakes.engine.quantised:Kernels"
NEMO = "mxfp8 refits of NeMo-RL"

MUTANTS = (
    mutant(
        "exponent-of-the-next-power",
        "DERIV-1",
        NEMO,
        "scales are biased by one too many",
        ReplaceExpr("exponent + 127", "exponent + 128"),
        target=f"{PAIRS}:pair",
    ),
    mutant(
        "halves-go-their-ways",
        "DERIV-2",
        f"{NEMO}, D103, D104",
        "scales come when every weight was sent",
        Insert("late = []"),
        Replace(
            "yield pair(name, tensor, plan.scheme)",
            "weight, scale = pair(name, tensor, plan.scheme)\nyield [weight]\nlate.append(scale)",
        ),
        Insert("for scale in late:\n    yield [scale]", before="if halves: ..."),
        target=f"{PAIRS}:groups",
    ),
    mutant(
        "ended-and-begun-once-more",
        "DERIV-3",
        "sgl-project/sglang#40587",
        "after the transfer a session is ended, another begun, and that ended too",
        after_transfer(
            'control.end(engines, deadline.giving_back("end"))\n'
            "control.begin(engines, deadline)\n"
            "for e in engines:\n    e.end_was_sent = False"
        ),
    ),
    mutant(
        "any-scheme-will-do",
        "DERIV-4",
        "NVIDIA-NeMo/RL#3612, D99",
        "a misspelt scheme is found out when weights are sent",
        Drop("if scheme not in SCHEMES: ..."),
        target=f"{PAIRS}:plan_of",
    ),
    mutant(
        "quantised-where-it-cannot-be",
        "DERIV-4",
        f"{NEMO}, D106",
        "an export that nothing quantises is sent as it is",
        Body("return False"),
        target="harness.reference.setup:_quantised",
    ),
    code(
        "end-forgets-the-layouts",
        "DERIV-51",
        "a session is closed and nothing is derived",
        f"{UPDATER}._end",
        Drop("if selector != 'draft': ..."),
    ),
    code(
        "every-load-derives",
        "DERIV-52",
        "an update from tensors derives at once",
        f"{UPDATER}._load",
        Insert("weights.finalise()", before="self._fact(...)"),
    ),
    code(
        "finalise-made-idempotent",
        "DERIV-53",
        "a session that brought nothing derives nothing",
        f"{UPDATER}._end",
        Insert("loaded = self.session.loaded", before="selector, self.session = ANY"),
        ReplaceExpr("selector != 'draft'", "loaded"),
    ),
    code(
        "only-what-was-loaded",
        "DERIV-54",
        "a session's end leaves modules alone whose scales are derived already",
        f"{KERNELS}.finalise",
        Insert(
            "done = self.__dict__.setdefault('_done', {})\nif done.get(name) == params[name].tobytes():\n    continue",
            before="scale = params[name + SCALE]",
        ),
        Insert("done[name] = params[name].tobytes()", after="self._touch(name)"),
    ),
    code(
        "folder-left-underived",
        "DERIV-55",
        "a disk update loads and derives nothing",
        f"{UPDATER}._disk",
        Drop("scheduler.ranks[0].finalise()"),
    ),
    code(
        "quantised-slots-take-their-own",
        "DERIV-56",
        "a weight of another dtype is refused, which kills",
        "fakes.engine.weights:RankWeights._load_quantised",
        Insert(
            "if tensor.dtype != self.params[device_name].dtype:\n    raise LoadError('ValueError', 'another dtype')"
        ),
    ),
    code(
        "never-final",
        "DERIV-57",
        "what is final takes an update, and keeps what it has",
        f"{KERNELS}.takes",
        Replace("raise LoadError('AttributeError', ANY)", "return False"),
        Replace("raise LoadError('AssertionError', ANY)", "return False"),
    ),
    code(
        "never-across",
        "DERIV-58",
        "transposing twice is as good as once",
        f"{KERNELS}.across",
        ReplaceExpr("self.finals % 2", "self.finals"),
    ),
    code(
        "quantised-for-good",
        "DERIV-59",
        "what is quantised is quantised again without a word",
        f"{KERNELS}._quantise",
        Drop("if self.finals > 1: ..."),
    ),
    code(
        "llama-as-the-others",
        "DERIV-60",
        "Llama's names of scales are left alone",
        "fakes.engine.loading:route",
        Drop("if kind == 'llama' and name.endswith('.weight_scale_inv'): ..."),
    ),
)
