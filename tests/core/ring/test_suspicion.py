"""Nobody is given up lightly: cases against silent nodes, and pings for whatever reason."""

from __future__ import annotations

from hocket.core.ring import events, messages
from hocket.core.ring.contact import Contact, seed
from hocket.core.ring.messages import Beacon, Pong, RequestNumbers
from hocket.core.ring.other_rings import LATELY_US
from hocket.core.ring.pings import INDIRECT_MAX, Pings
from hocket.core.ring.ring import Ring
from hocket.core.ring.routes import Routes
from hocket.core.ring.settings import RingSettings
from hocket.core.ring.suspicion import CASES_MAX, FRESH_PERIODS, Suspicions
from tests.support.core.ring_script import contact, contacts
from tests.support.core.ring_stage import SECOND, Stage, tight
from tests.support.core.ring_talk import hear, member, sent

ME = contact("20")


class Court:
    """Cases, with pings that are answered by hand."""

    def __init__(self, helpers: str = "", **settings: int) -> None:
        self.settings = RingSettings(**settings)
        self.routes = Routes(ME, self.settings)
        self.pings = Pings(self.routes, RequestNumbers())
        self.convicted: list[tuple[Contact, int]] = []
        known = list(contacts(helpers))
        self.cases = Suspicions(
            self.settings, self.routes, self.pings, lambda: known, self._convict
        )

    def _convict(self, who: Contact, now_us: int) -> list[events.Effect]:
        self.convicted.append((who, now_us))
        return []

    def play(self, effects: list[events.Effect], now_us: int = 0) -> list[tuple[str, int]]:
        """Nobody answers: to whom the pings went, and when."""
        asked = []
        while effects:
            send, arm = effects
            assert isinstance(send, events.Send)
            assert isinstance(arm, events.Arm)
            asked.append((send.to.node, now_us))
            now_us += arm.after_us
            effects = self.pings.due(arm.timer[1], now_us)
        return asked


def test_direct_probes_then_others_and_two_seconds():
    court = Court("30,40,50")
    suspect = contact("70")
    asked = court.play(court.cases.open(suspect, 0))
    assert [who for who, _when in asked] == ["n70", "n70", "n70", "n30", "n40"]
    assert [who for who, _when in court.convicted] == [suspect]
    assert court.convicted[0][1] >= court.settings.suspicion_us_min
    assert not court.cases.cases


def test_with_nobody_to_ask_direct_probes_decide():
    court = Court()
    suspect = contact("70")
    court.routes.heard(suspect)
    court.routes.answered(suspect, 1_000)  # a fast one: probes alone would not take long
    asked = court.play(court.cases.open(suspect, 0))
    assert {who for who, _when in asked} == {"n70"}
    assert len(asked) == 5  # 400 ms each
    assert court.convicted == [(suspect, 2 * SECOND)]


def test_others_under_suspicion_are_not_asked():
    court = Court("30,40")
    court.cases.open(contact("30"), 0)
    asked = court.play(court.cases.open(contact("70"), 0))
    assert [who for who, _when in asked][3:] == ["n40"] + ["n70"] * (len(asked) - 4)


def test_one_case_for_each_and_not_too_many():
    court = Court()
    assert court.cases.open(contact("70"), 0)
    assert court.cases.open(contact("70"), 0) == []
    for number in range(100, 100 + CASES_MAX - 1):
        assert court.cases.open(contact(str(number)), 0)
    assert court.cases.open(contact("99"), 0) == []


def test_a_stall_begins_the_case_anew():
    court = Court("30,40")
    suspect = contact("70")
    effects = court.cases.open(suspect, 0)
    for _ in range(3):
        effects = court.pings.due(effects[1].timer[1], SECOND)
    assert effects[0].to.node == "n30"
    court.cases.stalled(9 * SECOND)
    assert court.pings.stalled() == [effects[1]]
    asked = court.play(court.pings.due(effects[1].timer[1], 9 * SECOND), 9 * SECOND)
    assert [who for who, _when in asked] == ["n70", "n70", "n70", "n30", "n40"]
    assert court.convicted[0][1] >= 11 * SECOND


def test_a_pong_after_a_stall_is_not_measured():
    court = Court()
    known = contact("30")
    answers = []
    court.routes.heard(known)
    [send, _arm] = court.pings.send(known, lambda *answer: answers.append(answer) or [], 0)
    court.pings.stalled()
    court.pings.answered(known, Pong(send.message.request, True, Beacon()), 9 * SECOND)
    assert answers[0][0] == known
    assert court.routes.round_trip_us(known) is None


