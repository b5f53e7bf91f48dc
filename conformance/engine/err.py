"""Requests that are refused at the door, and payloads that kill."""

from __future__ import annotations

import base64

from conformance.engine.steps import BUCKET, VALIDATED, VALIDATED_ON_12, ask, begin, end, push
from harness.bench import Bench
from harness.scenario import ScenarioList

scenarios = ScenarioList("engine/err")
# A pickle that names posix.system and would call it with "true": protocol 2, GLOBAL, one string, REDUCE.
FORBIDDEN = base64.b64encode(b"\x80\x02cposix\nsystem\nX\x04\x00\x00\x00true\x85R.").decode()
# The same, its result dropped, before a good empty list: whoever resolves the name has nothing else to trip over.
FORBIDDEN_AND_GOOD = base64.b64encode(b"\x80\x02cposix\nsystem\nX\x04\x00\x00\x00true\x85R0].").decode()
NO_PICKLE = base64.b64encode(b"hello world").decode()


@scenarios.add("ERR-52", "ERR-55", relation=VALIDATED)
def bodies_routes_and_methods(bench: Bench) -> None:
    """A missing field, an unknown route, a method that is not offered."""
    e = bench.e0
    begin(bench, e)
    e.call(BUCKET, {})
    end(bench, e)
    e.call("no_such_route", {})
    e.call("pause_generation", method="GET")


@scenarios.add("ERR-53", relation=VALIDATED, versions=">=0.5.17 || miles")
def not_base64(bench: Bench) -> None:
    """Refused at the door; the session that was open is still open."""
    e = bench.e0
    ask(bench, e, "base64")
    push(bench, e, "not-base64", payloads=["***"] * bench.tp)
    ask(bench, e, "base64")


@scenarios.add("ERR-54", "ERR-51", relation=VALIDATED_ON_12, versions="<0.5.17,!=miles", fatal=True)
def not_base64_kills(bench: Bench) -> None:
    """Decoded in the scheduler before 0.5.17."""
    _fatal(bench, "not-base64", ["***"])


@scenarios.add("ERR-56", "ERR-51", relation=VALIDATED, fatal=True)
def not_a_pickle(bench: Bench) -> None:
    """Good base64 of something else."""
    _fatal(bench, "not-a-pickle", [NO_PICKLE])


@scenarios.add("ERR-57", "ERR-51", relation=VALIDATED, fatal=True)
def a_forbidden_global(bench: Bench) -> None:
    """A pickle that would run a command."""
    _fatal(bench, "forbidden-global", [FORBIDDEN])


@scenarios.add("ERR-57", "ERR-51", relation=VALIDATED, fatal=True)
def a_forbidden_global_before_a_good_list(bench: Bench) -> None:
    """The rest of the pickle is what an engine takes."""
    e = bench.e0
    push(bench, e, "forbidden-global", payloads=[FORBIDDEN_AND_GOOD] * bench.tp, load_format=None)
    e.call("model_info", method="GET")


@scenarios.add("ERR-58", "ERR-51", relation=VALIDATED, fatal=True)
def an_unknown_load_format(bench: Bench) -> None:
    """load_format bogus, with a good list of tensors."""
    e = bench.e0
    payloads = bench.payloads(e, 1, None)
    push(bench, e, "unknown-load-format", payloads=payloads, load_format="bogus")
    e.call("model_info", method="GET")


@scenarios.add("ERR-59", "ERR-51", relation=VALIDATED, fatal=True)
def another_load_format(bench: Bench) -> None:
    """A list of tensors sent as a flattened bucket."""
    e = bench.e0
    push(bench, e, "wrong-load-format", payloads=bench.payloads(e, 1, None), load_format="flattened_bucket")
    e.call("model_info", method="GET")


@scenarios.add("ERR-60", "ERR-51", relation=VALIDATED, fatal=True)
def an_empty_payload_list(bench: Bench) -> None:
    """No payload for anybody."""
    _fatal(bench, "empty-list", [])


def _without_a_tokenizer(bench: Bench) -> None:
    e = bench.e0
    sampling = {"temperature": 0, "max_new_tokens": 4, "min_new_tokens": 2}
    e.call("generate", {"input_ids": list(bench.prompt("tokenizer")), "sampling_params": sampling}, origin="traffic")
    e.call("model_info", method="GET")


@scenarios.add("ERR-61", relation=VALIDATED, versions=">=0.5.17 || miles")
def a_request_that_needs_a_tokenizer(bench: Bench) -> None:
    """min_new_tokens, with --skip-tokenizer-init."""
    _without_a_tokenizer(bench)


@scenarios.add("ERR-62", "ERR-51", relation=VALIDATED_ON_12, versions="<0.5.17,!=miles", fatal=True)
def a_request_that_needs_a_tokenizer_kills(bench: Bench) -> None:
    """The same before 0.5.17."""
    _without_a_tokenizer(bench)


def _fatal(bench: Bench, kind: str, payloads: list[str]) -> None:
    e = bench.e0
    push(bench, e, kind, payloads=payloads * bench.tp)
    e.call("model_info", method="GET")
