"""What must be true in every run: one sentence a file, and the file is named as the sentence.

Checkers look at the production code's state and at what was delivered to clients. They change and
mend nothing. Each counts what it looked at: a checker that saw nothing has shown nothing. Two
things show that a checker can fail: states made by hand, and the planted bugs of
`hocket.sim.mutants`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hocket.sim.checkers.a_leader_has_all_that_is_committed import ALeaderHasAllThatIsCommitted
from hocket.sim.checkers.a_ring_that_is_not_ideal_can_move import ARingThatIsNotIdealCanMove
from hocket.sim.checkers.acknowledged_changes_are_kept import AcknowledgedChangesAreKept
from hocket.sim.checkers.acknowledged_records_are_at_their_offsets import (
    AcknowledgedRecordsAreAtTheirOffsets,
)
from hocket.sim.checkers.acknowledgements_follow_real_time import AcknowledgementsFollowRealTime
from hocket.sim.checkers.appendages_are_connected import AppendagesAreConnected
from hocket.sim.checkers.checker import Checker, Violation
from hocket.sim.checkers.children_are_bounded_and_trees_have_no_cycle import (
    ChildrenAreBoundedAndTreesHaveNoCycle,
)
from hocket.sim.checkers.clients_mend_nothing_before_anything_fails import (
    ClientsMendNothingBeforeAnythingFails,
)
from hocket.sim.checkers.consumers_get_every_offset_once import ConsumersGetEveryOffsetOnce
from hocket.sim.checkers.copies_checker import CopiesChecker
from hocket.sim.checkers.copies_that_have_applied_the_same_are_the_same import (
    CopiesThatHaveAppliedTheSameAreTheSame,
)
from hocket.sim.checkers.credit_is_never_exceeded import CreditIsNeverExceeded
from hocket.sim.checkers.delivery_resumes_after_a_crash import DeliveryResumesAfterACrash
from hocket.sim.checkers.each_message_that_dies_has_one_dead_letter import (
    EachMessageThatDiesHasOneDeadLetter,
)
from hocket.sim.checkers.each_side_of_a_cut_becomes_a_ring import EachSideOfACutBecomesARing
from hocket.sim.checkers.each_term_has_one_leader import EachTermHasOneLeader
from hocket.sim.checkers.encoded_messages_come_back_as_they_were import (
    EncodedMessagesComeBackAsTheyWere,
)
from hocket.sim.checkers.every_group_is_led_when_faults_are_over import (
    EveryGroupIsLedWhenFaultsAreOver,
)
from hocket.sim.checkers.every_member_has_a_live_successor import EveryMemberHasALiveSuccessor
from hocket.sim.checkers.group_0_has_one_leader_in_a_term import Group0HasOneLeaderInATerm
from hocket.sim.checkers.log_starts_move_by_committed_entries import LogStartsMoveByCommittedEntries
from hocket.sim.checkers.logs_agree_where_their_terms_do import LogsAgreeWhereTheirTermsDo
from hocket.sim.checkers.lookups_find_the_successor import LookupsFindTheSuccessor
from hocket.sim.checkers.messages_of_a_key_are_handed_out_in_order import (
    MessagesOfAKeyAreHandedOutInOrder,
)
from hocket.sim.checkers.metadata_checker import MetadataChecker, MetadataWatch
from hocket.sim.checkers.metadata_is_the_same_everywhere import MetadataIsTheSameEverywhere
from hocket.sim.checkers.no_batch_is_stored_twice import NoBatchIsStoredTwice
from hocket.sim.checkers.no_message_is_leased_twice import NoMessageIsLeasedTwice
from hocket.sim.checkers.no_request_is_done_twice import NoRequestIsDoneTwice
from hocket.sim.checkers.nothing_beyond_the_high_watermark_is_delivered import (
    NothingBeyondTheHighWatermarkIsDelivered,
)
from hocket.sim.checkers.nothing_is_acknowledged_without_a_majority import (
    NothingIsAcknowledgedWithoutAMajority,
)
from hocket.sim.checkers.offsets_are_dense import OffsetsAreDense
from hocket.sim.checkers.one_lineage_of_a_group_acknowledges import OneLineageOfAGroupAcknowledges
from hocket.sim.checkers.only_a_failure_loses_a_principal import OnlyAFailureLosesAPrincipal
from hocket.sim.checkers.only_committed_batches_are_relayed import OnlyCommittedBatchesAreRelayed
from hocket.sim.checkers.predecessors_only_come_nearer import PredecessorsOnlyComeNearer
from hocket.sim.checkers.principals_are_on_the_ring import PrincipalsAreOnTheRing
from hocket.sim.checkers.ring_checker import RingChecker, RingWatch
from hocket.sim.checkers.small_rings_follow_the_registry import SmallRingsFollowTheRegistry
from hocket.sim.checkers.subscribers_get_every_message_in_order import (
    SubscribersGetEveryMessageInOrder,
)
from hocket.sim.checkers.successor_lists_are_ordered import SuccessorListsAreOrdered
from hocket.sim.checkers.successor_lists_have_no_duplicates import SuccessorListsHaveNoDuplicates
from hocket.sim.checkers.terms_votes_and_flushed_entries_are_kept import (
    TermsVotesAndFlushedEntriesAreKept,
)
from hocket.sim.checkers.the_files_of_all_copies_hold_the_same import (
    TheFilesOfAllCopiesHoldTheSame,
)
from hocket.sim.checkers.the_high_watermark_never_goes_back import TheHighWatermarkNeverGoesBack
from hocket.sim.checkers.the_living_are_not_given_up import TheLivingAreNotGivenUp
from hocket.sim.checkers.the_ring_becomes_ideal_and_stays import TheRingBecomesIdealAndStays
from hocket.sim.checkers.there_are_enough_principals import ThereAreEnoughPrincipals
from hocket.sim.checkers.there_is_one_ordered_ring import ThereIsOneOrderedRing
from hocket.sim.checkers.transactions_are_whole_or_absent import TransactionsAreWholeOrAbsent
from hocket.sim.checkers.what_is_acked_for_good_is_not_handed_out_again import (
    WhatIsAckedForGoodIsNotHandedOutAgain,
)
from hocket.sim.checkers.what_is_committed_is_durable_at_a_majority import (
    WhatIsCommittedIsDurableAtAMajority,
)
from hocket.sim.checkers.what_is_committed_never_changes import WhatIsCommittedNeverChanges
from hocket.sim.checkers.who_is_damaged_neither_votes_nor_leads import (
    WhoIsDamagedNeitherVotesNorLeads,
)
from hocket.sim.checkers.who_is_not_needed_is_forgotten import WhoIsNotNeededIsForgotten
from hocket.sim.checkers.who_is_told_of_a_commit_can_read_all_of_it import (
    WhoIsToldOfACommitCanReadAllOfIt,
)

if TYPE_CHECKING:
    from hocket.sim.cluster import Cluster

__all__ = ["CHECKERS", "Checker", "Violation", "all_checkers"]

OF_THE_RING: tuple[type[RingChecker], ...] = (
    EveryMemberHasALiveSuccessor,  # I1
    ThereAreEnoughPrincipals,  # I2
    SuccessorListsAreOrdered,  # I3
    SuccessorListsHaveNoDuplicates,  # I4
    PrincipalsAreOnTheRing,  # I5
    ThereIsOneOrderedRing,  # I6
    AppendagesAreConnected,  # I7
    OnlyAFailureLosesAPrincipal,  # I8
    ARingThatIsNotIdealCanMove,  # I9
    TheRingBecomesIdealAndStays,
    EachSideOfACutBecomesARing,
    LookupsFindTheSuccessor,
    SmallRingsFollowTheRegistry,
    TheLivingAreNotGivenUp,
    PredecessorsOnlyComeNearer,
)
OF_THE_TREE = (
    ConsumersGetEveryOffsetOnce,  # T1
    ChildrenAreBoundedAndTreesHaveNoCycle,  # T2
    DeliveryResumesAfterACrash,  # T3
    OnlyCommittedBatchesAreRelayed,
    CreditIsNeverExceeded,
    WhoIsNotNeededIsForgotten,
)
OF_THE_LINKS = (EncodedMessagesComeBackAsTheyWere,)
OF_THE_METADATA: tuple[type[MetadataChecker], ...] = (
    MetadataIsTheSameEverywhere,  # G1
    AcknowledgedChangesAreKept,  # G2
    NoRequestIsDoneTwice,  # G3
    Group0HasOneLeaderInATerm,  # G4
)
OF_THE_COPIES: tuple[type[CopiesChecker], ...] = (
    EachTermHasOneLeader,  # L1
    LogsAgreeWhereTheirTermsDo,  # L2
    WhatIsCommittedNeverChanges,  # L3
    WhatIsCommittedIsDurableAtAMajority,  # F1, F3
    ALeaderHasAllThatIsCommitted,  # L4
    TermsVotesAndFlushedEntriesAreKept,  # L5
    WhoIsDamagedNeitherVotesNorLeads,  # F6
    CopiesThatHaveAppliedTheSameAreTheSame,
    OffsetsAreDense,  # O1
    NoBatchIsStoredTwice,  # O3
    TheHighWatermarkNeverGoesBack,  # O5
    LogStartsMoveByCommittedEntries,  # O7
    OneLineageOfAGroupAcknowledges,  # G1
    EveryGroupIsLedWhenFaultsAreOver,
    TheFilesOfAllCopiesHoldTheSame,
    TransactionsAreWholeOrAbsent,
    NoMessageIsLeasedTwice,  # C2
)
OF_THE_CLIENTS = (
    AcknowledgedRecordsAreAtTheirOffsets,  # O2
    AcknowledgementsFollowRealTime,  # O4
    NothingBeyondTheHighWatermarkIsDelivered,  # O6
    NothingIsAcknowledgedWithoutAMajority,  # G2
    SubscribersGetEveryMessageInOrder,  # C1
    WhatIsAckedForGoodIsNotHandedOutAgain,  # C3
    EachMessageThatDiesHasOneDeadLetter,  # C4
    MessagesOfAKeyAreHandedOutInOrder,  # C5
    WhoIsToldOfACommitCanReadAllOfIt,
    ClientsMendNothingBeforeAnythingFails,
)
CHECKERS: tuple[type[Checker], ...] = (
    *OF_THE_RING, *OF_THE_TREE, *OF_THE_LINKS, *OF_THE_METADATA, *OF_THE_COPIES, *OF_THE_CLIENTS,
)  # fmt: skip


def all_checkers(cluster: Cluster) -> list[Checker]:
    watch, metadata = RingWatch(cluster), MetadataWatch(cluster)
    return [
        *(kind(watch) for kind in OF_THE_RING),
        *(kind(cluster) for kind in (*OF_THE_TREE, *OF_THE_LINKS)),
        *(kind(metadata) for kind in OF_THE_METADATA),
        *(kind(cluster) for kind in (*OF_THE_COPIES, *OF_THE_CLIENTS)),
    ]
