"""Small pickles whose objects are exponentially large, deep, colliding or endless, in every place where a payload may
put an object. As a program: opens all of them under a limit of CPU time and memory, and says which one it is at."""

from __future__ import annotations

import resource
import struct
import sys
from collections.abc import Iterator

import numpy as np

from fakes.engine.allowlist import EXACT202, PREFIX33
from fakes.engine.containers import BUILTINS, COLLECTIONS
from fakes.engine.loading import LoadError
from fakes.engine.payload import PayloadError, open_payload
from fakes.engine.weights import RankWeights
from fakes.tiny import tiny_config

CPU_S = 60
MEMORY = 3 << 30
START = b"\x80\x04"


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def name(module: str, attribute: str) -> bytes:
    return text(module) + text(attribute) + b"\x93"


def long(value: int) -> bytes:
    data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8b" + struct.pack("<i", len(data)) + data


def doubling(levels: int, leaf: bytes = b"N") -> bytes:
    return leaf + b"q\xc8h\xc8\x86" * levels


def call(function: bytes, *args: bytes) -> bytes:
    return function + b"(" + b"".join(args) + b"tR"


def builtin(attribute: str, *args: bytes) -> bytes:
    return call(name("builtins", attribute), *args)


_COLLIDING = b"".join(long(k * (2**61 - 1)) for k in range(1, 12_000))

VALUES: dict[str, bytes] = {
    "pairs of pairs": doubling(60),
    "eights of eights": b"N" + b"q\xc8(h\xc8h\xc8h\xc8h\xc8h\xc8h\xc8h\xc8h\xc8t" * 30,
    "wide and shared": b"(" + b"N" * 900 + b"tq\xc9(" + b"h\xc9" * 900 + b"tq\xc9(" + b"h\xc9" * 900 + b"t",
    "deep": b")" + b"\x85" * 4000,
    "frozen pairs": b"N" + b"q\xc8(h\xc8h\xc8\x86\x91" * 60,
    "called pairs": b"N" + b"q\xc8" + b"".join(builtin("tuple", b"](h\xc8h\xc8e") + b"q\xc8" for _ in range(60)),
    "lists of lists": b"]q\xc8" + b"](h\xc8h\xc8eq\xc8" * 60,
    "dicts of dicts": b"}q\xc8" + b"}(K\x01h\xc8K\x02h\xc8uq\xc8" * 60,
    "a list in itself": b"]q\xc8h\xc8a",
    "filled after the call": b"".join(
        [b"Nq\xc8", *[b"]q\xc9h\xc9\x85q\xca0h\xc9(h\xc8h\xc8e0" + name("builtins", "tuple") + b"h\xcaRq\xc8"] * 60]
    ),
    "long number": long(1 << 1_000_000),
    "equal hashes": b"(" + _COLLIDING[:30_000] + b"t",
    "range": builtin("range", long(2**62)),
    "endless tensor": call(
        name("torch._utils", "_rebuild_tensor_v2"),
        call(
            name("torch.multiprocessing.reductions", "rebuild_typed_storage"),
            call(name("torch.multiprocessing.reductions", "rebuild_storage_empty")),
            name("torch", "uint8"),
        ),
        b"K\x00",
        long(2**62) + b"K\x02K\x00\x87",
        b"K\x00K\x00K\x00\x87",
    ),
    "idna": text("a" * 100_000),
}

FUNCTIONS = [
    *(("builtins", each) for each in sorted(BUILTINS)),
    *(("collections", each) for each in sorted(COLLECTIONS)),
    ("_codecs", "encode"),
    ("copyreg", "__newobj__"),
    ("types", "SimpleNamespace"),
    ("functools", "partial"),
    ("torch", "Size"),
    ("torch", "Tensor"),
    ("torch", "device"),
    ("torch.storage", "UntypedStorage"),
    ("torch.storage", "TypedStorage"),
    ("torch.storage", "_load_from_bytes"),
    ("torch._utils", "_rebuild_tensor_v2"),
    ("torch._utils", "_rebuild_parameter"),
    ("torch.multiprocessing.reductions", "rebuild_tensor"),
    ("torch.multiprocessing.reductions", "rebuild_typed_storage"),
    ("torch.multiprocessing.reductions", "rebuild_storage_filename"),
    ("torch.multiprocessing.reductions", "rebuild_storage_fd"),
    ("torch.multiprocessing.reductions", "rebuild_cuda_tensor"),
    ("sglang.srt.utils.patch_torch", "_rebuild_cuda_tensor_modified"),
    ("sglang.srt.weight_sync.tensor_bucket", "FlattenedTensorMetadata"),
    ("sglang.srt.weight_sync.tensor_bucket", "FlattenedTensorBucket"),
]
CLASSES = [
    ("types", "SimpleNamespace"),
    ("torch", "Size"),
    ("torch", "Tensor"),
    ("torch", "device"),
    ("sglang.srt.weight_sync.tensor_bucket", "FlattenedTensorMetadata"),
    ("sglang.srt.model_executor.model_runner_components.weight_updater", "LocalSerializedTensor"),
]
_SMALL = (b"K\x01", b"C\x01a", name("torch", "uint8"), b"K\x01\x85")


