"""The TP worker below the manager: one target runner whose far ends answer what the script says.

Runs in SGLang's interpreter beside `oracle_child.py`.
"""

from __future__ import annotations

import types
from typing import Any

GROUP_TAKEN = "The specified group name has already been created, please use a different group name"


class Scripted(RuntimeError):
    """What the script makes a worker raise."""


class Model:
    """One parameter, `model.norm.weight` [64]; names that it does not have are skipped, as Llama does."""

    def __init__(self, torch: Any, load: Any) -> None:
        self.module = torch.nn.Module()
        self.module.model = torch.nn.Module()
        self.module.model.norm = torch.nn.Module()
        self.module.model.norm.weight = torch.nn.Parameter(torch.ones(64), requires_grad=False)
        params = dict(self.module.named_parameters())

        def load_weights(named: Any) -> None:
            for name, tensor in named:
                if name in params:
                    load(params[name], tensor)

        self.module.load_weights = load_weights


def scripted_runner(torch: Any, model: Model, script: Any) -> Any:
    """A runner's weight updater without SGLang: the calls of every version, all of them plain."""

    class Runner:
        groups: dict[str, Any] = {}  # noqa: RUF012

        def begin_weight_update(self) -> None: ...

        def end_weight_update(self, run_post_load: bool) -> None: ...

        def update_weights_from_tensor(self, named_tensors: Any, load_format: Any = None) -> tuple[bool, str]:
            named_tensors = [(name, tensor.to("cpu")) for name, tensor in named_tensors]  # whatever the format
            if load_format is not None:
                raise NotImplementedError(f"Unknown load_format={load_format}")
            model.module.load_weights(named_tensors)
            return True, "Success"

        def receive_weights_from_distributed(
            self, names: Any, dtypes: Any, shapes: Any, group_name: str, load_format: Any = None
        ) -> list[Any]:
            if group_name not in self.groups:
                raise AssertionError(
                    f"Group {group_name} not in {list(self.groups)}. Please call `init_weights_update_group` first."
                )
            if script().get("receive") == "raises":
                raise Scripted("the peer went away")
            return [(n, torch.zeros(s)) for n, s in zip(names, shapes, strict=False)]

        def load_weights(self, weights: Any) -> None:
            model.module.load_weights(weights)

        def load_weights_from_distributed(self, weights: Any) -> tuple[bool, str]:
            try:
                model.module.load_weights(weights)
            except Exception as e:
                return False, (
                    f"Failed to update parameter online: {e}. The full weights of the ModelRunner are partially "
                    "updated. Please discard the whole weights."
                )
            return True, "Succeeded to update parameter online."

        def update_weights_from_distributed(self, names: Any, dtypes: Any, shapes: Any, group: str, fmt: Any) -> Any:
            if group not in self.groups:
                self.receive_weights_from_distributed(names, dtypes, shapes, group, fmt)
            try:
                weights = self.receive_weights_from_distributed(names, dtypes, shapes, group, fmt)
            except Scripted as e:
                return False, (
                    f"Failed to update parameter online: {e}. The full weights of the ModelRunner are partially "
                    "updated. Please discard the whole weights."
                )
            return self.load_weights_from_distributed(weights)

        def init_weights_update_group(self, *args: Any) -> tuple[bool, str]:
            name = args[4]
            if not name:
                raise AssertionError("Group name cannot be empty")
            problem = script().get("join") or (GROUP_TAKEN if name in self.groups else "")
            if problem:
                return False, f"Failed to initialize custom process group: {problem}."
            self.groups[name] = object()
            return True, "Succeeded to initialize custom process group."

        def destroy_weights_update_group(self, name: str) -> tuple[bool, str]:
            if self.groups.pop(name, None) is None:
                return False, "The group to be destroyed does not exist."
            return True, "Succeeded to destroy custom process group."

    runner = Runner()
    runner.groups = {}
    return runner


class Worker:
    """The TP worker: one target runner, no draft; disk, checkpoint engine and checker answer what the script says."""

    def __init__(self, oracle: Any, model: Model, updater: Any) -> None:
        self._oracle = oracle
        self.ps = types.SimpleNamespace(tp_rank=0)
        self.runner = types.SimpleNamespace(
            model=model.module,
            weight_updater=Delegate(updater, self._scripted, oracle.loaded),
            check_weights=self._check,
            server_args=types.SimpleNamespace(weight_cache_mode="off"),
            begin_weight_update=updater.begin_weight_update if hasattr(updater, "begin_weight_update") else None,
            end_weight_update=updater.end_weight_update if hasattr(updater, "end_weight_update") else None,
        )
        self.model_runner = self.runner

    def weight_update_runners(self) -> list[Any]:
        """From 0.5.21."""
        return [("target", self.runner)]

    def iter_runners(self) -> list[Any]:
        """In miles."""
        return [("", self.runner)]

    def deserialize_own_rank(self, payloads: Any) -> Any:
        """The payload of rank 0."""
        return self._oracle.deserialize(payloads[0])

    def update_weights_from_tensor(self, req: Any) -> Any:
        """Up to 0.5.20."""
        named = self.deserialize_own_rank(req.serialized_named_tensors)
        return self.runner.weight_updater.update_weights_from_tensor(named_tensors=named, load_format=req.load_format)

    def update_weights_from_distributed(self, req: Any) -> Any:
        """Up to 0.5.20."""
        return self.runner.weight_updater.update_weights_from_distributed(
            req.names, req.dtypes, req.shapes, req.group_name, req.load_format
        )

    def update_weights_from_disk(self, req: Any) -> Any:
        """Up to 0.5.20, and miles."""
        return self.runner.weight_updater.update_weights_from_disk()

    def update_weights_from_ipc(self, req: Any) -> Any:
        """Up to 0.5.20, and miles."""
        return self._scripted()

    def init_weights_update_group(self, req: Any) -> Any:
        """Join a group."""
        return self.runner.weight_updater.init_weights_update_group(
            req.master_address, req.master_port, req.rank_offset, req.world_size, req.group_name, req.backend
        )

    def destroy_weights_update_group(self, req: Any) -> Any:
        """Leave a group."""
        return self.runner.weight_updater.destroy_weights_update_group(req.group_name)

    def _scripted(self, *args: Any, **kwargs: Any) -> tuple[bool, str]:
        says = self._oracle.script.get("fails")
        return (False, says) if says else (True, "Succeeded to update model weights.")

    def _check(self, **kwargs: Any) -> None:
        if kwargs["action"] != "snapshot":
            raise ValueError(f"Unsupported action={kwargs['action']!r}")


LOADS = (
    "update_weights_from_tensor",
    "update_weights_from_distributed",
    "load_weights_from_distributed",
    "load_weights",
    "update_weights_from_disk",
)


class Delegate:
    """A runner's own weight updater, but for the two ways whose far end is not here. Counts the loads that worked."""

    def __init__(self, updater: Any, scripted: Any, loaded: Any) -> None:
        self._updater, self._loaded = updater, loaded
        self._scripted = {"update_weights_from_disk": scripted, "update_weights_from_ipc": scripted}

    def __getattr__(self, name: str) -> Any:
        method = self._scripted.get(name) or getattr(self._updater, name)
        if name not in LOADS:
            return method

        def counted(*args: Any, **kwargs: Any) -> Any:
            result = method(*args, **kwargs)
            if result is None or result[0]:
                self._loaded()
            return result

        return counted
