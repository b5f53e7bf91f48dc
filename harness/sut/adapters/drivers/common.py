"""What several drivers need: tensors of a state, process groups, a ray without a cluster."""

from __future__ import annotations

import concurrent.futures
import sys
from collections.abc import Mapping
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

    if array.dtype.name == "bfloat16":
        return torch.from_numpy(np.ascontiguousarray(array).view(np.uint16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


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


class Ref:
    """What `.remote()` gives: the value, or the exception, of a call that was made in this process."""

    def __init__(self, future: concurrent.futures.Future[Any]) -> None:
        self._future = future

    def get(self, timeout: float | None = None) -> Any:
        """Wait for it."""
        return self._future.result(timeout)

    def __await__(self) -> Any:
        import asyncio

        return asyncio.wrap_future(self._future).__await__()


class Handle:
    """An actor in this process: one call at a time, in its order, as ray's."""

    def __init__(self, held: Any) -> None:
        self.__dict__["_held"] = held
        self.__dict__["_pool"] = concurrent.futures.ThreadPoolExecutor(1)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        method = getattr(self._held, name)
        return SimpleNamespace(
            remote=lambda *args, **kwargs: Ref(self._pool.submit(_run, method, args, kwargs)), options=lambda **_: self
        )


def _run(method: Any, args: Any, kwargs: Any) -> Any:
    import asyncio
    import inspect

    value = method(*args, **kwargs)
    return asyncio.run(_awaited(value)) if inspect.isawaitable(value) else value


async def _awaited(value: Any) -> Any:
    return await value


def ray() -> ModuleType:
    """A `ray` of one process under that name: remote, get, wait, kill, get_actor, exceptions. Made before imports."""
    made = sys.modules.get("ray")
    if made is not None and "refitcheck" in vars(made):
        return made
    from harness.sut.adapters.stubs import StubModule

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
        if isinstance(refs, (list, tuple)):
            return [get(ref, timeout) for ref in refs]
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
