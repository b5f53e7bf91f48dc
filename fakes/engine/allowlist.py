"""What SGLang's unpickler lets through, by version: two prefix lists, two exact lists, and the text of a refusal.

Source: `SafeUnpickler` in sglang/srt/utils/common.py: 2276 @0.5.12.post1, 2797 @0.5.17, 3054 @0.5.20, 3081 @0.5.21,
3144 @0.5.23.
"""

from __future__ import annotations

from dataclasses import dataclass

Global = tuple[str, str]

LOCAL_TENSOR_OLD = "sglang.srt.model_executor.model_runner"
LOCAL_TENSOR_NEW = "sglang.srt.model_executor.model_runner_components.weight_updater"


@dataclass(frozen=True)
class AllowList:
    """One version's list. Exact lists name (module, name) pairs; prefix lists admit whole module trees but for a few
    denied pairs.

    `local_tensor_module` is where LocalSerializedTensor lives: under the other name the import fails.
    """

    key: str
    exact: frozenset[Global] = frozenset()
    prefixes: tuple[str, ...] = ()
    denied: frozenset[Global] = frozenset()
    local_tensor_module: str = LOCAL_TENSOR_NEW

    def admits(self, module: str, name: str) -> bool:
        """Whether SGLang would resolve this global."""
        if self.exact:
            return (module, name) in self.exact or (module, name) == LOAD_FROM_BYTES
        return (module, name) not in self.denied and any(f"{module}.".startswith(prefix) for prefix in self.prefixes)

    def refusal(self, module: str, name: str) -> str:
        """The text of the RuntimeError."""
        if self.exact:
            return f"Blocked unsafe global ({module}.{name}) during pickle deserialization"
        return f"Blocked unsafe class loading ({module}.{name}), to prevent exploitation of CVE-2025-10164"


# Exact lists replace it by a weights_only loader (common.py:3362 @0.5.23).
LOAD_FROM_BYTES: Global = ("torch.storage", "_load_from_bytes")

_DENIED: frozenset[Global] = frozenset(
    {
        *(("builtins", name) for name in ("eval", "exec", "compile")),
        ("os", "system"),
        ("subprocess", "Popen"),
        ("subprocess", "run"),
        ("codecs", "decode"),
        ("types", "CodeType"),
        ("types", "FunctionType"),
    }
)

_PREFIXES_30 = (
    *("builtins.", "collections.", "copyreg.", "functools.", "itertools.", "operator.", "types.", "weakref."),
    *("torch.", "torch._tensor.", "torch.storage.", "torch.nn.parameter.", "torch.autograd.function."),
    *("torch.distributed.", "torch.distributed._shard.", "torch.distributed._composable."),
    *("torch._C._distributed_c10d.", "torch._C._distributed_fsdp.", "torch.distributed.optim."),
    *("multiprocessing.resource_sharer.", "multiprocessing.reduction.", "pickletools."),
    *("peft.", "transformers.", "huggingface_hub."),
    *("sglang.srt.weight_sync.tensor_bucket.", "sglang.srt.model_executor.model_runner."),
    *("sglang.srt.layers.", "sglang.srt.utils.", "torch_npu."),
)
_PREFIXES_33 = (
    *_PREFIXES_30,
    "sglang.srt.model_executor.model_runner_components.weight_updater.",
    "sglang.srt.disaggregation.",
    "sglang.srt.managers.",
)

_DENSE = ("BFloat16", "Byte", "Char", "Double", "Float", "Half", "Int", "Long", "Short")
_COMPLEX = ("ComplexDouble", "ComplexFloat")
_QUANTISED = ("QInt32", "QInt8", "QUInt2x4", "QUInt4x2", "QUInt8")

