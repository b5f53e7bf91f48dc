"""Who finds whom, and when: early and late joiners, two groups at once, receives that nobody feeds."""

from __future__ import annotations

import numpy as np
import pytest

from fakes.transport.groups import GroupTimeout
from tests.fakes.transport.fleet import NEW, OLD


def test_an_engine_that_knocks_early_is_let_in_when_somebody_listens(make):
    fleet = make(2)
    port = fleet.groups.collectives._ports + 1

    class Later:
        address, world_size, name, backend = "127.0.0.1", 2, "g", "gloo"

    Later.port = port
    (early,) = fleet.init(Later, engines=["e0"])
    fleet.world.sleep(1)
    other = fleet.groups.open("other", 2)
    fleet.world.sleep(1)
    assert fleet.world.engines["e0"].shell.blocked == {0: "Join(g)"}
    group = fleet.groups.open("g", 2)
    assert (other.port, group.port) == (port - 1, port)
    assert group.join(1.0)
    assert fleet.world.run_until(early, 1.0).status == 200


def test_an_engine_that_knocks_at_another_door_is_not_let_in(make):
    fleet = make()
    fleet.groups.open("g", 2)

    class Nowhere:
        address, port, world_size, name, backend = "127.0.0.1", 1, 2, "g", "gloo"

    (ticket,) = fleet.init(Nowhere)
    outcome = fleet.world.run_until(ticket)
    assert outcome.body["message"] == (
        "Failed to initialize custom process group: The client socket has timed out after 1800000ms while trying to "
        "connect to (127.0.0.1, 1).."
    )


def test_a_dead_engine_knocks_no_more_and_waits_no_more(make):
    fleet = make(2)

    class Door:
        address, port, world_size, name, backend = "127.0.0.1", 29500, 2, "g", "gloo"

    fleet.init(Door, engines=["e0"])
    fleet.world.sleep(1)
    fleet.world.engines["e0"].kill()
    group = fleet.groups.open("g", 2)
    fleet.init(group, offset=1, engines=["e1"])
    assert group.join(1.0)
    second = fleet.groups.open("h", 3)
    fleet.init(second, engines=["e1"])
    fleet.world.sleep(1)
    fleet.world.engines["e1"].kill()
    with pytest.raises(GroupTimeout, match="ranks 1, 2"):
        second.join(1.0)


def test_engines_may_make_a_group_among_themselves(make):
    fleet = make(1, tp=2)

    class Among:
        address, port, world_size, name, backend = "127.0.0.1", 29777, 2, "g", "gloo"

    (ticket,) = fleet.init(Among, offset=0)
    assert fleet.world.run_until(ticket, 1.0).status == 200


def test_a_receive_that_nobody_feeds_ends_after_half_an_hour(make):
    fleet = make()
    fleet.formed()
    fleet.begin()
    (ticket,) = fleet.announce(NEW)
    outcome = fleet.world.run_until(ticket)
    assert outcome.body["message"].endswith("Timed out waiting 1800000ms for recv operation to complete")
    assert outcome.elapsed_s == pytest.approx(1800, abs=1)


def test_two_groups_at_once_are_two(make):
    fleet = make()
    one, two = fleet.formed("one"), fleet.formed("two")
    assert one.port != two.port
    fleet.begin()
    for group, weights in ((two, NEW), (one, OLD)):
        named = {"model.norm.weight": weights["model.norm.weight"]}
        (ticket,) = fleet.announce(named, name=group.name)
        assert group.wait([group.broadcast(a) for a in named.values()], 1.0)
        assert fleet.world.run_until(ticket, 1.0).status == 200
        assert fleet.norm() == named["model.norm.weight"].astype(np.float32).tolist()
    assert fleet.world.call("e0", "POST", "/destroy_weights_update_group", {"group_name": "one"}).status == 200
    assert fleet.world.engines["e0"].alive
    (ticket,) = fleet.announce({"model.norm.weight": NEW["model.norm.weight"]}, name="two")
    assert two.wait([two.broadcast(NEW["model.norm.weight"])], 1.0)


def test_a_bucket_that_is_not_aligned_is_refused_after_it_was_received(make):
    fleet = make(profile="0.5.22")
    group = fleet.formed()
    fleet.begin()
    told = {"names": ["a", "b"], "dtypes": ["uint8", "bfloat16"], "shapes": [[1], [2]]}
    body = {**told, "group_name": "g", "load_format": "flattened_bucket"}
    ticket = fleet.world.submit("e0", "POST", "/update_weights_from_distributed", body)
    assert group.wait([group.broadcast(np.zeros(5, dtype=np.uint8))], 1.0)
    message = fleet.world.run_until(ticket, 1.0).body["message"]
    assert message.startswith("Failed to receive weights: self.storage_offset() must be divisible by 2")


@pytest.mark.parametrize(
    ("profile", "body", "message"),
    [
        ("0.5.22", {"names": []}, "Cannot create empty tensor bucket"),
        ("0.5.23", {"shapes": [[-1]]}, "Negative dimension in received tensor a: torch.Size([-1])"),
        ("0.5.22", {"shapes": [[-1]]}, "Trying to create tensor with negative dimension -1: [-1]"),
    ],
)
def test_buckets_that_are_refused_before_anything_is_received(make, profile, body, message):
    fleet = make(profile=profile)
    fleet.formed()
    fleet.begin()
    told = {"names": ["a"], "dtypes": ["bfloat16"], "shapes": [[2]], "group_name": "g", **body}
    ticket = fleet.world.submit(
        "e0", "POST", "/update_weights_from_distributed", {**told, "load_format": "flattened_bucket"}
    )
    assert fleet.world.run_until(ticket, 1.0).body["message"] == f"Failed to receive weights: {message}"
