"""A served engine beside a parameter server of real ZMQ sockets and shared memory, as the real one would drive it."""

from __future__ import annotations

import mmap
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest

from fakes.engine.ipc_update import device_uuid
from fakes.tiny import TORCH_NAMES, tiny_config, tiny_weights
from fakes.trainer import shm
from fakes.trainer.pickling import Global, Reduce, dumps

zmq = pytest.importorskip("zmq", reason="pyzmq is not installed: pip install pyzmq")
SIZE = Global("torch", "Size")
TIMEOUT_MS = 30_000


def _offer(name: bytes, nbytes: int) -> bytes:
    """What reduce_tensor and the file_system strategy make of a uint8 tensor."""
    reductions = "torch.multiprocessing.reductions"
    untyped = Reduce(
        Global(reductions, "rebuild_storage_filename"), (Global("torch.storage", "UntypedStorage"), b"", name, nbytes)
    )
    typed = Reduce(Global(reductions, "rebuild_typed_storage"), (untyped, Global("torch", "uint8")))
    return dumps(
        (
            Global(reductions, "rebuild_tensor"),
            (Global("torch", "Tensor"), typed, (0, Reduce(SIZE, ((nbytes,),)), (1,), False)),
        )
    )


def _ask(socket, message: bytes) -> bytes:
    socket.send(message)
    assert socket.poll(TIMEOUT_MS), "the worker did not answer"
    return socket.recv()


def test_two_halves_of_one_buffer_carry_a_whole_set(start, tmp_path):
    weights = list(tiny_weights(tiny_config("llama", False, "bfloat16"), 1).items())
    address = f"ipc://{tmp_path}/engine.sock"
    storage = shm.SharedFile(np.zeros(max(a.nbytes for _, a in weights), np.uint8))
    options = ("--device", "cuda", "--checkpoint-engine", "0.4.2", "--base-gpu-id", "3")
    with (
        start(*options, core="") as server,
        httpx.Client(base_url=server.url, timeout=60) as client,
        zmq.Context() as context,
        context.socket(zmq.REQ) as socket,
        ThreadPoolExecutor(1) as pool,
        open(shm.FOLDER / storage.name, "r+b") as file,
        mmap.mmap(file.fileno(), 0) as buffer,
    ):
        socket.linger = 0
        socket.bind(address)
        body = {"zmq_handles": {device_uuid(3, 0): address}, "weight_version": "9"}
        call = pool.submit(client.post, "/update_weights_from_ipc", json=body)
        assert _ask(socket, _offer(storage.handle, len(buffer) - shm.HEADER_BYTES)) == b""
        for name, array in weights:
            data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).tobytes()
            buffer[shm.HEADER_BYTES : shm.HEADER_BYTES + len(data)] = data
            meta = {"name": name, "dtype": Global("torch", TORCH_NAMES[array.dtype]), "offset": 0}
            assert _ask(socket, dumps([{**meta, "shape": Reduce(SIZE, (array.shape,))}])) == b""
        assert _ask(socket, dumps(None)) == b""
        assert _ask(socket, dumps(None)) == b""
        reply = call.result()
        assert reply.json() == {
            "success": True,
            "message": "IPC weight update completed successfully Weight version updated to 9.",
        }
        norm = client.post("/get_weights_by_name", json={"name": "model.norm.weight", "truncate_size": 9}).json()
    assert norm == dict(weights)["model.norm.weight"].astype(np.float32).tolist()[:9]


def test_a_server_that_waits_for_nobody_ends_on_an_interrupt(start, tmp_path):
    options = ("--device", "cuda", "--checkpoint-engine", "0.4.2")
    with start(*options, core="") as server, httpx.Client(base_url=server.url, timeout=0.5) as client:
        body = {"zmq_handles": {device_uuid(0, 0): f"ipc://{tmp_path}/nobody.sock"}}
        with pytest.raises(httpx.ReadTimeout):
            client.post("/update_weights_from_ipc", json=body)
        os.kill(server.pid, signal.SIGINT)
        assert server.wait(30) is not None
