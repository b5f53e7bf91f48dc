"""A history read once for the invariants: incarnations, pauses, memory, tokens, and what the client gave up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from harness.history import Call, History, Note, Refit


@dataclass(frozen=True, order=True)
class Incarnation:
    """One life of one engine."""

    name: str
    number: int


@dataclass(frozen=True)
class TokenRead:
    """One token as the core of a fake told it. `label` is the weight version that a reader of the reply would see."""

    note: Note
    engine: str
    weights: str
    label: str
    torn: bool
    stale: bool
    released: str


def is_paused(note: Note) -> bool:
    """What a `pause` fact says."""
    return bool(note.get("state") == "paused")


class Reading:
    """Questions that several invariants ask of one history."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.refits: list[Refit] = history.refits()

    @cached_property
    def incarnations(self) -> list[Incarnation]:
        """Every life that took a call."""
        return list(dict.fromkeys(Incarnation(c.engine, c.incarnation) for c in self.history.calls()))

    def sut_calls(self, engine: Incarnation, *ops: str) -> list[Call]:
        """The client's calls to one life, of these operations or of all."""
        mine = self._by_life.get(engine, ())
        return [c for c in mine if not ops or c.op in ops]

    @cached_property
    def _by_life(self) -> dict[Incarnation, list[Call]]:
        lives: dict[Incarnation, list[Call]] = {}
        for call in self.history.calls(origin="sut"):
            lives.setdefault(Incarnation(call.engine, call.incarnation), []).append(call)
        return lives

    def calls_of_first_refit(self, *ops: str) -> dict[str, int]:
        """How often one engine got each operation in the first refit; operations that it never got are left out."""
        if not self.refits or not self.incarnations:
            return {}
        first = self.refits[0]
        counts = {
            op: sum(first.pos < c.pos < first.end_pos for c in self.sut_calls(self.incarnations[0], op)) for op in ops
        }
        return {op: n for op, n in counts.items() if n}

    # -- who is still there -----------------------------------------------------------------------------------------

    @cached_property
    def policy(self) -> str:
        """The policy that the run declared."""
        return str(self.history.header.meta.get("policy", ""))

    @cached_property
    def terminal(self) -> bool:
        """Whether the client will not go on: it said so, or that is its policy and its later refits sent nothing."""
        if self.history.trainer("TERMINAL"):
            return True
        failed = [r for r in self.refits if r.ok is False]
        return self.policy == "terminal" and bool(failed) and not self._controls(after=failed[0].end_pos)

    @cached_property
    def last_fault_pos(self) -> int:
        """Where the last call was that a fault met; -1 for none."""
        return max((c.pos for c in self.history.calls(origin="sut") if c.fault), default=-1)

    def given_up_at(self, engine: Incarnation) -> int | None:
        """Where the client gave this life up, if it did."""
        lost = self.history.trainer("ENGINE_LOST", engine=engine.name, incarnation=engine.number)
        said = [n.pos for n in (*lost, *self.history.trainer("TERMINAL"))]
        return min((*said, *self._silently_given_up(engine)), default=None)

    def _silently_given_up(self, engine: Incarnation) -> list[int]:
        """Under quarantine and terminal a client need not say it: it is enough that it never calls the engine again."""
        if self.policy not in ("quarantine", "terminal"):
            return []
        failed = [r.end_pos for r in self.refits if r.ok is False]
        return [pos for pos in failed if not self._controls(after=pos, engine=engine)][:1]

    def _controls(self, *, after: int, engine: Incarnation | None = None) -> list[Call]:
        """The client's calls after a place, its own generations aside."""
        calls = self.history.calls(origin="sut") if engine is None else self.sut_calls(engine)
        return [c for c in calls if c.pos > after and c.op != "generate"]

    def died_at(self, engine: Incarnation) -> int | None:
        """Where this life ended, as far as is known: told by the core, or a call that was refused."""
        told = [n.pos for n in self.history.facts("die", engine=engine.name) if n.incarnation == engine.number]
        calls = self.history.calls(engine=engine.name, incarnation=engine.number)
        killed = [c.pos for c in calls if ":die" in c.fault or c.error.startswith("refused")]
        return min((*told, *killed), default=None)

    def serving_at(self, pos: int) -> list[Incarnation]:
        """The latest life of each engine, unless it died or was given up before `pos`."""
        latest = {i.name: i for i in sorted(self.incarnations) if self._first_call(i) < pos}
        return [
            i
            for i in latest.values()
            if not any(at is not None and at < pos for at in (self.died_at(i), self.given_up_at(i)))
        ]

    def _first_call(self, engine: Incarnation) -> int:
        return self.history.calls(engine=engine.name, incarnation=engine.number)[0].pos

    @cached_property
    def replaced(self) -> frozenset[str]:
        """Names of engines that had more than one life."""
        names = [i.name for i in self.incarnations]
        return frozenset(name for name in names if names.count(name) > 1)

    # -- states -----------------------------------------------------------------------------------------------------

    def paused(self, engine: Incarnation, pos: int) -> bool:
        """Whether it is paused at `pos`: as the core says, else as the calls that were delivered say."""
        facts = [n for n in self._facts("pause", engine) if n.pos < pos]
        if facts:
            return is_paused(facts[-1])
        calls = self.sut_calls(engine, "pause_generation", "continue_generation")
        seen = [c for c in calls if c.delivered and c.pos < pos]
        return bool(seen) and seen[-1].op == "pause_generation"

    def held(self, engine: Incarnation, refit: Refit) -> bool:
        """Whether the client said during `refit` that it keeps this life paused until the next one."""
        notes = self.history.trainer("ENGINE_HELD", engine=engine.name, incarnation=engine.number)
        return any(refit.pos < n.pos < refit.end_pos for n in notes)

    def released(self, engine: Incarnation, pos: int) -> Sequence[str]:
        """The memory tags that are released at `pos`, as the core says."""
        facts = [n for n in self._facts("memory", engine) if n.pos < pos]
        return tuple(facts[-1].get("tags") or ()) if facts else ()

    def _facts(self, name: str, engine: Incarnation) -> list[Note]:
        notes = self.history.facts(name, source="core", engine=engine.name)
        return [n for n in notes if n.incarnation == engine.number]

    # -- tokens -----------------------------------------------------------------------------------------------------

    @cached_property
    def tokens(self) -> list[TokenRead]:
        """Every token that the core says was served."""
        labels: dict[Incarnation, str] = {}
        out: list[TokenRead] = []
        notes = [n for n in self.history.facts() if n.source == "core" and n.name in ("serve", "version")]
        for note in notes:
            life = Incarnation(note.engine, note.incarnation)
            if note.name == "version":
                if note.get("owner") == "tokenizer":
                    labels[life] = str(note.get("value"))
                continue
            weights = str(note.get("weights"))
            out.append(
                TokenRead(
                    note=note,
                    engine=note.engine,
                    weights=weights,
                    label=labels.get(life, "default"),
                    torn=bool(note.get("torn")),
                    stale=any(kv != weights for kv in note.get("kv") or ()),
                    released=", ".join(note.get("released") or ()),
                )
            )
        return out

    @cached_property
    def whole(self) -> frozenset[str]:
        """The states that this (fault-free) run served."""
        return frozenset(t.weights for t in self.tokens)

    @cached_property
    def labels(self) -> dict[str, str]:
        """Label to state, as this (fault-free) run served them."""
        return {t.label: t.weights for t in self.tokens}