def test_somebody_elses_answer_is_none():
    court = Court()
    [send, arm] = court.pings.send(contact("30"), lambda *_answer: [], 0)
    pong = Pong(send.message.request, True, Beacon())
    assert court.pings.answered(contact("40"), pong, 5) == []
    assert court.pings.answered(contact("30"), Pong(99, True, Beacon()), 5) == []
    assert court.pings.answered(contact("30"), pong, 5) == [events.Disarm(arm.timer)]
    assert court.pings.due(arm.timer[1], 6) == []


def test_whoever_lives_at_an_address_may_answer():
    court = Court()
    answers = []
    [send, _arm] = court.pings.send(seed("at 30"), lambda *answer: answers.append(answer) or [], 0)
    court.pings.answered(contact("30.4"), Pong(send.message.request, True, Beacon()), 5)
    assert answers[0][0] == contact("30.4")


def test_pings_for_others_are_bounded():
    ring = member()
    for request in range(INDIRECT_MAX):
        assert sent(hear(ring, "60", messages.Ping(request, contact("30"))))
    assert hear(ring, "60", messages.Ping(99, contact("30"))) == []
    hear(ring, "30", Pong(1, True, Beacon()))
    assert sent(hear(ring, "60", messages.Ping(99, contact("30"))))


def test_a_ping_answered_by_another_life_counts_as_silence():
    ring = member()
    hear(ring, "5", messages.Notify(contact("5")))
    gone = messages.Gone(1, contact("10"), Beacon())
    effects = ring.step(events.Heard(contact("10.2"), 1, gone), 0)
    assert events.Died(contact("10")) in effects
    assert ring.predecessor == contact("5")


def test_a_predecessor_under_doubt_is_pinged_once():
    ring = member()
    assert sent(hear(ring, "5", messages.Notify(contact("5"))))
    assert hear(ring, "7", messages.Notify(contact("7"))) == []
    # It speaks: nobody waits for its place any more.
    hear(ring, "10", messages.Ping(1))
    hear(ring, "10", messages.Leaving(contact("10"), None, ()))
    assert ring.predecessor is None


def test_a_dead_candidate_is_not_taken():
    ring = member()
    hear(ring, "5", messages.Notify(contact("5")))
    hear(ring, "5", messages.Leaving(contact("5"), None, ()))
    hear(ring, "10", messages.Leaving(contact("10"), None, ()))
    assert ring.predecessor is None


def test_a_predecessor_given_up_while_the_ring_was_small_is_replaced():
    ring = member("10,20,30,40")
    hear(ring, "10", messages.Leaving(contact("10"), None, ()))
    beacon = Beacon(1, 1, 5, "at 40")
    five = contacts("10,20,30,40,50")
    hear(ring, "40", messages.RegistryIs(0, beacon, 5, five, five[:4]))
    assert ring.predecessor == contact("10")
    hear(ring, "5", messages.Notify(contact("5")))
    assert ring.predecessor == contact("5")


def test_one_given_up_by_mistake_is_asked_when_others_name_it():
    ring = member()
    suspect = contact("25")
    effects = ring.pointers.suspect(suspect, 0)
    while not any(isinstance(effect, events.Died) for effect in effects):
        arm = next(effect for effect in effects if isinstance(effect, events.Arm))
        effects = ring.step(events.Due(arm.timer), 9 * SECOND)
    (_to, asked), (pinged, ping) = sent(ring.step(events.Due(("stabilize", 0)), 9 * SECOND))
    assert (pinged, type(ping)) == (suspect, messages.Ping)  # a second look at it
    state = messages.StateIs(asked.request, suspect, contacts("40,50,60"), Beacon())
    ((to, asked),) = sent(hear(ring, "30", state))
    assert (to, type(asked)) == (suspect, messages.GetState)
    hear(ring, "25", messages.StateIs(asked.request, None, contacts("30,40,50"), Beacon()))
    assert ring.successors[0] == suspect


def test_gone_is_believed_only_of_oneself():
    ring = member()
    assert hear(ring, "60", messages.Gone(9, contact("30"), Beacon())) == []
    assert ring.successors[0] == contact("30")


def test_the_asked_one_is_gone_and_the_step_ends():
    ring = member()
    ring.step(events.Due(("stabilize", 0)), 0)
    hear(ring, "30", messages.StateIs(1, contact("25"), contacts("40,50,60"), Beacon()))
    assert ring.asking
    said = sent(
        ring.step(events.Heard(contact("25"), 1, messages.Gone(2, contact("25"), Beacon())), 0)
    )
    assert said == [(contact("30"), messages.Notify(contact("20")))]
    assert not ring.asking


