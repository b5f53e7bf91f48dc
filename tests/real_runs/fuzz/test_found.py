"""What the oracle found, each as the shortest sequence, with SGLang's own answer."""

import pytest

from real_runs import sequence as s
from real_runs.fuzz.fake_updater import FakeUpdater
from real_runs.fuzz.sides import FakeSide, tiny

BEGIN = {"op": "begin_weight_update", "body": {"selector": "all"}}
WITH_SESSIONS = ("miles", "0.5.21", "0.5.22", "0.5.23")
BAD = "invalid selector 'both'; expected 'target', 'draft', or 'all'"


def tensors(payload, load_format, selector):
    body = {"serialized_named_tensors": [payload], "load_format": load_format, "selector": selector}
    return {"op": "update_weights_from_tensor", "body": body}


def distributed(selector):
    body = {"names": ["model.norm.weight"], "dtypes": ["float32"], "shapes": [[64]]}
    return {"op": "update_weights_from_distributed", "body": {**body, "group_name": "g", "selector": selector}}


JOIN = {
    "op": "init_weights_update_group",
    "body": {
        "master_address": "127.0.0.1",
        "master_port": 1,
        "rank_offset": 1,
        "world_size": 2,
        "group_name": "g",
        "backend": "gloo",
    },
}


@pytest.mark.parametrize("version", WITH_SESSIONS)
def test_the_checker_catches_a_selector_that_it_does_not_know(version):
    answer = FakeUpdater(version).do({"op": "weights_checker", "body": {"action": "snapshot", "selector": "both"}})
    assert (answer["success"], answer["message"]) == (False, BAD)


@pytest.mark.parametrize("version", WITH_SESSIONS)
def test_an_update_from_a_disk_leaves_the_session_as_it_was(version):
    disk = {"op": "update_weights_from_disk", "body": {"model_path": "/nowhere", "flush_cache": False}}
    begun, loaded = FakeUpdater(version).play([BEGIN, disk])
    assert loaded["success"] is True
    assert begun["session"] == loaded["session"] == ["all", False]


@pytest.mark.parametrize("version", WITH_SESSIONS)
@pytest.mark.parametrize(("payload", "load_format"), [("good", "auto"), ("good", "flattened_bucket"), ("number", None)])
def test_a_payload_for_no_runner_is_unpickled_and_no_more(version, payload, load_format):
    answer = FakeUpdater(version).play([BEGIN, tensors(payload, load_format, "draft")])[-1]
    assert (answer["success"], answer["message"], answer["loads"]) == (True, "Success", 0)
    assert answer["session"] == ["all", True]


@pytest.mark.parametrize("version", WITH_SESSIONS)
def test_a_payload_for_no_runner_kills_if_it_cannot_be_unpickled(version):
    answer = FakeUpdater(version).play([BEGIN, tensors("garbage", None, "draft")])[-1]
    assert answer["raised"][0] == "UnpicklingError"


@pytest.mark.parametrize("version", WITH_SESSIONS)
def test_an_unknown_selector_is_met_before_what_the_payload_holds(version):
    answer = FakeUpdater(version).play([BEGIN, tensors("good", "auto", "both")])[-1]
    assert answer == {"raised": ["ValueError", BAD]}


def test_miles_looks_at_a_distributed_update_s_selector_inside_its_try():
    answer = FakeUpdater("miles").play([BEGIN, JOIN, distributed("both")])[-1]
    assert answer["success"] is False
    assert answer["message"].startswith(f"Failed to update parameter online: {BAD}. The full weights")


@pytest.mark.parametrize("version", ["0.5.21", "0.5.22", "0.5.23"])
def test_the_released_versions_die_of_it(version):
    assert FakeUpdater(version).play([BEGIN, JOIN, distributed("both")])[-1] == {"raised": ["ValueError", BAD]}


def test_over_http_an_update_for_no_runner_is_granted_whatever_its_format():
    from fakes.engine.protocol import EngineConfig
    from fakes.fronts.inprocess import Server
    from fakes.tiny import tiny_config, tiny_weights
    from fakes.world import World

    config = tiny_config("llama")
    with World(seed=0) as world:
        engine = world.add_engine("e0", EngineConfig(), tiny_weights(config, 0), config)
        server = Server(world, engine)
        assert server.request("POST", "begin_weight_update", {}).status == 200
        body = {"serialized_named_tensors": ["gARLBy4="], "load_format": "auto", "selector": "draft"}
        outcome = server.request("POST", "update_weights_from_tensor", body)
        assert (outcome.status, outcome.body) == (200, {"success": True, "message": "Success"})
        assert engine.alive


