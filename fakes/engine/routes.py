"""The HTTP routes by version: methods, handler, auth level, body, and the line that SGLang's 400 texts quote.

A table, nothing else. The line is that of the handler's first decorator in entrypoints/http_server.py; FastAPI prints
it
in every validation error, so it is part of the body. Versions in column order: 0.5.12.post1, 0.5.17, 0.5.18, 0.5.19,
0.5.20, 0.5.21, 0.5.22, 0.5.23; 0 where the route does not exist.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from fakes.engine.engine_profile import EngineProfile

Auth = Literal["normal", "admin"]

_COLUMNS = ("0.5.12.post1", "0.5.17", "0.5.18", "0.5.19", "0.5.20", "0.5.21", "0.5.22", "0.5.23")


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One route of one version. `handler` is our operation, `function` SGLang's name for it; `body` names a struct of
    `requests`."""

    path: str
    methods: tuple[str, ...]
    handler: str
    function: str
    auth: Auth
    body: str | None
    body_optional: bool
    line: int


class _Row(msgspec.Struct, frozen=True):
    path: str
    methods: tuple[str, ...]
    handler: str
    function: str
    auth: Auth
    body: str | None
    lines: tuple[int, ...]


_GET, _POST, _BOTH = ("GET",), ("POST",), ("GET", "POST")
_HEALTH = (505, 646, 654, 662, 669, 699, 705, 721)
_DEPRECATED = (610, 761, 776, 791, 798, 0, 0, 0)

