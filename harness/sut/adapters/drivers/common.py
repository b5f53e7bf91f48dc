"""What several drivers need: tensors of a state, process groups, a ray without a cluster."""

from __future__ import annotations

import ast
import asyncio
import concurrent.futures
import inspect
import socket
import sys
import threading
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any, cast
from urllib.parse import urlsplit


def tensors(state: Mapping[str, Any]) -> dict[str, Any]:
    """HF names to torch tensors of their own memory; ml_dtypes.bfloat16 becomes torch.bfloat16."""
    return {name: tensor(array) for name, array in state.items()}


def tensor(array: Any) -> Any:
    """One of them."""
    import numpy as np
    import torch

    mine = array.copy(order="K")  # a strided view stays one: exports of trainers give them
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(mine.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(mine)


def exported(state: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The state tensor by tensor, each with a step that all trainer ranks take, as gathering its shards is one."""
    import torch
    import torch.distributed as dist

    for name, value in state.items():
        dist.all_reduce(torch.zeros(1))
        yield name, value


def over_gloo(module: Any, name: str = "init_process_group") -> None:
    """A framework's own helper that joins engines over NCCL joins them over gloo."""
    made = getattr(module, name)
    setattr(module, name, lambda **given: made(**{**given, "backend": "gloo"}))


def joins_over_gloo(kind: type) -> None:
    """The engines behind this actor class are asked to join over gloo, too."""
    made = kind.init_weights_update_group  # type: ignore[attr-defined]  # a class of the framework's
    names = list(inspect.signature(made).parameters)

    def init(self: Any, *args: Any, **kwargs: Any) -> Any:
        given = {**dict(zip(names[1:], args, strict=False)), **kwargs, "backend": "gloo"}
        return made(self, **given)

    kind.init_weights_update_group = init  # type: ignore[attr-defined]  # a class of the framework's


class Lock:
    """The lock actor of a trainer: a flag, asked for again and again."""

    def __init__(self) -> None:
        self.held = False

    def acquire(self) -> bool:
        """Whether it was free."""
        free, self.held = not self.held, True
        return free

    def release(self) -> None:
        """AssertionError when nobody holds it."""
        assert self.held, "the lock is not held"
        self.held = False


def init_process_group(about: Mapping[str, Any]) -> None:
    """The trainer's own default group, over gloo."""
    import torch.distributed as dist

    dist.init_process_group(
        "gloo", init_method=f"file://{about['folder']}/store", rank=about["rank"], world_size=about["ranks"]
    )


def host_port(url: str) -> tuple[str, int]:
    """Of an engine."""
    parts = urlsplit(url)
    return str(parts.hostname), int(parts.port or 80)


_undeclared: list[str] = []


def undeclared() -> list[str]:
    """`Interface.method` of what was called though the framework's own interface has no such method."""
    return list(_undeclared)


class Declared:
    """An object that a framework knows by an interface of its own: calls that this does not declare are kept."""

    def __init__(self, held: Any, interface: str, names: Collection[str]) -> None:
        self.__dict__.update(_held=held, _interface=interface, _names=frozenset(names))

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._held, name)
        if callable(found) and name not in self._names:
            call = f"{self._interface}.{name}"
            if call not in _undeclared:
                _undeclared.append(call)
        return found


def methods_of(source: str, interface: str) -> set[str]:
    """The methods of a class and of its bases in the same file, read and not imported. Empty where it is not there."""
    classes = {node.name: node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}
    found: set[str] = set()
    ahead = [interface]
    while ahead:
        node = classes.pop(ahead.pop(), None)
        if node is not None:
            found |= {part.name for part in node.body if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef))}
            ahead += [base.id for base in node.bases if isinstance(base, ast.Name)]
    return found


def free_port() -> int:
    """One that nobody listens on now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Ref:
    """What `.remote()` gives: the value, or the exception, of a call that was made in this process."""

    def __init__(self, future: concurrent.futures.Future[Any]) -> None:
        self._future = future

    def get(self, timeout: float | None = None) -> Any:
        """Wait for it."""
        return self._future.result(timeout)

    def __await__(self) -> Any:
        return asyncio.wrap_future(self._future).__await__()


class Handle:
    """An actor in this process: one call at a time, in its order, as ray's.

    As with ray, one async method makes an asyncio actor: every method of it runs on an event loop, so that one which
    starts a loop of its own fails (ray/_private/async_compat.py, has_async_methods).
    """

    def __init__(self, held: Any) -> None:
        self.__dict__["_held"] = held
        if has_async_methods(type(held)) and type(held) not in _THREADED:
            loop = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, daemon=True).start()
            self.__dict__["_submit"] = partial(_on_loop, loop)
        else:
            self.__dict__["_submit"] = concurrent.futures.ThreadPoolExecutor(1).submit

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        method = getattr(self._held, name)
        return SimpleNamespace(
            remote=lambda *args, **kwargs: Ref(self._submit(method, *args, **kwargs)), options=lambda **_: self
        )


_THREADED: set[type] = set()


def threaded(kind: type) -> None:
    """Actors of this class are threaded ones, whatever Ray's rule says: to see what lies behind that."""
    _THREADED.add(kind)


