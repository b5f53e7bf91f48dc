"""What must be true after any fault, of any client: pure functions over a faulted history and the fault-free one.

They stand beside the rules. A rule is one promise judged alone, this is the list that a faulted run as a whole must
keep, so that a fault nobody wrote a rule for still shows. The fault-free run teaches what whole weights look like: the
states that it served, and the label of each.

An engine need not come back where the client said that it gave it up (ENGINE_LOST, TERMINAL), or where it died.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from harness.explore.reading import Incarnation, Reading
from harness.history import Call, History

BEGIN, END = "begin_weight_update", "end_weight_update"
UPDATES = (
    "update_weights_from_tensor",
    "update_weights_from_distributed",
    "update_weights_from_disk",
    "update_weights_from_ipc",
)
RETRIED = frozenset({"flush_cache", "continue_generation"})
SLACK_S = 1.0


@dataclass(frozen=True)
class Broken:
    """One invariant that a history breaks: its name, what was seen, and where."""

    invariant: str
    actual: str
    where: str

    def __str__(self) -> str:
        """`one_session: end sent twice (t=1.2 e0 POST /end_weight_update -> 400)`."""
        return f"{self.invariant}: {self.actual} ({self.where})"


Check = Callable[[Reading, Reading], Iterator[Broken]]


def check(history: History, recorded: History) -> list[Broken]:
    """Every invariant that `history` breaks; `recorded` is the fault-free run of the same scenario."""
    reading, clean = Reading(history), Reading(recorded)
    return [broken for one in CHECKS for broken in one(reading, clean)]


def one_session(r: Reading, clean: Reading) -> Iterator[Broken]:
    """A begin opens, one end closes: no end that nothing opened, no two for one begin, no begin inside."""
    # After an end that failed, by a refusal or by silence, the session may be open or closed. The client may find out
    # either way: end again before it begins, or begin and take "already open" for an answer.
    del clean
    for engine in r.incarnations:
        opened = False  # a session may be open: a begin was sent that was not refused, and no end said yes since
        known = False  # it is: that begin said yes, and no end was tried
        for call in r.sut_calls(engine, BEGIN, END):
            refused = call.outcome == "fail" and (call.status or 0) < 500
            if call.op == BEGIN:
                if known:
                    yield Broken("one_session", "begin inside an open session", str(call))
                opened, known = opened or not refused or _left_open(call), call.ok
            else:
                if not opened:
                    yield Broken("one_session", "an end that no begin precedes", str(call))
                opened, known = not call.ok and not _none_open(call), False


def _left_open(call: Call) -> bool:
    return "already open" in call.message


def _none_open(call: Call) -> bool:
    return "no weight-update session" in call.message


def complete_when_ok(r: Reading, clean: Reading) -> Iterator[Broken]:
    """A refit that reports success made the calls of a fault-free one, since its begin, on every engine it kept."""
    per_refit = clean.calls_of_first_refit(BEGIN, *UPDATES, END)
    for refit in r.refits:
        if not refit.ok:
            continue
        for engine in r.serving_at(refit.end_pos):
            calls = [c for c in r.sut_calls(engine) if refit.pos < c.pos < refit.end_pos and c.ok]
            since = max((c.pos for c in calls if c.op == BEGIN), default=refit.pos)
            for op, wanted in per_refit.items():
                found = sum(c.op == op and c.pos >= since for c in calls)
                if found != wanted:
                    actual = f"success with {found} of {wanted} /{op} on {engine.name}"
                    yield Broken("complete_when_ok", actual, f"refit {refit.version}")


def resumed(r: Reading, clean: Reading) -> Iterator[Broken]:
    """No engine stays paused for ever; after a failed refit, only one that may be torn, or is said to be held."""
    del clean
    for engine in r.serving_at(r.history.length):
        if r.paused(engine, r.history.length):
            yield Broken("resumed", f"{engine.name} is still paused", "the end of the history")
    for refit in r.refits:
        for engine in r.serving_at(refit.end_pos):
            touched = any(refit.pos < c.pos < refit.end_pos for c in r.sut_calls(engine, *UPDATES))
            if r.paused(engine, refit.end_pos) and not touched and not r.held(engine, refit):
                yield Broken("resumed", f"{engine.name} stays paused on whole weights", f"refit {refit.version}")


def memory_back(r: Reading, clean: Reading) -> Iterator[Broken]:
    """Every released tag is back before continue, and at the end."""
    del clean
    for engine in r.incarnations:
        for call in r.sut_calls(engine, "continue_generation"):
            released = r.released(engine, call.pos)
            if released and call.delivered:
                yield Broken("memory_back", f"continue while {', '.join(released)} is released", str(call))
    for engine in r.serving_at(r.history.length):
        released = r.released(engine, r.history.length)
        if released and not r.paused(engine, r.history.length):
            yield Broken("memory_back", f"{', '.join(released)} of {engine.name} never came back", "the end")


def tokens_are_honest(r: Reading, clean: Reading) -> Iterator[Broken]:
    """No token from torn weights, from a cache of other weights, from released memory, or under a false label."""
    whole, labels = clean.whole, clean.labels
    for token in r.tokens:
        where = str(token.note)
        if token.torn or (whole and token.weights not in whole):
            yield Broken("tokens_are_honest", f"a token of {token.engine} from torn weights", where)
        elif token.stale:
            yield Broken("tokens_are_honest", f"a token of {token.engine} from a cache of other weights", where)
        elif token.released:
            yield Broken("tokens_are_honest", f"a token of {token.engine} while {token.released} is released", where)
        elif token.label in labels and labels[token.label] != token.weights:
            yield Broken("tokens_are_honest", f"weights served as {token.label!r} are not those", where)


def failure_is_told(r: Reading, clean: Reading) -> Iterator[Broken]:
    """A call that failed for good fails its refit, and what the engine said is in the error."""
    del clean
    for refit in r.refits:
        calls = [c for c in r.history.calls(origin="sut") if refit.pos < c.pos < refit.end_pos]
        bad = [c for c in calls if c.outcome in ("fail", "indefinite") and not _settled(c, calls)]
        if bad and refit.ok:
            yield Broken("failure_is_told", f"refit {refit.version} succeeded", str(bad[0]))
        if bad and refit.ok is False and bad[0].status is not None and bad[0].status < 500:
            first = [c for c in bad if c.pos < bad[0].end_pos]
            if not any(_quoted(c, refit.error) for c in first):
                yield Broken("failure_is_told", f"the error hides it: {refit.error!r}", str(bad[0]))


def _settled(call: Call, calls: list[Call]) -> bool:
    """Asked again, and answered: what may be asked again. An open session that was found and closed is settled too, one
    that was to be closed and is not there once another was opened and ended, and a group that was to be destroyed and
    is not there."""
    if call.op == "destroy_weights_update_group" and "does not exist" in call.message:
        return True
    if call.op not in RETRIED and not _left_open(call) and not (call.op == END and _none_open(call)):
        return False
    return any(c.ok and c.op == call.op and c.engine == call.engine and c.pos > call.end_pos for c in calls)


def _quoted(call: Call, text: str) -> bool:
    """What the engine said is in the text; one that said nothing is named there, and how its call ended."""
    if call.status is None:
        return call.engine in text and call.error.partition(":")[0] in text
    return " ".join(call.message.split()) in " ".join(text.split())


def next_refit_succeeds(r: Reading, clean: Reading) -> Iterator[Broken]:
    """After a failed refit a fault-free one succeeds, unless the client is terminal or has no engine left."""
    del clean
    if r.terminal or any(r.last_fault_pos > refit.pos for refit in r.refits[1:]):
        return
    for refit in r.refits[1:]:
        if not refit.ok and (r.serving_at(refit.pos) or r.replaced):
            yield Broken("next_refit_succeeds", f"{refit.error_type}: {refit.error}", f"refit {refit.version}")


def in_time(r: Reading, clean: Reading) -> Iterator[Broken]:
    """No refit outlives its deadline, and none hangs for ever."""
    del clean
    for refit in r.refits:
        if refit.data.get("hung"):
            yield Broken("in_time", refit.error, f"refit {refit.version}")
            continue
        allowed = float(refit.data.get("deadline_s", float("inf")))
        if refit.ok is None or refit.end_t - refit.t > allowed + SLACK_S:
            yield Broken("in_time", f"{refit.end_t - refit.t:.1f} s of {allowed:g} s", f"refit {refit.version}")


def given_up_is_given_up(r: Reading, clean: Reading) -> Iterator[Broken]:
    """Nothing is sent to an engine that the client gave up."""
    del clean
    for engine in r.incarnations:
        gone = r.given_up_at(engine)
        late = [c for c in r.sut_calls(engine) if gone is not None and c.pos > gone and c.op != "generate"]
        if late:
            yield Broken("given_up_is_given_up", f"{engine.name} was given up", str(late[0]))


CHECKS: tuple[Check, ...] = (
    one_session,
    complete_when_ok,
    resumed,
    memory_back,
    tokens_are_honest,
    failure_is_told,
    next_refit_succeeds,
    in_time,
    given_up_is_given_up,
)

__all__ = ["CHECKS", "Broken", "Incarnation", "check"]