_EXACT_NAMES: dict[str, str] = {
    "builtins": "bool bytearray bytes complex dict float frozenset int list range set slice str tuple",
    "collections": "Counter OrderedDict defaultdict deque",
    "copyreg": "__newobj__ __newobj_ex__",
    "functools": "partial",
    "itertools": "chain repeat",
    "_codecs": "encode",
    "types": "SimpleNamespace",
    "multiprocessing.reduction": "_rebuild_partial _rebuild_socket",
    "multiprocessing.resource_sharer": "DupFd",
    "torch": (
        "Size Tensor UntypedStorage device dtype"
        " bfloat16 bit bits16 bits1x8 bits2x4 bits4x2 bits8 bool cdouble cfloat chalf complex128 complex32 complex64"
        " double float float16 float32 float4_e2m1fn_x2 float64 float8_e4m3fn float8_e4m3fnuz float8_e5m2"
        " float8_e5m2fnuz float8_e8m0fnu half int int1 int16 int2 int3 int32 int4 int5 int6 int64 int7 int8 long short"
        " per_channel_affine per_channel_affine_float_qparams per_channel_symmetric per_tensor_affine"
        " per_tensor_symmetric qint32 qint8 quint2x4 quint4x2 quint8"
        " uint1 uint16 uint2 uint3 uint32 uint4 uint5 uint6 uint64 uint7 uint8 "
        + " ".join(f"{kind}Tensor" for kind in (*_DENSE, "Bool"))
        + " "
        + " ".join(f"{kind}Storage" for kind in (*_DENSE, "Bool", *_COMPLEX, *_QUANTISED))
    ),
    "torch.cuda": " ".join(
        [f"{kind}Tensor" for kind in (*_DENSE, "Bool")] + [f"{kind}Storage" for kind in (*_DENSE, "Bool", *_COMPLEX)]
    ),
    "torch.sparse": " ".join(f"{kind}Tensor" for kind in _DENSE),
    "torch.cuda.sparse": " ".join(f"{kind}Tensor" for kind in _DENSE),
    "torch._tensor": "_rebuild_from_type_v2",
    "torch._utils": (
        "_rebuild_device_tensor_from_cpu_tensor _rebuild_device_tensor_from_numpy _rebuild_meta_tensor_no_storage"
        " _rebuild_parameter _rebuild_parameter_with_state _rebuild_qtensor _rebuild_sparse_tensor _rebuild_tensor"
        " _rebuild_tensor_v2 _rebuild_tensor_v3 _rebuild_wrapper_subclass"
    ),
    "torch.multiprocessing.reductions": (
        "rebuild_cuda_tensor rebuild_meta_tensor rebuild_nested_tensor rebuild_sparse_compressed_tensor"
        " rebuild_sparse_coo_tensor rebuild_storage_empty rebuild_storage_fd rebuild_storage_filename rebuild_tensor"
        " rebuild_typed_storage rebuild_typed_storage_child"
    ),
    "torch.nn.parameter": "Parameter",
    "torch.serialization": "_get_layout",
    "torch.storage": "TypedStorage UntypedStorage _UntypedStorage",
    "torch_npu.multiprocessing.reductions": "rebuild_npu_tensor",
    "sglang.srt.utils.patch_torch": "_rebuild_cuda_tensor_modified _rebuild_npu_tensor_modified",
    "sglang.srt.weight_sync.tensor_bucket": "FlattenedTensorBucket FlattenedTensorMetadata",
    LOCAL_TENSOR_OLD: "LocalSerializedTensor",
    LOCAL_TENSOR_NEW: "LocalSerializedTensor",
    "sglang.srt.managers.io_struct": "GenerateReqInput EmbeddingReqInput",
    "sglang.srt.disaggregation.encoder.receiver": "EmbeddingData",
    "sglang.srt.managers.schedule_batch": "Modality",
}
_EXACT_200 = frozenset((module, name) for module, names in _EXACT_NAMES.items() for name in names.split())
_EXACT_202 = _EXACT_200 | {("torch", "bcomplex32"), ("sglang.srt.multimodal.modality", "Modality")}

PREFIX30 = AllowList("prefix30", prefixes=_PREFIXES_30, denied=_DENIED, local_tensor_module=LOCAL_TENSOR_OLD)
PREFIX33 = AllowList("prefix33", prefixes=_PREFIXES_33, denied=_DENIED)
EXACT200 = AllowList("exact200", exact=_EXACT_200)
EXACT202 = AllowList("exact202", exact=_EXACT_202)

# The profile's `unpickler` value -> list.
ALLOW_LISTS: dict[str, AllowList] = {item.key: item for item in (PREFIX30, PREFIX33, EXACT200, EXACT202)}