_ROWS: tuple[_Row, ...] = (
    _Row(
        "/", ("GET", "HEAD"), "root", "sglang_root", "normal", None, (1725, 1946, 1966, 1978, 1991, 2029, 2057, 2124),
    ),
    _Row("/health", _GET, "health", "health_generate", "normal", None, _HEALTH),
    _Row("/health_generate", _GET, "health_generate", "health_generate", "normal", None, _HEALTH),
    _Row("/ready", _GET, "ready", "ready", "normal", None, (0, 0, 0, 0, 662, 692, 698, 714)),
    _Row("/ping", _GET, "ping", "sagemaker_health", "normal", None, (1782, 2003, 2023, 2035, 2048, 2095, 2123, 2190)),
    _Row(
        "/get_model_info", _GET, "model_info", "get_model_info", "normal", None,
        (580, 723, 728, 743, 750, 780, 786, 802),
    ),
    _Row("/model_info", _GET, "model_info", "model_info", "normal", None, (590, 733, 738, 753, 760, 790, 796, 812)),
    _Row("/get_weight_version", _GET, "get_weight_version", "weight_version", "normal", None, _DEPRECATED),
    _Row("/weight_version", _GET, "get_weight_version", "weight_version", "normal", None, _DEPRECATED),
    _Row(
        "/get_server_info", _GET, "server_info", "get_server_info", "normal", None,
        (620, 771, 786, 801, 808, 831, 837, 853),
    ),
    _Row("/server_info", _GET, "server_info", "server_info", "normal", None, (630, 781, 796, 811, 818, 841, 847, 863)),
    _Row("/get_load", _GET, "get_load", "get_load", "normal", None, (647, 809, 829, 843, 853, 0, 0, 0)),
    _Row(
        "/generate", ("POST", "PUT"), "generate", "generate_request", "normal", "GenerateReqInput",
        (700, 869, 889, 903, 913, 910, 912, 928),
    ),
    _Row(
        "/flush_cache", _BOTH, "flush_cache", "flush_cache", "admin", None, (761, 946, 966, 980, 990, 987, 1009, 1025),
    ),
    _Row(
        "/update_weights_from_disk", _POST, "update_weights_from_disk", "update_weights_from_disk", "admin",
        "UpdateWeightFromDiskReqInput", (1039, 1215, 1235, 1249, 1259, 1242, 1265, 1300),
    ),
    _Row(
        "/init_weights_update_group", _POST, "init_weights_update_group", "init_weights_update_group", "admin",
        "InitWeightsUpdateGroupReqInput", (1136, 1319, 1339, 1353, 1363, 1346, 1369, 1404),
    ),
    _Row(
        "/destroy_weights_update_group", _POST, "destroy_weights_update_group", "destroy_weights_update_group", "admin",
        "DestroyWeightsUpdateGroupReqInput", (1152, 1335, 1355, 1369, 1379, 1362, 1385, 1420),
    ),
    _Row(
        "/update_weights_from_tensor", _POST, "update_weights_from_tensor", "update_weights_from_tensor", "admin",
        "UpdateWeightsFromTensorReqInput", (1167, 1351, 1371, 1385, 1395, 1378, 1401, 1436),
    ),
    _Row(
        "/begin_weight_update", _POST, "begin_weight_update", "begin_weight_update", "admin",
        "BeginWeightUpdateReqInput", (0, 0, 0, 0, 0, 1400, 1423, 1458),
    ),
    _Row(
        "/end_weight_update", _POST, "end_weight_update", "end_weight_update", "admin",
        "EndWeightUpdateReqInput", (0, 0, 0, 0, 0, 1415, 1438, 1473),
    ),
    _Row(
        "/update_weights_from_distributed", _POST, "update_weights_from_distributed", "update_weights_from_distributed",
        "admin", "UpdateWeightsFromDistributedReqInput", (1189, 1373, 1393, 1407, 1417, 1430, 1453, 1488),
    ),
    _Row(
        "/update_weights_from_ipc", _POST, "update_weights_from_ipc", "update_weights_from_ipc", "admin",
        "UpdateWeightsFromIPCReqInput", (1208, 1393, 1413, 1427, 1437, 1450, 1473, 1508),
    ),
    _Row(
        "/update_weight_version", _POST, "update_weight_version", "update_weight_version", "admin",
        "UpdateWeightVersionReqInput", (1225, 1412, 1432, 1446, 1456, 1469, 1492, 1527),
    ),
    _Row(
        "/get_weights_by_name", _BOTH, "get_weights_by_name", "get_weights_by_name", "admin",
        "GetWeightsByNameReqInput", (1256, 1446, 1466, 1478, 1488, 1501, 1524, 1559),
    ),
    _Row(
        "/release_memory_occupation", _BOTH, "release_memory_occupation", "release_memory_occupation", "admin",
        "ReleaseMemoryOccupationReqInput", (1270, 1462, 1482, 1494, 1504, 1517, 1540, 1575),
    ),
    _Row(
        "/resume_memory_occupation", _BOTH, "resume_memory_occupation", "resume_memory_occupation", "admin",
        "ResumeMemoryOccupationReqInput", (1282, 1474, 1494, 1506, 1516, 1529, 1552, 1587),
    ),
    _Row(
        "/weights_checker", _BOTH, "weights_checker", "check_weights", "admin",
        "CheckWeightsReqInput", (1294, 1486, 1506, 1518, 1528, 1541, 1564, 1599),
    ),
    _Row(
        "/load_lora_adapter", _POST, "load_lora_adapter", "load_lora_adapter", "admin", "LoadLoRAAdapterReqInput",
        (1320, 1519, 1539, 1551, 1564, 1594, 1617, 1652),
    ),
    _Row(
        "/load_lora_adapter_from_tensors", _POST, "load_lora_adapter_from_tensors", "load_lora_adapter_from_tensors",
        "admin", "LoadLoRAAdapterFromTensorsReqInput", (1338, 1530, 1550, 1562, 1575, 1605, 1628, 1663),
    ),
    _Row(
        "/unload_lora_adapter", _POST, "unload_lora_adapter", "unload_lora_adapter", "admin",
        "UnloadLoRAAdapterReqInput", (1353, 1542, 1562, 1574, 1587, 1617, 1641, 1676),
    ),
    _Row(
        "/slow_down", _BOTH, "slow_down", "slow_down", "admin", "SlowDownReqInput",
        (1306, 1505, 1525, 1537, 1550, 1563, 1586, 1621),
    ),
    _Row(
        "/abort_request", _POST, "abort_request", "abort_request", "admin", "AbortReq",
        (1403, 1587, 1607, 1619, 1632, 1662, 1686, 1721),
    ),
    _Row(
        "/pause_generation", _POST, "pause_generation", "pause_generation", "admin",
        "PauseGenerationReqInput", (1458, 1665, 1685, 1697, 1710, 1740, 1764, 1831),
    ),
    _Row(
        "/continue_generation", _POST, "continue_generation", "continue_generation", "admin",
        "ContinueGenerationReqInput", (1469, 1678, 1698, 1710, 1723, 1753, 1777, 1844),
    ),
)  # fmt: skip


def _miles(row: _Row) -> int:
    """The miles branch forked between 0.5.19 and 0.5.20 and has the session routes; its lines were not read."""
    if row.path in ("/begin_weight_update", "/end_weight_update"):
        return row.lines[_COLUMNS.index("0.5.21")]
    return row.lines[_COLUMNS.index("0.5.19")]


def routes(p: EngineProfile) -> dict[str, Route]:
    """All routes of one version by path."""
    found = {}
    for row in _ROWS:
        line = _miles(row) if p.version == "miles" else row.lines[_COLUMNS.index(p.version)]
        if not line:
            continue
        checker = row.path == "/weights_checker"
        # Without an auth level up to 0.5.21 (entrypoints/http_server.py:1605@0.5.21, 1628@0.5.22).
        open_to_all = row.path == "/load_lora_adapter_from_tensors" and p.version not in ("0.5.22", "0.5.23")
        found[row.path] = Route(
            path=row.path,
            methods=_POST if checker and not p.checker_get else row.methods,
            handler=row.handler,
            function=row.function,
            auth="normal" if open_to_all else row.auth,
            body=row.body,
            body_optional=checker and p.checker_get,
            line=line,
        )
    return found
