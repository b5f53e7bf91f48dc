"""The lane `sglang-url`: SGLang servers that run already, wherever they were started, behind the same gate."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.errors import NotAskedFor, Unsupported, UsageError
from harness.lanes.base import EngineSpec
from real_runs.attached import About, AttachedPool, preflight
from real_runs.expectations import Ask, Expectations
from real_runs.models import FolderModel, TinyModel
from real_runs.payloads import TorchPayloads
from real_runs.server import ServerSpec
from real_runs.sglang_cpu import SglangCpuLane

API_KEY = "SGLANG_API_KEY"


class SglangUrlLane(SglangCpuLane):
    """Servers that were started elsewhere: they are cleaned, loaded and asked, and live on when the run is over.

    The weights of the harness travel through this machine's memory, so that they are to run on this machine: `device`
    cpu (shared memory) or cuda (CUDA IPC). Scenarios that end an engine, start one with other options, or need more
    engines than there are, are unsupported, by name. Whatever the servers served before is gone afterwards.

    Options: `url` (http://HOST:PORT, several with commas), `model` (the Hugging Face folder that they serve, where its
    path here is another), `device`, `quiet`. A key for them is read from SGLANG_API_KEY.
    """

    name = "sglang-url"
    where = "real, http, attached"
    option_names: tuple[str, ...] = ("device", "model", "quiet", "url")

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        super().__init__(options)
        self._pool.close()
        self._pool = AttachedPool(self._found, self.payloads)  # type: ignore[assignment]  # as much as is asked of it
        self.versions = (self._found[0].version,)
        self.default_tp = self._found[0].tp

    def configure(self, given: dict[str, Any]) -> None:
        """Look at the servers. UsageError with all that is wrong with them."""
        if self._evidence is not None:
            raise UsageError(
                f"lane {self.name} has no option evidence: of servers that it did not start it knows nothing"
            )
        self._device = str(given.pop("device", "cpu"))
        if self._device not in ("cpu", "cuda"):
            raise UsageError(f"--lane-option device={self._device}: cpu or cuda")
        self._folder = str(given.pop("model", ""))
        self._key = os.environ.get(API_KEY) or None
        self._found = self._attach(given)

    def _attach(self, given: dict[str, Any]) -> list[About]:
        urls = [url.strip() for url in str(given.pop("url", "")).split(",") if url.strip()]
        if not urls:
            raise NotAskedFor(f"lane {self.name} needs --lane-option url=http://HOST:PORT[,...] of running servers")
        return looked_at(urls, self._key)

    def _expectations_of(self, spec: EngineSpec) -> Expectations:
        kind = self.server_spec(spec, plain=True)
        if kind not in self._expectations:
            self._expectations[kind] = _OfThisRun("", self.model(spec), lambda seed, prompt, n: None)
        return self._expectations[kind]

    def payloads(self) -> TorchPayloads:
        """Where these engines open them."""
        if self._device == "cpu":
            return super().payloads()
        from fakes.trainer.cuda_wire import cuda_share, gpu_of

        return TorchPayloads(lambda rank: cuda_share(gpu_of(rank)))

    def model(self, spec: EngineSpec) -> TinyModel:
        """What they serve. UsageError where its folder is not here."""
        key = (spec.shape, spec.tied, spec.dtype, spec.tp)
        if key not in self._models:
            source = self._folder or self._found[0].model
            if not (Path(source) / "config.json").is_file():
                raise UsageError(
                    f"the servers serve {source}, which is no model folder here: --lane-option model=FOLDER"
                )
            self._models[key] = FolderModel(*key, source=source)
        return self._models[key]

    def server_spec(self, spec: EngineSpec, *, plain: bool = False) -> ServerSpec:
        """What they are; no option can be asked of them."""
        about = self._found[0]
        return ServerSpec(about.version, Path(about.model), about.tp, about.dtype, api_key=self._key)

    def refuse(self, spec: EngineSpec) -> None:
        """Unsupported for an engine that these are not."""
        about = self._found[0]
        asked = {name: value for name, value in spec.options if value not in (False, None)}
        if spec.version != about.version or spec.tp != about.tp:
            raise Unsupported(f"sglang {about.version} tp {about.tp} is attached to, not {spec.version} tp {spec.tp}")
        if asked:
            raise Unsupported(f"launch option {', '.join(sorted(asked))} of a server that runs already")
        model = self.model(spec).config
        if spec.shape != model.get("model_type") or spec.tied != bool(model.get("tie_word_embeddings")):
            raise Unsupported(f"the servers serve a {model.get('model_type')}, not {spec.shape}")


class _OfThisRun(Expectations):
    """What these servers answered while they were clean; nobody knows whether they are the same tomorrow."""

    def __init__(self, kind: str, model: TinyModel, ask: Ask) -> None:
        super().__init__(kind, model, ask, folder=Path(os.devnull))

    def save(self) -> None:
        """Nothing is kept."""


def looked_at(urls: list[str], key: str | None) -> list[About]:
    """The servers. UsageError with all that is wrong with them."""
    found, wrong = preflight(urls, key)
    if wrong:
        raise UsageError("; ".join(finding.line for finding in wrong))
    return found