def sinks(value: bytes) -> Iterator[tuple[str, bytes]]:
    """Pickles that do every possible thing with one object."""
    kept = value + b"q\xcb0"
    it = b"h\xcb"
    yield "itself", value
    yield "key", kept + b"}" + it + b"Ns"
    yield "keys", kept + b"}(" + it + b"N" + it + b"Nu"
    yield "dict", kept + b"(" + it + b"Nd"
    yield "set", kept + b"\x8f(" + it + it + b"\x90"
    yield "frozen set", kept + b"(" + it + b"\x91"
    yield "keys again and again", kept + b"}" + (it + b"Ns") * 20_000
    yield "call it", kept + it + b")R"
    yield "make it", kept + it + b")\x81"
    yield "state of it", kept + it + b"}b"
    for module, attribute in FUNCTIONS:
        function = name(module, attribute)
        yield f"{attribute}(it)", kept + call(function, it)
        yield f"{attribute}([it])", kept + call(function, b"](" + it + b"e")
        yield f"{attribute}(it, it)", kept + call(function, it, it)
        yield f"{attribute}(*it)", kept + function + it + b"R"
        yield f"{attribute}(text, it)", kept + call(function, text("abc"), it, it)
        for count in (5, 10) if "build" in attribute else ():
            for place in range(count):
                args = [_SMALL[index % len(_SMALL)] for index in range(count)]
                args[place] = it
                yield f"{attribute}(... it at {place} of {count})", kept + call(function, *args)
    for module, attribute in CLASSES:
        made = name(module, attribute)
        yield f"{attribute}.__new__(it)", kept + made + it + b"\x85\x81"
        yield f"state of a {attribute}", kept + made + b")\x81" + it + b"b"
        for key in ("name", "shape", "dtype", "values", "start_idx"):
            yield f"{key} of a {attribute}", kept + made + b")\x81}" + text(key) + it + b"sb"
    yield "name", kept + b"](" + it + VALUES["endless tensor"] + b"\x86e"
    for key in ("flattened_tensor", "metadata"):
        for other in ("flattened_tensor", "metadata"):
            yield f"bucket {key} {other}", kept + b"}(" + text(key) + it + text(other) + b"](" + it + b"eu"


MORE: dict[str, bytes] = {
    "shared states": b"}("
    + b"".join(text(f"k{n}") + b"N" for n in range(20_000))
    + b"uq\xc8"
    + b"".join(name("types", "SimpleNamespace") + b")\x81h\xc8b0" for _ in range(20_000)),
    "shared dict states": b"}("
    + b"".join(text(f"k{n}") + b"N" for n in range(20_000))
    + b"uq\xc80"
    + name("collections", "OrderedDict")
    + b"q\xc90"
    + b"h\xc9)Rh\xc8b0" * 20_000,
    "shared sizes": b"("
    + b"K\x01" * 200_000
    + b"tq\xc80"
    + name("torch", "Size")
    + b"q\xc90"
    + b"h\xc9h\xc8\x85R0" * 50_000,
    "many globals": b"".join(name("torch", f"g{n}") + b"0" for n in range(30_000)),
    "colliding keys": b"}(" + _COLLIDING + b"u",
    "long equal keys": text("x" * 2_000_000)
    + b"q\xc80"
    + text("x" * 2_000_000)
    + b"q\xc90}h\xc8Ns"
    + b"h\xc9Ns" * 100_000,
    "inner payloads": b"]("
    + b"B"
    + struct.pack("<I", 1 << 20)
    + (START + b"N0" * 500_000).ljust(1 << 20, b"0")
    + b"q\xc80"
    + b"".join(
        text("n")
        + name("sglang.srt.model_executor.model_runner_components.weight_updater", "LocalSerializedTensor")
        + b")\x81}"
        + text("values")
        + b"](h\xc8esb\x86"
        for _ in range(1000)
    )
    + b"e",
    "operations": b"N0" * 5_000_000,
    "memo": b"Nr\xff\xff\xff\x7f",
    "memo in a large pickle": text("x" * 40_000_000) + b"r\x00\x00\x00\x02",
    "memo as text": b"Np2000000000\n",
    "memo as text without an end": b"Np2000000000",
    "memo with a sign": b"Np+2000000000\n",
    "memo with underscores": b"Np2_000_000_000\n",
    "memo with a NUL": b"Np2000000000\0\n",
    "memo with zeros": b"Np" + b"0" * 25 + b"2000000000\n",
    "after a line of two": b"ctorch._utils\n_rebuild_tensor_v2\n0}" + b"N" + b"\x85" * 200_000 + b"Ns",
    "after an instance of two lines": b"(itorch\nDevice\n0}" + b"N" + b"\x85" * 200_000 + b"Ns",
    "bytes that are not there": b"\x8e" + struct.pack("<Q", 1 << 40),
    "a bytearray that is not there": b"\x96" + struct.pack("<Q", 1 << 40),
}


def cases() -> Iterator[tuple[str, bytes]]:
    for label, data in MORE.items():
        yield label, START + data + b"."
    for value, data in VALUES.items():
        for sink, made in sinks(data):
            yield f"{value} / {sink}", START + made + b"."


def use(data: bytes, ranks: list[RankWeights]) -> None:
    """Open it in every way, and load what it holds."""
    for allow, load_format in ((EXACT202, None), (PREFIX33, "flattened_bucket")):
        try:
            named = open_payload(data, profile_allow=allow, rank=0, load_format=load_format, resolver=None)
        except PayloadError:
            continue
        assert all(isinstance(array, np.ndarray) for _, array in named)
        for rank in ranks:
            for load in (rank.load, rank.load_direct):
                try:
                    load(named)
                except LoadError:
                    continue


def main() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    ranks = [RankWeights(tiny_config("llama", False), 0, 1, "float32", device=device) for device in ("cpu", "cuda")]
    for number, (label, data) in enumerate(cases(), 1):
        print(number, label, file=sys.stderr, flush=True)
        use(data, ranks)
    print("all opened or refused")


if __name__ == "__main__":
    main()
