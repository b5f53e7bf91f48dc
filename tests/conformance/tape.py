"""Hand-made histories: one call a line, in the order of writing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fakes.trace import Complete, Fact, Header, Invoke, TraceWriter, Trainer
from harness.history import History

OK = {"success": True, "message": "Success"}


class Tape:
    def __init__(self, version: str = "0.5.23", tp: int = 1) -> None:
        self.writer = TraceWriter()
        self.writer.write(Header(engine_version=version, tp=tp, lane="hand", clock="virtual"))
        self.t = 0.0
        self.next = 0

    def start(
        self,
        op: str,
        request: Any = None,
        *,
        origin: str = "probe",
        engine: str = "e0",
        incarnation: int = 0,
        method: str = "POST",
        fault: str = "",
        dt: float = 0.01,
        bare: bool = False,
    ) -> int:
        """`bare`: a request without a body."""
        self.t += dt
        self.next += 1
        self.writer.write(
            Invoke(
                engine=engine,
                incarnation=incarnation,
                t=self.t,
                call=self.next,
                origin=origin,  # type: ignore[arg-type]
                op=op,
                method=method,
                request={} if request is None and not bare else request,
                fault=fault,
            )
        )
        return self.next

    def finish(
        self,
        call: int,
        status: int | None = 200,
        body: Any = ...,
        *,
        engine: str = "e0",
        incarnation: int = 0,
        error: str = "",
        dt: float = 0.01,
    ) -> None:
        self.t += dt
        if body is ...:
            body = OK if status == 200 else {"success": False, "message": "no"}
        if status is None:
            outcome, body = ("fail" if error.startswith("refused") else "indefinite"), None
        else:
            refused = isinstance(body, dict) and body.get("success") is False
            outcome = "ok" if status == 200 and not refused else "fail"
        self.writer.write(
            Complete(
                engine=engine,
                incarnation=incarnation,
                t=self.t,
                call=call,
                outcome=outcome,  # type: ignore[arg-type]
                status=status,
                body=body,
                error=error,
            )
        )

    def call(
        self,
        op: str,
        request: Any = None,
        status: int | None = 200,
        body: Any = ...,
        *,
        error: str = "",
        dt: float = 0.01,
        took: float = 0.01,
        **rest: Any,
    ) -> int:
        number = self.start(op, request, dt=dt, **rest)
        where = {k: rest[k] for k in ("engine", "incarnation") if k in rest}
        self.finish(number, status, body, error=error, dt=took, **where)
        return number

    def message(self, op: str, status: int, message: str, request: Any = None, **rest: Any) -> int:
        return self.call(op, request, status, {"success": status == 200, "message": message}, **rest)

    def sut(self, op: str, request: Any = None, status: int | None = 200, body: Any = ..., **rest: Any) -> int:
        return self.call(op, request, status, body, origin="sut", **rest)

    def bucket(self, payloads: tuple[str, ...] = ("p0",), status: int | None = 200, **rest: Any) -> int:
        request = {"serialized_named_tensors": list(payloads), "flush_cache": False, **rest.pop("request", {})}
        return self.sut("update_weights_from_tensor", request, status, **rest)

    @staticmethod
    def answer(
        tokens: list[int],
        logprobs: list[float] | None = None,
        cached: int = 0,
        label: str = "default",
        finish: str = "length",
        spans: list[dict[str, Any]] | None = None,
        retractions: int = 0,
    ) -> dict[str, Any]:
        logs = logprobs if logprobs is not None else [-1.0] * len(tokens)
        meta: dict[str, Any] = {
            "finish_reason": {"type": finish, "length": len(tokens)},
            "cached_tokens": cached,
            "weight_version": label,
            "num_retractions": retractions,
            "output_token_logprobs": [[lp, t, None] for lp, t in zip(logs, tokens, strict=True)],
        }
        if spans is not None:
            meta["weight_versions"] = spans
        return {"output_ids": tokens, "meta_info": meta}

    def gen(
        self,
        tokens: list[int],
        *,
        prompt: tuple[int, ...] = (1, 2, 3),
        origin: str = "probe",
        engine: str = "e0",
        status: int = 200,
        extra_key: str = "",
        **answer: Any,
    ) -> int:
        request: dict[str, Any] = {"input_ids": list(prompt)}
        if extra_key:
            request["extra_key"] = extra_key
        return self.call("generate", request, status, self.answer(tokens, **answer), origin=origin, engine=engine)

    def fact(self, name: str, source: str = "harness", engine: str = "e0", **data: Any) -> None:
        self.writer.write(Fact(engine=engine, t=self.t, source=source, name=name, data=data))  # type: ignore[arg-type]

    def trainer(self, name: str, rank: int = 0, **data: Any) -> None:
        self.writer.write(Trainer(t=self.t, rank=rank, name=name, data=data))

    def expect(
        self,
        seed: int,
        tokens: list[int],
        prompt: tuple[int, ...] = (1, 2, 3),
        label: str = "x",
        engine: str = "e0",
        logprobs: list[float] | None = None,
    ) -> None:
        self.fact(
            "expected",
            engine=engine,
            canary=-1,
            label=label,
            seed=seed,
            prompt=list(prompt),
            tokens=tokens,
            logprobs=logprobs if logprobs is not None else [-1.0] * len(tokens),
        )

    @contextmanager
    def refit(
        self,
        index: int = 1,
        version: str = "1",
        seed: int = 1,
        error: str = "",
        error_type: str = "RefitError",
        **data: Any,
    ) -> Iterator[None]:
        self.fact("refit", engine="", phase="start", index=index, version=version, seed=seed, **data)
        yield
        told = {"ok": not error, "error": error, "error_type": error_type if error else ""}
        self.fact("refit", engine="", phase="end", index=index, version=version, seed=seed, **told)

    @property
    def history(self) -> History:
        return History.from_records(self.writer.records)
