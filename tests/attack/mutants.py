"""Planted bugs, which the attackers must find: `python -m tests.attack.mutants NAME serve ...`.

Each is something that was missing, or that one line could lose again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

MUTANTS: dict[str, Callable[[], None]] = {}


def mutant(plant: Callable[[], None]) -> Callable[[], None]:
    MUTANTS[plant.__name__] = plant
    return plant


@mutant
def checksums_are_not_compared() -> None:
    from hocket.core.partition.dedupe import Dedupe

    judge = Dedupe.judge

    def credulous(self: Dedupe, producer_id: bytes, epoch: int, sequence: int, *_: Any) -> Any:
        return judge(self, producer_id, epoch, sequence)

    Dedupe.judge = credulous  # type: ignore[assignment,method-assign]


@mutant
def ids_belong_to_everybody() -> None:
    from hocket.node.requests.producing import Producing

    Producing._check_owner = lambda self, session, *_: session.rights.owner  # type: ignore[method-assign]


@mutant
def what_follows_a_refused_batch_is_stored() -> None:
    from hocket.node.requests.producing import Producing

    produce = Producing._produce

    def hasty(self: Producing, *arguments: Any) -> None:
        produce(self, *arguments[:5])

    Producing._produce = hasty  # type: ignore[method-assign]


@mutant
def handles_are_not_counted() -> None:
    from hocket.core.session.session import Session

    Session._check_handles = lambda self: None  # type: ignore[method-assign]


@mutant
def partitions_are_not_checked() -> None:
    from hocket.core.session.session import Session

    Session._check_partition = lambda self, *_: None  # type: ignore[method-assign]


@mutant
def an_address_waits_whatever_its_token_is() -> None:
    from hocket.node.identity.authentication import Authentication

    is_right = Authentication._is_right

    def impatient(self: Authentication, login: Any) -> bool:
        now_us = self._wiring.clock.now_us()
        waits = self._throttle.wait_us(self._address(login), now_us) > 0
        return not waits and is_right(self, login)

    Authentication._is_right = impatient  # type: ignore[method-assign]


@mutant
def a_token_is_not_looked_at() -> None:
    from hocket.node.identity.authentication import Authentication

    Authentication._is_right = (  # type: ignore[method-assign]
        lambda self, login: (login.user or "") in self._access.committed.users
    )


@mutant
def headers_are_not_checked_against_their_checksum() -> None:
    from hocket.wire import framing

    real = framing.PREFIX

    class Forgiving:
        size = real.size
        pack = staticmethod(real.pack)

        @staticmethod
        def unpack_from(buffer: Any, at: int) -> tuple[int, int, int]:
            length, _crc, payload = real.unpack_from(buffer, at)
            start = at + real.size
            return length, framing.crc32c(buffer[start : start + length]), payload

    framing.PREFIX = Forgiving  # type: ignore[misc,assignment]


@mutant
def entries_of_any_kind_are_stored() -> None:
    from hocket.node.requests import producing
    from hocket.wire.batch import BatchInfo
    from hocket.wire.entry import unpack_header

    check, look_into = producing.whole_batches, producing.check_content

    def blind(entries: memoryview, **options: Any) -> list[BatchInfo]:
        header = unpack_header(entries)
        if header.kind == 1:
            return check(entries, **options)
        return [BatchInfo(header._replace(count=1), b"x" * 16, 0, 0, 0, header.size)]

    def look_away(payload: memoryview, info: BatchInfo) -> None:
        if info.header.kind == 1:
            look_into(payload, info)

    producing.whole_batches = blind  # type: ignore[assignment]
    producing.check_content = look_away  # type: ignore[assignment]


@mutant
def a_client_is_taken_for_a_node() -> None:
    from hocket.adapters import node_certificate

    node_certificate.check_node_certificate = lambda certificate, *_: (
        None if certificate else "it shows no certificate"
    )


@mutant
def names_belong_to_everybody() -> None:
    from hocket.core.metadata.names import Names

    register = Names.register

    def generous(self: Names, origin: object, wanted: Any) -> Any:
        self._leading.pop(wanted.name, None)
        return register(self, origin, wanted)

    Names.register = generous  # type: ignore[method-assign]


def main() -> None:
    name = sys.argv.pop(1)
    MUTANTS[name]()
    from hocket.cli import main as hocket_main

    hocket_main()


if __name__ == "__main__":
    main()
