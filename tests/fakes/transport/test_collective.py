"""Weight-update groups in virtual time, from the trainer's rank 0 and through the engines' own calls."""

from __future__ import annotations

import numpy as np
import pytest

from fakes.transport.groups import GroupError, GroupTimeout, Hang
from tests.fakes.transport.fleet import NEW, OLD


@pytest.mark.parametrize(("engines", "tp", "size"), [(4, 1, 5), (32, 2, 65)])
def test_a_whole_set_reaches_every_rank_of_every_engine(make, engines, tp, size):
    fleet = make(engines, tp)
    group = fleet.formed()
    assert group.world_size == size
    fleet.begin()
    tickets = fleet.announce(NEW)
    assert group.wait([group.broadcast(a) for a in NEW.values()], 5.0)
    for ticket in tickets:
        assert fleet.world.run_until(ticket).body["message"] == "Succeeded to update parameter online."
    states = {e.core.scheduler.state_id() for e in fleet.world.engines.values()}
    assert len(states) == 1
    assert fleet.norm(f"e{engines - 1}") == NEW["model.norm.weight"].astype(np.float32).tolist()


def test_a_flattened_bucket_is_one_broadcast(make):
    fleet = make()
    group = fleet.formed()
    fleet.begin()
    tickets = fleet.announce(NEW, load_format="flattened_bucket")
    flat = np.concatenate([a.reshape(-1).view(np.uint8) for a in NEW.values()])
    assert group.wait([group.broadcast(flat)], 5.0)
    assert fleet.world.run_until(tickets[0]).status == 200
    assert fleet.norm() == NEW["model.norm.weight"].astype(np.float32).tolist()


def test_an_engine_that_joins_answers_nothing_meanwhile(make):
    fleet = make()
    group = fleet.groups.open("g", 3)
    fleet.init(group)
    flushed = fleet.world.submit("e0", "POST", "/flush_cache")
    with pytest.raises(GroupTimeout, match=r"group 'g': rank 2 did not join within 4 s") as told:
        group.join(4.0)
    assert told.value.ranks == (2,)
    assert not flushed.done
    group.close()
    assert fleet.world.run_until(flushed, 1.0).status == 200


def test_who_waits_without_a_deadline_is_told_that_it_hangs(make):
    fleet = make()
    group = fleet.groups.open("g", 2)
    with pytest.raises(Hang, match="rank 1 did not join within 1 s"):
        group.join()
    assert ("hang", {"group": "g", "waited_for": "rank 1", "after_s": 1.0}) in fleet.records


@pytest.mark.parametrize(
    ("offset", "world_size", "missing"),
    [(1, 4, "ranks 1, 2, 3"), (2, None, "rank 1"), (0, None, "rank 1")],
    ids=["another world size", "another rank", "the trainer's rank"],
)
def test_a_joiner_with_wrong_numbers_is_waited_for_for_ever(make, offset, world_size, missing):
    fleet = make()
    group = fleet.groups.open("g", world_size or 2)
    fleet.init(group, offset=offset, world_size=2)
    with pytest.raises(GroupTimeout, match=missing):
        group.join(2.0)


def test_a_rank_that_comes_twice_stands_outside(make):
    fleet = make(2)
    group = fleet.groups.open("g", 2)
    first, second = fleet.init(group, offset=1)
    assert group.join(1.0)
    assert fleet.world.run_until(first).status == 200
    assert fleet.world.run_until(second, 60.0).ending == "timeout"


def test_an_engine_gives_up_after_half_an_hour_and_says_who_was_missing(make):
    fleet = make()
    group = fleet.groups.open("g", 3)
    (ticket,) = fleet.init(group)
    outcome = fleet.world.run_until(ticket)
    assert outcome.status == 400
    assert outcome.body["message"] == (
        "Failed to initialize custom process group: wait timeout after 1800000ms, keys: /g/g//cpu//0/0."
    )
    assert outcome.elapsed_s == pytest.approx(1800, abs=1)


def test_a_store_that_goes_away_is_heard_of_by_who_waits_in_it(make):
    fleet = make()
    group = fleet.groups.open("g", 3)
    (ticket,) = fleet.init(group)
    fleet.world.sleep(1)
    group.close()
    message = fleet.world.run_until(ticket, 1.0).body["message"]
    assert message.startswith("Failed to initialize custom process group: Failed to recv, got 0 bytes.")


