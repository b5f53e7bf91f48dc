"""What a broadcast brings to whom, whatever the order in which ranks post."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.engine.protocol import Raised
from fakes.transport.mesh import Mesh, describe, poison, raw_bytes


def parent(rank: int) -> int:
    return rank ^ (1 << (rank.bit_length() - 1))


@given(st.data(), st.integers(2, 9), st.sampled_from(["gloo", "nccl"]), st.integers(1, 4))
def test_every_rank_gets_every_tensor_in_order(data, size, backend, count):
    mesh = Mesh("g", backend, size)
    tensors = [np.full(3 + i, i, dtype=np.uint8) for i in range(count)]
    got: dict[int, list] = {}
    sent = []
    for rank in data.draw(st.permutations(range(size))):
        if rank == 0:
            sent = [mesh.send(tensor) for tensor in tensors]
        else:
            mesh.receive(rank, [t.nbytes for t in tensors], lambda out, rank=rank: got.setdefault(rank, out))
    assert all(s.done for s in sent)
    assert set(got) == set(range(1, size))
    for out in got.values():
        assert [b.tolist() for b in out] == [t.tolist() for t in tensors]


@given(st.data(), st.integers(2, 9))
def test_in_a_tree_a_rank_is_fed_by_its_parent_and_waits_for_its_children(data, size):
    mesh = Mesh("g", "gloo", size)
    absent = data.draw(st.sets(st.integers(1, size - 1)))
    sent = mesh.send(np.zeros(4, dtype=np.uint8))
    got = set()
    for rank in data.draw(st.permutations([r for r in range(1, size) if r not in absent])):
        mesh.receive(rank, [4], lambda out, rank=rank: got.add(rank))

    def fed(rank: int) -> bool:
        return rank == 0 or (rank not in absent and fed(parent(rank)))

    def whole(rank: int) -> bool:
        return fed(rank) and all(fed(child) for child in range(1, size) if parent(child) == rank)

    assert got == {rank for rank in range(1, size) if whole(rank)}
    assert sent.done == whole(0)
    assert mesh.waited_for(sent) == [rank for rank in range(1, size) if not fed(rank)] or sent.done


@given(st.data(), st.integers(2, 6), st.sampled_from(["gloo", "nccl"]))
def test_nobody_waits_for_a_rank_that_is_gone(data, size, backend):
    mesh = Mesh("g", backend, size, port=7)
    sent = mesh.send(np.zeros(4, dtype=np.uint8))
    outcome: dict[int, object] = {}
    for rank in range(1, size - 1):
        mesh.receive(rank, [4], lambda out, rank=rank: outcome.setdefault(rank, out))
    mesh.leave(size - 1)
    if backend == "nccl":
        assert sent.error is not None
        assert all(isinstance(out, Raised) for out in outcome.values())
        assert len(outcome) == size - 2
    else:
        wants_it = parent(size - 1)
        assert bool(sent.error) == (wants_it == 0)
        assert isinstance(outcome.get(wants_it), Raised) or wants_it == 0
    mesh.leave(0)
    assert len(outcome) == size - 2


def test_two_calls_are_two_turns():
    mesh = Mesh("g", "gloo", 2)
    got = []
    mesh.receive(1, [1], got.append)
    mesh.receive(1, [1], got.append)
    mesh.send(np.array([1], dtype=np.uint8))
    assert [b[0].tolist() for b in got] == [[1]]
    mesh.send(np.array([2], dtype=np.uint8))
    assert [b[0].tolist() for b in got] == [[1], [2]]


def test_nothing_to_receive_is_received_at_once():
    got = []
    Mesh("g", "gloo", 2).receive(1, [], got.append)
    assert got == [[]]


def test_sizes_that_differ():
    mesh = Mesh("g", "gloo", 2)
    got = []
    mesh.receive(1, [4], got.append)
    mesh.send(np.array([1, 2], dtype=np.uint8))
    assert got[0][0].tolist() == [1, 2, *poison(2).tolist()]
    mesh.receive(1, [1], got.append)
    mesh.send(np.array([1, 2], dtype=np.uint8))
    assert got[1].type == "SIGABRT"
    assert "op.preamble.length <= op.nbytes. 2 vs 1." in got[1].message
    nccl = Mesh("g", "nccl", 2)
    nccl.receive(1, [4], got.append)
    assert not nccl.send(np.array([1, 2], dtype=np.uint8)).done
    assert len(got) == 2


def test_what_the_sender_changes_before_it_was_taken_is_taken():
    mesh = Mesh("g", "gloo", 2)
    data = np.array([1], dtype=np.uint8)
    mesh.send(data)
    data[0] = 9
    got = []
    mesh.receive(1, [1], lambda out: got.append(out[0].tolist()))
    assert got == [[9]]


def test_what_the_sender_changes_after_it_has_waited_is_not_seen():
    mesh = Mesh("g", "gloo", 2)
    got = []
    mesh.receive(1, [1, 1], lambda out: got.append([b.tolist() for b in out]))
    staging = np.array([1], dtype=np.uint8)
    first = mesh.send(staging)
    assert first.done
    first.settle()
    staging[0] = 2
    second = mesh.send(staging)
    second.settle()
    assert got == [[[1], [2]]]


def test_nothing_is_copied_for_receivers_that_are_done():
    mesh = Mesh("g", "gloo", 2)
    got = []
    data = np.array([1], dtype=np.uint8)
    mesh.receive(1, [1], got.append)
    sent = mesh.send(data)
    sent.settle()
    assert np.shares_memory(got[0][0], data)
    with pytest.raises(ValueError, match="read-only"):
        got[0][0][0] = 3


@pytest.mark.parametrize(
    "array", [np.arange(6).reshape(2, 3).T, np.arange(12).reshape(3, 4)[:, :2], np.arange(4)[::-1], np.arange(4)]
)
def test_raw_bytes_have_the_tensor_s_size(array):
    assert raw_bytes(array).nbytes == array.nbytes
    if array.flags.c_contiguous:
        assert raw_bytes(array).view(array.dtype).tolist() == array.reshape(-1).tolist()


def test_ranks_read_well():
    assert describe([3]) == "rank 3"
    assert describe([1, 2]) == "ranks 1, 2"