def test_a_newer_life_of_the_last_successor_has_us_ask_the_nearest_that_we_know():
    ring = member()
    for word in ("40", "50"):
        hear(ring, word, messages.Leaving(contact(word), None, ()))
    asked, pong = sent(hear(ring, "30.2", messages.Ping(4)))
    assert asked == (contact("60"), messages.GetState(1))
    assert pong[1].request == 4


def test_a_node_that_stood_still_blames_nobody():
    stage = Stage(tight(3), 3)
    stage.begin(8)
    stage.run(3 * SECOND)
    # Everybody's answers to n1 are held up, and then it learns that it was its own fault.
    stage.is_cut = lambda _one, other: other == "n1"
    for _ in range(20):
        stage.run(300_000)
        stage.players["n1"].step(events.Stalled())
    assert stage.players["n1"].died == []
    stage.is_cut = lambda _one, _other: False
    assert stage.run(20 * SECOND, stage.is_ideal)


def given_up(ring: Ring, who: str) -> None:
    ring.pointers.convict(contact(who), 0)


def test_one_that_was_given_up_and_speaks_shows_the_way_to_our_place():
    ring = member()
    given_up(ring, "60")
    to, asked = sent(hear(ring, "60", Pong(77, True, Beacon())))[0]
    assert (to, type(asked)) == (contact("60"), messages.GetCloser)
    assert asked.key == ring.me.position
    given_up(ring, "50")
    assert sent(hear(ring, "50", Pong(78, True, Beacon()))) == []  # the question is on its way
    said = sent(hear(ring, "60", messages.CloserAre(asked.request, (), contacts("25,30"))))
    assert said[0] == (contact("25"), messages.Notify(ring.me))
    assert (said[1][0], type(said[1][1])) == (contact("25"), messages.GetState)


def test_our_place_is_ours_over_there():
    ring = member()
    given_up(ring, "60")
    _to, asked = sent(hear(ring, "60", Pong(77, True, Beacon())))[0]
    answer = messages.CloserAre(asked.request, (), contacts("20,30"))
    assert sent(hear(ring, "60", answer)) == []


def test_those_given_up_are_pinged_in_turn_and_not_for_ever():
    ring = member()
    given_up(ring, "60")
    given_up(ring, "50")
    hear(ring, "40", messages.Leaving(contact("40"), None, ()))  # that one will not be back
    stabilize = events.Due(("stabilize", 0))

    def pinged(now_us: int) -> list[str]:
        out = sent(ring.step(stabilize, now_us))
        return [to.node for to, message in out if isinstance(message, messages.Ping)]

    turns = [pinged(now_us) for now_us in range(4)]
    assert turns == [["n50"], ["n50"], ["n50"], ["n60"]]  # every other time the next behind us
    assert pinged(LATELY_US) == []


def test_one_that_was_given_up_becomes_the_successor_again():
    ring = member()
    given_up(ring, "30")
    assert contact("30") not in ring.successors
    hear(ring, "40", messages.Busy(ring.node.requests.last))  # to what we asked of the next one
    to, asked = sent(hear(ring, "30", Pong(77, True, Beacon())))[0]
    assert (to, type(asked)) == (contact("30"), messages.GetState)
    hear(ring, "30", messages.StateIs(asked.request, None, contacts("40,50,60"), Beacon()))
    assert ring.successors[0] == contact("30")


def test_on_a_small_ring_one_that_speaks_again_is_just_there():
    ring = member("10,20,30,40")
    given_up(ring, "30")
    assert sent(hear(ring, "30", Pong(77, True, Beacon()))) == []
    assert contact("30") not in ring.pointers.deaths.convicted


def test_for_a_while_a_lookup_leaves_out_whom_we_have_given_up():
    ring = member("10,20,40,50,60", me="60")
    ring.pointers.convict(contact("40"), 0)
    fresh_us = FRESH_PERIODS * ring.settings.stabilize_us

    def owners(now_us: int) -> list[str]:
        key = contact("40").position
        out = sent(ring.step(events.Find(1, key), now_us))
        to, asked = out[0]
        answer = messages.CloserAre(asked.request, (), contacts("40,50,60"))
        sender = next(each for each in contacts("10,20,50") if each == to)
        effects = ring.step(events.Heard(sender, 1, answer), now_us)
        (located,) = [each for each in effects if isinstance(each, events.Located)]
        return [each.node for each in located.owners]

    assert owners(fresh_us - 1) == [contact("50").node, contact("60").node]
    assert owners(fresh_us) == [contact(each).node for each in ("40", "50", "60")]
