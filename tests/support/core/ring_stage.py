"""Several real ring cores, joined without a network, in virtual time.

Messages take a while, and may be lost; timers come when they should, with jitter from one stream of
chance. The root's registry is a dict that answers a little later, as one on a disk would. There is
no checker here but `is_ideal`: what must hold after every event is shown elsewhere.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from random import Random

from hocket.core.ring import events
from hocket.core.ring.circle import SIZE
from hocket.core.ring.contact import Contact, seed
from hocket.core.ring.pointers import Standing
from hocket.core.ring.ring import Ring
from hocket.core.ring.settings import RingSettings

SECOND = 1_000_000


def tight(successors: int = 3, **others: int) -> RingSettings:
    """Settings with which a minute holds a lot."""
    values = {
        "stabilize_us": SECOND,
        "query_us": 100_000,
        "query_us_min": 50_000,
        "query_us_max": 300_000,
        "suspicion_us_min": 400_000,
        "finger_us": 3 * SECOND,
        "lookup_us_max": 3 * SECOND,
        "beacon_us": SECOND,
        "beacon_stale_us": 6 * SECOND,
        "rejoin_jitter_us": SECOND,
    }
    return RingSettings(successors=successors, **(values | others))


class Player:
    """One node: its core, its timers, and what came out of it."""

    def __init__(self, stage: Stage, name: str, position: int, *, is_root: bool) -> None:
        self.stage = stage
        self.name, self.position, self.is_root = name, position, is_root
        self.incarnation = 0
        self.is_up = True
        self.armed: dict[events.Timer, int] = {}  # timer -> the number of its entry in the queue
        self.found: dict[int, events.Located | events.NotLocated] = {}
        self.died: list[Contact] = []
        self.new_life()

    def new_life(self) -> None:
        self.incarnation += 1
        self.armed.clear()
        me = Contact(self.position, self.name, self.incarnation, f"at {self.name}")
        self.core = Ring(me, self.stage.settings, is_root=self.is_root)
        if self.is_root:
            version, members = self.stage.registry()
            self.step(events.RegistryChanged(version, members))

    def step(self, event: events.Event) -> None:
        core = self.core
        for effect in core.step(event, self.stage.now_us):
            self.stage.effects[type(effect)](self, effect)
            if self.core is not core:
                return


class Stage:
    def __init__(self, settings: RingSettings, number: int = 0, loss: float = 0.0) -> None:
        self.settings = settings
        self.chance = Random(number)
        self.loss = loss
        self.now_us = 0
        self.players: dict[str, Player] = {}
        self.is_cut: Callable[[str, str], bool] = lambda _one, _other: False
        self.version = 0
        self.enrolled: dict[str, Contact] = {}
        self.sent: dict[str, int] = {}
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._number = 0

    # --- time --------------------------------------------------------------

    def at(self, delay_us: int, action: Callable[[], None]) -> int:
        self._number += 1
        heapq.heappush(self._queue, (self.now_us + delay_us, self._number, action))
        return self._number

    def cut_off(self, names: Sequence[str]) -> tuple[list[str], list[str]]:
        """Nothing passes between these and the others; gives both halves."""
        self.is_cut = lambda one, other: (one in names) != (other in names)
        return list(names), [name for name in self.up() if name not in names]

    def heal(self) -> None:
        self.is_cut = lambda _one, _other: False

    def run(self, duration_us: int, until: Callable[[], bool] = lambda: False) -> bool:
        """True as soon as `until` holds, looked at after every event."""
        end_us = self.now_us + duration_us
        while self._queue and self._queue[0][0] <= end_us:
            self.now_us, _number, action = heapq.heappop(self._queue)
            action()
            if until():
                return True
        self.now_us = end_us
        return False

    # --- players -----------------------------------------------------------

    def add(self, name: str, position: int | None = None, *, is_root: bool = False) -> Player:
        if position is None:
            position = self.chance.randrange(SIZE)
        self.players[name] = player = Player(self, name, position, is_root=is_root)
        return player

    def begin(self, count: int) -> None:
        """An ideal ring; the first player is the root."""
        players = [self.add(f"n{number}", is_root=not number) for number in range(count)]
        members = tuple(sorted(player.core.me for player in players))
        for player in players:
            player.step(events.Begin(members, "at n0"))

    def join(self, name: str, seeds: Iterable[str] = ("n0",)) -> Player:
        player = self.add(name)
        player.step(events.Join(tuple(seed(f"at {each}") for each in seeds)))
        return player

    def crash(self, name: str) -> None:
        self.players[name].is_up = False
        self.players[name].armed.clear()

    def restart(self, name: str, seeds: Iterable[str] = ("n0",)) -> None:
        player = self.players[name]
        player.is_up = True
        player.new_life()
        player.step(events.Join(tuple(seed(f"at {each}") for each in seeds)))

    def find(self, name: str, key: int) -> events.Located | events.NotLocated:
        player = self.players[name]
        player.found.pop(0, None)
        player.step(events.Find(0, key))
        self.run(self.settings.lookup_us_max, lambda: 0 in player.found)
        return player.found[0]

    def up(self) -> list[str]:
        return [name for name, player in self.players.items() if player.is_up]

    def living(self, among: Iterable[str] | None = None) -> list[Ring]:
        """Those on the ring, by position; without `among`, of all who are up."""
        cores = [self.players[name].core for name in (self.up() if among is None else among)]
        on_the_ring = [core for core in cores if core.is_on_the_ring]
        return sorted(on_the_ring, key=lambda core: core.me.position)

    def is_ideal(self, among: Sequence[str] | None = None) -> bool:
        """These, or all who are up, are on one ring with nobody else, with exact lists."""
        among = self.up() if among is None else among
        cores = self.living(among)
        count = len(cores)
        if count < len(among):
            return False
        length = min(self.settings.successors, count - 1)
        for place, core in enumerate(cores):
            behind = [cores[(place + step) % count].me for step in range(1, length + 1)]
            if core.successors != behind:
                return False
            if count > 1 and core.predecessor != cores[place - 1].me:
                return False
        return len({core.standing for core in cores}) == 1

    def standings(self) -> dict[Standing, int]:
        counts: dict[Standing, int] = {}
        for player in self.players.values():
            counts[player.core.standing] = counts.get(player.core.standing, 0) + 1
        return counts

    # --- effects -----------------------------------------------------------

    def registry(self) -> tuple[int, tuple[Contact, ...]]:
        return self.version, tuple(sorted(self.enrolled.values()))

    def _send(self, player: Player, effect: events.Send) -> None:
        name = type(effect.message).__name__
        self.sent[name] = self.sent.get(name, 0) + 1
        to = effect.to.address.removeprefix("at ")
        if self.chance.random() < self.loss or self.is_cut(player.name, to):
            return
        heard = events.Heard(player.core.me, effect.to.incarnation, effect.message)
        delay_us = self.chance.randrange(1_000, 20_000)
        self.at(delay_us, lambda: self._deliver(to, heard))

    def _deliver(self, to: str, heard: events.Heard) -> None:
        player = self.players.get(to)
        if player is not None and player.is_up:
            player.step(heard)

    def _arm(self, player: Player, effect: events.Arm) -> None:
        delay_us = effect.after_us
        if effect.jitter_us:
            delay_us += self.chance.randrange(effect.jitter_us)
        timer = effect.timer
        number = self._number + 1
        player.armed[timer] = number

        def due() -> None:
            if player.armed.get(timer) == number:
                del player.armed[timer]
                player.step(events.Due(timer))

        assert self.at(delay_us, due) == number

    def _disarm(self, player: Player, effect: events.Disarm) -> None:
        player.armed.pop(effect.timer, None)

    def _located(self, player: Player, effect: events.Located | events.NotLocated) -> None:
        player.found[effect.token] = effect

    def _register(self, player: Player, effect: events.Enrol | events.Strike) -> None:
        def durable() -> None:
            if not player.is_up:
                return
            known = self.enrolled.get(effect.who.node)
            if known is None or known.incarnation <= effect.who.incarnation:
                self.enrolled.pop(effect.who.node, None)
                if isinstance(effect, events.Enrol):
                    self.enrolled[effect.who.node] = effect.who
                self.version += known != self.enrolled.get(effect.who.node)
            player.step(events.RegistryChanged(*self.registry(), effect.sender, effect.request))

        self.at(2_000, durable)

    def _begin_again(self, player: Player, effect: events.BeginAgain) -> None:
        player.new_life()
        player.step(events.Join(effect.seeds))

    def _died(self, player: Player, effect: events.Died) -> None:
        player.died.append(effect.contact)

    def _left(self, player: Player, _effect: events.Left) -> None:
        player.is_up = False

    def _nothing(self, _player: Player, _effect: events.Effect) -> None:
        pass

    @property
    def effects(self) -> dict[type, Callable[..., None]]:
        return {
            events.Send: self._send,
            events.Arm: self._arm,
            events.Disarm: self._disarm,
            events.Located: self._located,
            events.NotLocated: self._located,
            events.Enrol: self._register,
            events.Strike: self._register,
            events.BeginAgain: self._begin_again,
            events.Died: self._died,
            events.Left: self._left,
            events.Joined: self._nothing,
            events.NeighboursChanged: self._nothing,
        }
