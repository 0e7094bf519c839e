"""How often an address may show a wrong token before it has to wait.

The first few wrong tokens are free; then every further one doubles the wait, up to a minute. A
right token, or a long silence, clears the address. How many addresses are remembered is bounded:
the one that was wrong longest ago goes first. An IPv6 network of 64 bits counts as one address,
since whoever has one address of it has all.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import AddressValueError, IPv6Address

from hocket.model import MINUTE_US, SECOND_US

FREE = 5  # wrong tokens before the first wait
WAIT_US_FIRST = SECOND_US
WAIT_US_MAX = MINUTE_US
FORGOTTEN_AFTER_US = 10 * MINUTE_US  # without a wrong token, since the last wait ended
ADDRESSES_MAX = 10_000


@dataclass(slots=True)
class _Suspect:
    wrong: int = 0
    until_us: int = 0  # no token from there is looked at before then


class Throttle:
    def __init__(self) -> None:
        self._suspects: dict[str, _Suspect] = {}  # the one that was wrong last stands last

    def __len__(self) -> int:
        return len(self._suspects)

    def wait_us(self, address: str, now_us: int) -> int:
        """How long this address has to wait; 0: its token may be looked at."""
        suspect = self._suspects.get(_network(address))
        if suspect is None:
            return 0
        # The clock may have been put back; even then nobody waits longer than the longest wait.
        return min(max(suspect.until_us - now_us, 0), WAIT_US_MAX)

    def was_wrong(self, address: str, now_us: int) -> None:
        network = _network(address)
        suspect = self._suspects.pop(network, None)
        if suspect is None or now_us - suspect.until_us > FORGOTTEN_AFTER_US:
            suspect = _Suspect()
        suspect.wrong += 1
        doublings = suspect.wrong - FREE
        wait_us = 0 if doublings < 0 else min(WAIT_US_FIRST << min(doublings, 32), WAIT_US_MAX)
        suspect.until_us = now_us + wait_us
        if len(self._suspects) >= ADDRESSES_MAX:
            del self._suspects[next(iter(self._suspects))]
        self._suspects[network] = suspect

    def was_right(self, address: str) -> None:
        self._suspects.pop(_network(address), None)


def _network(address: str) -> str:
    if ":" not in address:
        return address
    try:
        number = IPv6Address(address.partition("%")[0])
    except AddressValueError:
        return address
    if number.ipv4_mapped is not None:
        return str(number.ipv4_mapped)
    return str(IPv6Address(int(number) >> 64 << 64))
