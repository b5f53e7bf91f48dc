from __future__ import annotations

from conformance.rules.ver import DEPRECATED
from tests.conformance.judged import breaks, holds, leaves_open
from tests.conformance.tape import Tape


def update(tape: Tape, version: str | None = None, ok: bool = True, origin: str = "probe") -> None:
    request = {} if version is None else {"weight_version": version}
    told = f"Success Weight version updated to {version}." if version else "Success"
    tape.message("update_weights_from_tensor", 200 if ok else 400, told if ok else "no", request, origin=origin)


def info(tape: Tape, version: str) -> None:
    tape.call("model_info", {}, body={"weight_version": version}, method="GET")


def labelled(shown: str, told: str | None = None) -> Tape:
    tape = Tape()
    tape.call("begin_weight_update")
    tape.message(
        "update_weights_from_tensor", 200, told or "Success Weight version updated to v1.", {"weight_version": "v1"}
    )
    info(tape, shown)
    return tape


@holds("VER-51")
def label_at_once() -> Tape:
    return labelled("v1")


@breaks("VER-51", "weight_version 'default'")
def label_only_at_end() -> Tape:
    return labelled("default")


@breaks("VER-51", "Success")
def label_not_told() -> Tape:
    return labelled("v1", "Success")


def quiet_updates(after: str, *, ok: bool = True) -> Tape:
    tape = Tape()
    info(tape, "v1")
    tape.call("begin_weight_update")
    update(tape, None if ok else "v2", ok)
    info(tape, after)
    return tape


@holds("VER-52")
def unlabelled_update_keeps_it() -> Tape:
    return quiet_updates("v1")


@breaks("VER-52", "'v2'")
def refused_update_moves_it() -> Tape:
    return quiet_updates("v2", ok=False)


@leaves_open("VER-52")
def nothing_in_between() -> Tape:
    tape = Tape()
    info(tape, "v1")
    info(tape, "v2")
    return tape


def publish(finish_default: str, finish_kept: str) -> Tape:
    tape = Tape()
    for number, (request, finish) in enumerate((({}, finish_default), ({"abort_all_requests": False}, finish_kept))):
        version = f"v{number}"
        running = tape.start("generate", {"input_ids": [1]}, origin="traffic")
        tape.call(
            "update_weight_version", {"new_version": version, **request}, body={"success": True, "new_version": version}
        )
        tape.finish(running, body=tape.answer([1], finish=finish))
    return tape


@holds("VER-53")
def aborts_by_default() -> Tape:
    return publish("abort", "length")


@breaks("VER-53", "'length'")
def aborts_never() -> Tape:
    return publish("length", "length")


@breaks("VER-53", "'abort'")
def aborts_always() -> Tape:
    return publish("abort", "abort")


def spanned(*spans: tuple[str, int, int], label: str = "v2") -> Tape:
    tape = Tape()
    listed = [{"version": v, "start": a, "end": b} for v, a, b in spans]
    tape.gen([1, 2, 3], spans=listed, label=label)
    return tape


@holds("VER-54")
def contiguous_spans() -> Tape:
    return spanned(("v1", 0, 1), ("v2", 1, 3))


@leaves_open("VER-54")
def one_span() -> Tape:
    return spanned(("v2", 0, 3))


@breaks("VER-54")
def spans_with_a_gap() -> Tape:
    return spanned(("v1", 0, 1), ("v2", 2, 3))


@breaks("VER-54")
def spans_of_another_label() -> Tape:
    return spanned(("v1", 0, 1), ("v2", 1, 3), label="v1")


def crossing(label: str, spans: list[dict[str, object]] | None = None) -> Tape:
    tape = Tape("0.5.18")
    running = tape.start("generate", {"input_ids": [1]}, origin="traffic")
    update(tape, "v2")
    tape.finish(running, body=tape.answer([1], label=label, spans=spans))
    return tape


@holds("VER-55")
def label_at_the_end() -> Tape:
    return crossing("v2")


def published(label: str, *, first: bool, status: int | None = 200) -> Tape:
    """Beside an update, before it or after it, a version is published."""
    tape = Tape("0.5.18")
    running = tape.start("generate", {"input_ids": [1]}, origin="traffic")
    if not first:
        update(tape, "v2")
    error = "" if status else "timeout"
    tape.call("update_weight_version", {"new_version": "p1", "abort_all_requests": False}, status, error=error)
    if first:
        update(tape, "v2")
    tape.finish(running, body=tape.answer([1], label=label))
    return tape


@leaves_open("VER-55")
def published_after_the_update() -> Tape:
    return published("p1", first=False)


@leaves_open("VER-55")
def published_without_an_answer() -> Tape:
    return published("p1", first=False, status=None)


@breaks("VER-55", "'p1'")
def published_before_the_update() -> Tape:
    return published("p1", first=True)


@breaks("VER-55", "'p1'")
def a_publish_is_refused() -> Tape:
    return published("p1", first=False, status=400)


