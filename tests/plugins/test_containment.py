"""A plug-in that raises or is slow is named, and harms nobody but as its policy says."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from typing import TYPE_CHECKING, cast

import pytest

from hocket.errors import NotAllowed, Rejected
from hocket.plugins import Publish, Sample, hook
from hocket.plugins.found import Loaded, Unusable
from hocket.plugins.host import Host
from hocket.plugins.testing import broker_with

if TYPE_CHECKING:
    from hocket.plugins.doors import Surroundings


class Open:
    """Changes a batch, and fails before it is done with it."""

    api = 1
    policy = "open"

    @hook
    def on_publish(self, batch: Publish) -> None:
        batch.values = [b"spoilt"] * len(batch)
        raise KeyError("of the plug-in")


class Closed(Open):
    policy = "closed"


class Leaves:
    api = 1
    policy = "open"

    @hook
    def on_publish(self, batch: Publish) -> None:
        sys.exit("a plug-in that ends the process")


class Cancels:
    api = 1
    policy = "open"

    @hook
    def on_publish(self, batch: Publish) -> None:
        raise asyncio.CancelledError


class Slow:
    api = 1

    @hook
    def on_publish(self, batch: Publish) -> None:
        time.sleep(0.03)


class Veto:
    api = 1

    @hook
    def authorize(self, user: str) -> str | None:
        raise ValueError("no idea")


def value_at(broker, offset: int) -> bytes:
    with broker.client.subscribe("t", start="earliest") as subscription:
        return [subscription.receive(10).value for _ in range(offset + 1)][-1]


@pytest.mark.parametrize("plugin", [Open, Leaves, Cancels])
def test_one_that_fails_open_is_as_if_it_were_not_there(plugin, caplog: pytest.LogCaptureFixture):
    name = plugin.__name__.lower()
    with broker_with(plugin, failures_max=3) as broker:
        broker.client.create_topic("t")
        for number in range(5):
            broker.client.publish("t", b"%d" % number)
        assert value_at(broker, 4) == b"4"
        running = broker.plugin(name)
        assert not running.is_on
        assert running.timings["on_publish"].failures == 3  # and then it was not called any more
        node = broker._broker.node
        assert node.wiring.hooks.on_publish is None  # nor does it cost anything
    said = [record.getMessage() for record in caplog.records if record.name == "hocket.plugins"]
    assert sum(f"plug-in '{name}' failed in on_publish" in line for line in said) == 3
    assert sum(f"plug-in '{name}' is switched off" in line for line in said) == 1


def test_one_that_fails_closed_lets_nothing_pass(caplog: pytest.LogCaptureFixture):
    with broker_with(Closed, failures_max=2) as broker:
        broker.client.create_topic("t")
        for _ in range(4):
            with pytest.raises(Rejected, match="'closed', which has to look at these messages"):
                broker.client.publish("t", b"v")
        assert broker.client.describe("t").partitions[0].end == 0
    assert "what it fails at is refused" in caplog.text
    said = [each.getMessage() for each in caplog.records if "failed in" in each.getMessage()]
    assert len(said) == 2  # who fails all the time is not named all the time


def test_what_one_client_sends_has_nobody_else_refused():
    class Judge:
        api = 1

        @hook
        def on_publish(self, batch: Publish) -> None:
            if batch.topic == "poison":
                raise RecursionError("of what was sent")

        @hook
        def on_deliver(self) -> None:
            raise KeyError("of what was delivered")

    with broker_with(Judge, failures_max=2) as broker:
        broker.client.create_topic("poison")
        broker.client.create_topic("t")
        for _ in range(5):
            with pytest.raises(Rejected):
                broker.client.publish("poison", b"v")
        for _ in range(5):
            broker.client.publish("t", b"v")
            assert value_at(broker, 0) == b"v"
        broker.client.publish("t", b"v")


@pytest.mark.parametrize("answer", [False, True, object()])
def test_a_judge_whose_answer_means_nothing_has_failed(answer: object):
    class Vague:
        api = 1

        @hook
        def on_publish(self) -> object:
            return answer

        @hook
        def authorize(self) -> object:
            return answer

    import hocket

    with broker_with(Vague) as broker:
        broker.client.create_topic("t")
        with pytest.raises(Rejected, match="failed"):
            broker.client.publish("t", b"v")
        with (
            hocket.connect(broker.listen()) as client,
            pytest.raises(NotAllowed, match="'vague', which has to allow it, failed"),
        ):
            client.publish("t", b"v")
        assert "it has to return a text, or None" in broker.plugin("vague").problem


def test_a_door_that_cannot_renew_its_certificates_is_named_and_the_others_do():
    renewed = []

    class Gate:
        def __init__(self, address: str) -> None:
            self.address = address

        def renew_tls(self) -> None:
            if self.address == "broken":
                raise OSError("no such file")
            renewed.append(self.address)

        def close(self) -> None: ...

    def doorkeeper(address: str) -> Loaded:
        return Loaded(address, "1", "closed", {"open_door": lambda _around: Gate(address)})

    host = Host()
    for address in ("broken", "right"):
        host.add(doorkeeper(address))
    host.open_doors(cast("Surroundings", None))
    with pytest.raises(Unusable, match=r"the door at broken keeps its own: .*no such file"):
        host.renew_tls()
    assert renewed == ["right"]


def test_what_fails_at_a_login_is_told_without_the_token(caplog: pytest.LogCaptureFixture):
    class Login:
        api = 1

        @hook
        def authenticate(self, token: str) -> str | None:
            raise ValueError(f"what is {token}?")

    import hocket

    with broker_with(Login) as broker, caplog.at_level(logging.DEBUG):
        broker.client.create_user("root", roles=["admin"])
        with pytest.raises(NotAllowed):
            hocket.connect(broker.listen(), token="secret-of-somebody")
        assert broker.plugin("login").problem == "authenticate: ValueError"
    assert "plug-in 'login' failed in authenticate: ValueError" in caplog.text
    assert "secret-of-somebody" not in caplog.text


def test_failures_that_are_not_in_a_row_leave_it_on():
    class Moody:
        api = 1
        policy = "open"

        @hook
        def on_publish(self, batch: Publish) -> None:
            if batch.values[0] == b"bad":
                raise ValueError

    with broker_with(Moody, failures_max=2) as broker:
        broker.client.create_topic("t")
        for value in (b"bad", b"good", b"bad", b"good"):
            broker.client.publish("t", value)
        assert broker.plugin("moody").is_on
        assert broker.plugin("moody").timings["on_publish"].failures == 2


def test_one_that_is_slow_is_named_once_in_a_while(caplog: pytest.LogCaptureFixture):
    with broker_with(Slow, slow_ms=10) as broker, caplog.at_level(logging.WARNING):
        broker.client.create_topic("t")
        for _ in range(3):
            broker.client.publish("t", b"v")
        timing = broker.plugin("slow").timings["on_publish"]
        assert (timing.calls, timing.slow) == (3, 3)
        assert timing.max_ns >= 30e6
    slow = [each.getMessage() for each in caplog.records if "took" in each.getMessage()]
    assert len(slow) == 1
    assert "plug-in 'slow' took" in slow[0]


def test_a_judge_of_rights_that_fails_allows_nothing():
    import hocket

    with broker_with(Veto, failures_max=2) as broker:
        broker.client.create_topic("t")  # within the process everything is allowed
        with hocket.connect(broker.listen()) as client:
            for _ in range(3):
                with pytest.raises(NotAllowed, match="'veto', which has to allow it, failed"):
                    client.publish("t", b"v")


def test_one_that_fails_beside_the_node_is_switched_off_on_the_nodes_thread():
    """Else a hook might go while the node is about to call it."""

    class Teller:
        api = 1
        policy = "open"

        @hook
        def on_publish(self, batch: Publish) -> None: ...

        @hook
        def on_metrics(self, samples: list[Sample]) -> None:
            raise KeyError("of the plug-in")

    with broker_with(Teller, failures_max=1) as broker:
        host, hooks = broker._host, broker._broker.node.wiring.hooks

        def hook_after_failure() -> object:
            metrics = threading.Thread(target=host._metrics, args=([],))
            metrics.start()
            metrics.join()
            return hooks.on_publish

        assert broker.on_its_thread(hook_after_failure) is not None
        assert broker.on_its_thread(lambda: hooks.on_publish) is None