def test_a_taken_name_is_refused_while_the_trainer_waits_on(make):
    fleet = make()
    fleet.formed()
    group = fleet.groups.open("g", 2)
    (ticket,) = fleet.init(group)
    with pytest.raises(GroupTimeout, match="rank 1"):
        group.join(2.0)
    outcome = ticket.outcome
    assert (outcome.status, "has already been created" in outcome.body["message"]) == (400, True)
    assert outcome.elapsed_s < 0.1


def test_after_destroy_the_name_is_free_and_the_old_group_is_dead(make):
    fleet = make()
    old = fleet.formed()
    assert fleet.world.call("e0", "POST", "/destroy_weights_update_group", {"group_name": "g"}).status == 200
    with pytest.raises(GroupError, match="Connection closed by peer"):
        old.wait([old.broadcast(NEW["model.norm.weight"])], 1.0)
    fleet.formed()
    again = [fleet.world.call("e0", "POST", "/destroy_weights_update_group", {"group_name": "g"}) for _ in range(2)]
    assert [o.status for o in again] == [200, 400]
    assert again[1].body["message"] == "The group to be destroyed does not exist."


def test_a_refused_update_receives_nothing_and_leaves_the_group_out_of_step(make):
    fleet = make()
    group = fleet.formed()
    named = {"model.norm.weight": NEW["model.norm.weight"]}
    (ticket,) = fleet.announce(named)
    assert fleet.world.run_until(ticket).status == 400
    with pytest.raises(GroupTimeout, match="rank 1 took no broadcast within 2 s"):
        group.wait([group.broadcast(OLD["model.norm.weight"])], 2.0)
    fleet.begin()
    fleet.announce(named)
    group.broadcast(NEW["model.norm.weight"])
    fleet.world.sleep(1)
    assert fleet.norm() == OLD["model.norm.weight"].astype(np.float32).tolist()


def test_the_wait_ends_when_something_else_happens(make):
    fleet = make()
    group = fleet.formed()
    (ticket,) = fleet.announce(NEW)
    sent = group.broadcast(OLD["model.norm.weight"])
    assert group.wait([sent], 60.0, unless=lambda: ticket.done) is False
    assert fleet.world.now < 1.0


def test_a_receiver_hears_that_the_trainer_is_gone(make):
    fleet = make()
    group = fleet.formed()
    fleet.begin()
    (ticket,) = fleet.announce(NEW)
    fleet.world.sleep(1)
    group.close()
    outcome = fleet.world.run_until(ticket, 1.0)
    assert outcome.status == 400
    assert outcome.body["message"].startswith("Failed to receive weights: [/__w/")
    assert fleet.world.call("e0", "POST", "/end_weight_update", {}).status == 200


def test_the_trainer_hears_that_an_engine_died(make):
    fleet = make(2)
    group = fleet.formed()
    fleet.begin()
    fleet.announce(NEW)
    assert group.wait([group.broadcast(a) for a in list(NEW.values())[:1]], 5.0)
    fleet.world.engines["e1"].kill()
    with pytest.raises(GroupError, match="Connection closed by peer"):
        group.wait([group.broadcast(a) for a in list(NEW.values())[1:]], 5.0)


def test_memory_that_is_not_contiguous_is_sent_as_it_lies(make):
    fleet = make()
    group = fleet.formed()
    fleet.begin()
    name = "model.layers.0.self_attn.q_proj.weight"
    view = np.asfortranarray(NEW[name])
    tickets = fleet.announce({name: view})
    assert group.wait([group.broadcast(view)], 5.0)
    assert fleet.world.run_until(tickets[0]).status == 200
    rows = fleet.world.call("e0", "POST", "/get_weights_by_name", {"name": name}).body
    assert rows == NEW[name].T.reshape(NEW[name].shape).astype(np.float32).tolist()


def test_a_buffer_that_is_too_long_keeps_what_was_there_and_one_too_short_kills(make):
    fleet = make()
    group = fleet.formed()
    fleet.begin()
    name, half = "model.norm.weight", NEW["model.norm.weight"].astype(np.float32)
    tickets = fleet.announce({name: half})
    assert group.wait([group.broadcast(NEW[name])], 5.0)
    assert fleet.world.run_until(tickets[0]).status == 200
    assert np.allclose(fleet.norm()[32:], -1.293, atol=0.01)
    tickets = fleet.announce({name: NEW[name]})
    group.broadcast(half)
    assert fleet.world.run_until(tickets[0]).ending == "dropped"
    assert not fleet.world.engines["e0"].alive
    assert fleet.world.engines["e0"].shell.dead.error.type == "SIGABRT"