@breaks("VER-55", "'default'")
def label_of_the_beginning() -> Tape:
    return crossing("default")


@breaks("VER-55", "version")
def spans_too_early() -> Tape:
    return crossing("v2", [{"version": "v2", "start": 0, "end": 1}])


def fresh(label: str) -> Tape:
    tape = Tape()
    update(tape, "v1")
    tape.gen([1], label=label)
    return tape


@holds("VER-56")
def fresh_request_is_labelled() -> Tape:
    return fresh("v1")


@breaks("VER-56", "'default'")
def fresh_request_is_not() -> Tape:
    return fresh("default")


def old_route(body: object) -> Tape:
    tape = Tape()
    tape.call("get_weight_version", {}, 404, body, method="GET")
    return tape


@holds("VER-57")
@breaks("VER-58", DEPRECATED)
def deprecated() -> Tape:
    return old_route({"message": DEPRECATED})


@holds("VER-58")
@breaks("VER-57", "Not Found")
def gone() -> Tape:
    return old_route({"detail": "Not Found"})


def published_while_busy(op: str, **request: object) -> Tape:
    tape = Tape()
    running = tape.start("generate", {"input_ids": [1]}, origin="traffic")
    with tape.refit():
        tape.sut(op, request)
    tape.finish(running, body=tape.answer([1]))
    return tape


@holds("VER-1")
def label_on_the_bucket() -> Tape:
    return published_while_busy("update_weights_from_tensor", weight_version="v1")


@breaks("VER-1", "abort_all_requests")
def label_that_aborts() -> Tape:
    return published_while_busy("update_weight_version", new_version="v1")


@leaves_open("VER-1", "VER-4")
def nobody_to_abort() -> Tape:
    tape = Tape()
    with tape.refit():
        tape.bucket(request={"weight_version": "v1"})
    return tape


def rolled_out(version: str) -> Tape:
    tape = Tape()
    tape.expect(0, [1, 1], (5,))
    tape.expect(1, [2, 2], (5,))
    with tape.refit(version="v1", seed=1):
        tape.bucket()
    tape.fact("rollout", prompt=[5], tokens=[1, 1], version=version)
    return tape


@holds("VER-3")
def honest_rollout() -> Tape:
    return rolled_out("default")


@breaks("VER-3", "labelled 'v1'")
def rollout_with_the_newer_label() -> Tape:
    return rolled_out("v1")


def after_refit(label: str, tokens: list[int], *, error: str = "") -> Tape:
    tape = Tape()
    tape.expect(0, [1, 1], (5,))
    tape.expect(1, [2, 2], (5,))
    with tape.refit(version="v1", seed=1, error=error):
        tape.bucket(request={"weight_version": "v1"}, status=400 if error else 200)
    tape.gen(tokens, prompt=(5,), label=label, origin="traffic")
    return tape


@holds("VER-4")
def label_and_content_agree() -> Tape:
    return after_refit("v1", [2, 2])


@breaks("VER-4", "labelled 'v1'")
def label_without_content() -> Tape:
    return after_refit("v1", [1, 1], error="bucket failed")


@breaks("VER-4", "after refit 1 failed")
def label_after_a_part() -> Tape:
    tape = Tape()
    with tape.refit(version="v1", error="second bucket failed"):
        tape.bucket(request={"weight_version": "v1"})
        tape.bucket(request={"weight_version": "v1"}, status=400)
    info(tape, "v1")
    return tape


def versions(*refits: tuple[str, ...]) -> Tape:
    tape = Tape()
    for number, labels in enumerate(refits):
        with tape.refit(number, f"policy{number}"):
            for label in labels:
                tape.bucket(request={"weight_version": label})
    return tape


@holds("VER-71")
def a_version_per_refit() -> Tape:
    return versions(("1", "1"), ("2",))


@breaks("VER-71", "['1', '2']")
def a_version_per_post() -> Tape:
    return versions(("1", "2"), ("3",))


@breaks("VER-71", "again")
def the_same_version_for_ever() -> Tape:
    return versions(("1",), ("1",))


@leaves_open("VER-71")
def one_refit_only() -> Tape:
    return versions(("1", "1"))


REFUSED = "Weights were updated, but the cache was not flushed because requests are still running or queued. "


def flush_refused(*, shown: str = "v1", label: str = "v2", status: int = 400) -> Tape:
    tape = Tape()
    frozen = tape.start("generate", {"input_ids": [1]}, origin="traffic")
    tape.message("update_weights_from_tensor", status, REFUSED, {"weight_version": "v2"})
    info(tape, shown)
    tape.finish(frozen, body=tape.answer([1], label=label))
    return tape


holds("VER-59")(lambda: flush_refused())
breaks("VER-59", "weight_version 'v2'")(lambda: flush_refused(shown="v2"))
breaks("VER-59", "'v1'")(lambda: flush_refused(label="v1"))
leaves_open("VER-59")(lambda: flush_refused(status=200))