@pytest.mark.parametrize(
    ("path", "words"), [("/nowhere", "Repo id must use"), ("/no/such/folder", "Repo id must be in")]
)
def test_a_folder_that_is_not_there_is_refused_in_hugging_face_s_words(path, words):
    """Found on a real 0.5.23: slashes are counted before characters are looked at."""
    from fakes.engine.protocol import EngineConfig
    from fakes.fronts.inprocess import Server
    from fakes.tiny import tiny_config, tiny_weights
    from fakes.world import World

    config = tiny_config("llama")
    with World(seed=0) as world:
        engine = world.add_engine("e0", EngineConfig(), tiny_weights(config, 0), config)
        outcome = Server(world, engine).request("POST", "update_weights_from_disk", {"model_path": path})
        assert outcome.status == 400
        assert outcome.body["message"].startswith(f"Failed to get weights iterator: {words}")
        assert f"'{path}'" in outcome.body["message"]


def test_a_distributed_update_of_nothing_waits_for_nobody():
    body = {"names": [], "dtypes": [], "shapes": [], "group_name": "g"}
    gone = {"op": "update_weights_from_distributed", "body": body, "receive": "raises"}
    assert FakeUpdater("0.5.21").play([JOIN, BEGIN, gone])[-1]["success"] is True


@pytest.mark.parametrize(("version", "tp"), [("0.5.20", 1), ("0.5.23", 1), ("0.5.20", 2), ("0.5.23", 2)])
def test_the_ranks_of_an_engine_that_are_a_group_alone_wait_for_nobody(version, tp):
    alone = {"group_name": "g", "master_address": "127.0.0.1", "master_port": {"$port": 0}, "backend": "gloo"}
    body = {"names": ["model.nothing.weight"], "dtypes": ["float32"], "shapes": [[2]], "group_name": "g"}
    steps = [s.call("init_weights_update_group", {**alone, "rank_offset": 0, "world_size": tp})]
    steps += [s.BEGIN] if version == "0.5.23" else []
    steps += [s.call("update_weights_from_distributed", body), s.canary()]
    done = FakeSide(version, tiny(tp)).perform(s.Sequence(name="alone", about="", steps=steps))
    assert [answer.status for answer in done.answers] == [200] * len(steps)


ALL = s.call("abort_request", {"abort_all": True})


@pytest.mark.parametrize(("version", "stream"), [("0.5.17", True), ("0.5.17", False), ("0.5.18", True)])
def test_an_abort_ends_a_generation_that_a_pause_holds_back_only_in_0_5_17(version, stream):
    held = s.start("a", "generate", s.generate(n=4, stream=stream, rid="r"))
    steps = [s.pause("in_place"), held, s.sleep(0.02), ALL, s.CONTINUE, s.join("a")]
    done = FakeSide(version, tiny()).perform(s.Sequence(name="held", about="", steps=steps)).answers[1]
    if version == "0.5.18":
        assert done.body["meta_info"]["finish_reason"] == {"type": "length", "length": 4}
        return
    error = {"message": "Request r was aborted"}
    if stream:
        error |= {"type": "invalid_request_error", "code": 499, "retryable": False}
    assert (done.status, done.body) == (200 if stream else 499, {"error": error})


def queued_abort(version, seconds, *more):
    long = s.start("a", "generate", s.generate(n=400, stream=True, rid="r"), compare="prefix")
    steps = [long, s.sleep(seconds), s.pause("retract"), ALL, s.join("a"), s.CONTINUE, *more]
    return FakeSide(version, tiny()).perform(s.Sequence(name="queued", about="", steps=steps))


@pytest.mark.parametrize("version", ["0.5.12.post1", "0.5.17", "0.5.19", "0.5.20", "0.5.23"])
def test_up_to_0_5_19_the_end_of_a_stream_aborted_in_the_queue_has_its_last_token_only(version):
    end = queued_abort(version, 0.05).answers[0].body
    came = end["meta_info"]["completion_tokens"]
    assert came > 1
    assert len(end["output_ids"]) == (1 if version in ("0.5.12.post1", "0.5.17", "0.5.19") else came)


@pytest.mark.parametrize(("version", "status"), [("0.5.12.post1", 400), ("0.5.17", 200)])
def test_in_0_5_12_the_name_of_a_generation_aborted_in_the_queue_stays_taken(version, status):
    again = queued_abort(version, 0.05, s.call("generate", s.generate(n=4, rid="r"))).answers[-1]
    assert again.status == status