def test_what_precedes_a_bad_dtype_has_been_posted(make):
    fleet = make()
    group = fleet.formed()
    fleet.begin()
    first = {"model.norm.weight": NEW["model.norm.weight"]}
    tickets = fleet.announce({**first, "lm_head.weight": NEW["lm_head.weight"]}, dtypes=["bfloat16", "torch.bfloat16"])
    assert fleet.world.run_until(tickets[0]).body["message"] == (
        "Failed to receive weights: module 'torch' has no attribute 'torch.bfloat16'"
    )
    assert group.wait([group.broadcast(first["model.norm.weight"])], 1.0)


def test_a_rank_hands_on_only_what_it_was_given(make):
    # gloo's tree: rank 3 is fed by rank 1, so rank 0 does not notice that it never receives.
    fleet = make(4)
    group = fleet.formed()
    for name in ("e0", "e1", "e3"):
        fleet.world.call(name, "POST", "/begin_weight_update", {})
    tickets = fleet.announce({"model.norm.weight": NEW["model.norm.weight"]})
    assert group.wait([group.broadcast(NEW["model.norm.weight"])], 5.0)
    assert fleet.world.run_until(tickets[2]).status == 400
    assert [fleet.world.wait(tickets[i], 5.0).ending for i in (0, 1, 3)] == ["timeout", "reply", "reply"]


def test_nccl_is_refused_on_a_cpu_once_the_store_is_there(make):
    fleet = make()
    group = fleet.groups.open("g", 2, "nccl")
    (ticket,) = fleet.init(group)
    message = fleet.world.run_until(ticket, 1.0).body["message"]
    assert message == "Failed to initialize custom process group: Distributed package doesn't have NCCL built in."


class TestNccl:
    def test_it_sends_to_all_or_to_nobody(self, make):
        fleet = make(2, device="cuda")
        group = fleet.formed()
        fleet.world.call("e0", "POST", "/begin_weight_update", {})
        tickets = fleet.announce({"model.norm.weight": NEW["model.norm.weight"]})
        with pytest.raises(GroupTimeout, match="ranks 1, 2 took no broadcast"):
            group.wait([group.broadcast(NEW["model.norm.weight"])], 5.0)
        assert tickets[1].outcome.status == 400
        group.close()
        assert "NCCL error" in fleet.world.run_until(tickets[0], 1.0).body["message"]

    def test_a_dropped_buffer_is_somebody_elses(self, make):
        fleet = make(device="cuda")
        group = fleet.formed()
        fleet.begin()
        tickets = fleet.announce({"model.norm.weight": NEW["model.norm.weight"]})
        sent = group.broadcast(NEW["model.norm.weight"].copy())
        assert group.wait([sent], 5.0)
        assert fleet.world.run_until(tickets[0]).status == 200
        assert np.allclose(fleet.norm(), -1.293, atol=0.01)
        assert "buffer_dropped" in [name for name, _ in fleet.records]

    def test_it_refuses_what_is_not_contiguous(self, make):
        group = make(device="cuda").formed()
        with pytest.raises(ValueError, match="Tensors must be contiguous"):
            group.broadcast(np.zeros((3, 2), dtype=np.float32).T)

    def test_a_bound_default_group_is_split_and_its_other_ranks_are_waited_for(self, make):
        fleet = make(device="cuda")
        fleet.groups.default.bound_device_id = "cuda:0"
        fleet.groups.default.ranks = 3
        group = fleet.groups.open("g", 2)
        fleet.init(group)
        with pytest.raises(GroupTimeout, match="trainer ranks 1, 2"):
            group.join(1.0)

    def test_cumem_differs(self, make):
        fleet = make(device="cuda")
        fleet.groups.env["NCCL_CUMEM_ENABLE"] = "1"
        group = fleet.groups.open("g", 2)
        (ticket,) = fleet.init(group)
        with pytest.raises(GroupError, match="unhandled cuda error"):
            group.join(1.0)
        assert fleet.world.run_until(ticket, 1.0).status == 400

    def test_cumem_is_read_once(self, make):
        fleet = make(device="cuda")
        fleet.formed().close()
        fleet.groups.env["NCCL_CUMEM_ENABLE"] = "1"
        fleet.world.call("e0", "POST", "/destroy_weights_update_group", {"group_name": "g"})
        fleet.formed()


def test_what_is_left_open_is_closed(make):
    fleet = make()
    fleet.formed()
    fleet.groups.open("h", 2)
    assert fleet.groups.live() == 2
    fleet.groups.close()
    assert fleet.groups.live() == 0