def has_async_methods(kind: type) -> bool:
    """Ray's rule: a coroutine function or an async generator function anywhere in the class."""
    found = [value for _, value in inspect.getmembers(kind, inspect.isfunction)]
    return any(inspect.iscoroutinefunction(value) or inspect.isasyncgenfunction(value) for value in found)


def _on_loop(loop: asyncio.AbstractEventLoop, method: Any, *args: Any, **kwargs: Any) -> concurrent.futures.Future[Any]:
    async def run() -> Any:
        value = method(*args, **kwargs)
        return await value if inspect.isawaitable(value) else value

    return asyncio.run_coroutine_threadsafe(run(), loop)


def ray() -> ModuleType:
    """A `ray` of one process under that name: remote, get, wait, kill, get_actor, exceptions. Made before imports."""
    made = sys.modules.get("ray")
    if made is not None and "refitcheck" in vars(made):
        return made
    from harness.sut.adapters.stubs import Finder, StubModule

    sys.meta_path.append(Finder(("ray",)))  # the rest of it too, also where a real one is installed
    module: Any = StubModule("ray")
    module.__path__ = []
    module.__spec__ = ModuleSpec("ray", None)
    errors: Any = StubModule("ray.exceptions")
    base = type("RayError", (Exception,), {})
    names = ("RayActorError", "ActorDiedError", "RayTaskError", "WorkerCrashedError")
    for name, kind in {"RayError": base, **{n: type(n, (base,), {}) for n in names}}.items():
        setattr(errors, name, kind)
    errors.GetTimeoutError = type("GetTimeoutError", (base, TimeoutError), {})
    actor: Any = StubModule("ray.actor")
    actor.ActorHandle = Handle
    content = {
        "refitcheck": True,
        "exceptions": errors,
        "actor": actor,
        "ObjectRef": Ref,
        "get": _get(errors.GetTimeoutError),
        "wait": lambda refs, num_returns=1, timeout=None: (list(refs[:num_returns]), list(refs[num_returns:])),
        "kill": lambda handle, no_restart=True: None,
        "put": lambda value: value,
        "is_initialized": lambda: True,
        "init": lambda *args, **kwargs: None,
        "remote": _remote,
        "_private": SimpleNamespace(services=SimpleNamespace(get_node_ip_address=lambda: "127.0.0.1")),
        "method": lambda **_: lambda function: function,
        "__version__": "99.0.0",
    }
    for name, value in content.items():
        setattr(module, name, value)
    sys.modules.update({"ray": module, "ray.exceptions": errors, "ray.actor": actor})
    util: Any = StubModule("ray.util")
    util.__path__ = []
    util.get_node_ip_address = lambda: "127.0.0.1"
    sys.modules["ray.util"] = module.util = util
    return cast(ModuleType, module)


def _get(late: Any) -> Any:
    def get(refs: Any, timeout: float | None = None) -> Any:
        """Of a list the first failure is raised at once, though others are not done (ray's memory store:
        abort_if_any_object_is_exception)."""
        if isinstance(refs, (list, tuple)):
            futures = [ref._future for ref in refs if isinstance(ref, Ref)]
            done, _ = concurrent.futures.wait(futures, timeout, concurrent.futures.FIRST_EXCEPTION)
            failed = next((error for future in futures if future in done and (error := future.exception())), None)
            if failed is not None:
                raise failed
            return [get(ref, 0.0 if timeout is not None else None) for ref in refs]
        if not isinstance(refs, Ref):
            return refs
        try:
            return refs.get(timeout)
        except concurrent.futures.TimeoutError as error:
            if timeout is None:
                raise
            raise late(f"no result after {timeout} s") from error

    return get


class ActorClass:
    """What `@ray.remote` makes of a class; `local` is the class."""

    def __init__(self, local: type) -> None:
        self.local, self.__name__ = local, local.__name__
        self.__ray_metadata__ = SimpleNamespace(modified_class=local)

    def options(self, **_: Any) -> ActorClass:
        """They place actors on machines."""
        return self

    def remote(self, *args: Any, **kwargs: Any) -> Handle:
        """An actor."""
        return Handle(self.local(*args, **kwargs))


class RemoteFunction:
    """What `@ray.remote` makes of a function."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def options(self, **_: Any) -> RemoteFunction:
        """They place tasks on machines."""
        return self

    def remote(self, *args: Any, **kwargs: Any) -> Ref:
        """Called at once."""
        made: Ref = Handle(SimpleNamespace(call=self._function)).call.remote(*args, **kwargs)
        return made


def _remote(*args: Any, **_: Any) -> Any:
    def made(what: Any) -> Any:
        return ActorClass(what) if isinstance(what, type) else RemoteFunction(what)

    return made(args[0]) if args and callable(args[0]) else made
