@0x9629506c2ab85187;
# The protocol of Hocket: the header of every frame, in both directions.
#
# docs/protocol.md says how headers and payloads follow each other on a connection, and which frame
# answers which. Rules of this file:
#
# * Field numbers are only ever added, at the end of a struct or of the union; none is ever reused
#   or given another meaning. A field that a sender does not know reads as its default here.
# * Offsets, sequences and handles are UInt64. Times are microseconds since the epoch, UTC; durations
#   are microseconds. Ranges are half-open.
# * "Packed" Data is a list of numbers: little-endian 64-bit unsigned, one after the other.
# * Record batches are never in here: they travel as the frame's payload, beside this header.

struct Frame {
  request @0 :UInt64;
  # Chosen by the side that asks; its answer carries the same number. 0 where none is expected.

  union {
    # The connection.
    hello @1 :Hello;
    welcome @2 :Welcome;
    goodbye @3 :Goodbye;
    ping @4 :Ping;
    done @5 :Done;
    failure @6 :Failure;

    # Topics.
    createTopic @7 :CreateTopic;
    alterTopic @8 :AlterTopic;
    deleteTopic @9 :DeleteTopic;
    listTopics @10 :ListTopics;
    describeTopic @11 :DescribeTopic;
    topics @12 :Topics;
    findOffsets @13 :FindOffsets;
    offsets @14 :Offsets;

    # Producing.
    openProducer @15 :OpenProducer;
    producerOpened @16 :ProducerOpened;
    push @17 :Push;
    pushAcked @18 :PushAcked;
    pushRefused @19 :PushRefused;
    publish @20 :Publish;
    published @21 :Published;
    closeHandle @22 :CloseHandle;

    # Consuming.
    openSubscription @23 :OpenSubscription;
    subscriptionOpened @24 :SubscriptionOpened;
    deliver @25 :Deliver;
    credit @26 :Credit;
    commit @27 :Commit;
    moved @28 :Moved;
    handleEnded @29 :HandleEnded;
    partitionsChanged @30 :PartitionsChanged;

    # Indexes.
    listIndexes @31 :ListIndexes;
    indexes @32 :Indexes;
    seekIndex @33 :SeekIndex;
    deleteIndex @34 :DeleteIndex;

    # Shared indexes.
    lease @35 :Lease;
    settle @36 :Settle;
    settled @37 :Settled;

    # Transactions.
    commitTransaction @38 :CommitTransaction;
    abortTransaction @39 :AbortTransaction;

    # Access.
    createUser @40 :CreateUser;
    renewToken @41 :RenewToken;
    tokenIssued @42 :TokenIssued;
    deleteUser @43 :DeleteUser;
    setRoles @44 :SetRoles;
    createRole @45 :CreateRole;
    deleteRole @46 :DeleteRole;
    addGrant @47 :AddGrant;
    removeGrant @48 :RemoveGrant;
    describeAccess @49 :DescribeAccess;
    access @50 :Access;
    explainAccess @51 :ExplainAccess;
    explained @52 :Explained;
  }
}

struct FrameKind {
  # A Frame as one sees it who does not know its member: laid out like Frame, with the union's
  # discriminant as a number. Never sent; read in the place of a Frame to say which kind it was.

  request @0 :UInt64;
  # As in Frame.

  kind @1 :UInt16;
  # Which member of the union, counted from 0 in the order above.
}

# --- the connection ------------------------------------------------------------------------------

struct Hello {
  # The client's first frame. Answered by Welcome or Failure.

  versionMin @0 :UInt32 = 1;
  # The oldest version of the protocol that the client speaks.

  versionMax @1 :UInt32 = 1;
  # The newest version that it speaks.

  client @2 :Text;
  # Who it is, for people who look at the broker.

  features @3 :List(Text);
  # What it can do beyond the version; unknown names are ignored.

  token @4 :Text;
  # Its secret, if the broker asks for one.
}

struct Welcome {
  # The broker's answer to Hello.

  version @0 :UInt32;
  # The version that both speak from here on.

  node @1 :Text;
  # The broker's name.

  software @2 :Text;
  # What it runs, for people.

  features @3 :List(Text);
  # What it can do beyond the version; unknown names are ignored.

  limits @4 :Limits;
  # What it allows this connection.
}

struct Goodbye {
  # The sender is about to close the connection. Not answered.

  reason @0 :Text;
  # In words.
}

struct Ping {
  # Are you there? Answered by Done.
}

struct Done {
  # The request was carried out, durably.
}

struct Failure {
  # The request was not carried out, or may have been, if it says so.

  code @0 :Text;
  # One of the error codes of docs/protocol.md; treat one you do not know as "failed".

  message @1 :Text;
  # What was wrong, with the value, and what to do.

  mayHaveHappened @2 :Bool;
  # False: the request certainly had no effect.
}

# --- topics --------------------------------------------------------------------------------------

struct CreateTopic {
  # Answered by Done.

  topic @0 :Text;
  # Its name: 1 to 255 letters, digits, '.', '_' or '-', not beginning with '.' or '-'.

  config @1 :TopicConfig;
  # What is set for it; what is left out has the defaults of TopicConfig.
}

struct AlterTopic {
  # Answered by Done.

  topic @0 :Text;
  # Its name.

  config @1 :TopicConfig;
  # The whole new configuration. Partitions may only grow.
}

struct DeleteTopic {
  # With its records and indexes. Answered by Done.

  topic @0 :Text;
  # Its name.
}

struct ListTopics {
  # Answered by Topics, without their partitions.
}

struct DescribeTopic {
  # Answered by Topics: this one, with its partitions.

  topic @0 :Text;
  # Its name.
}

struct Topics {
  # The answer to ListTopics and DescribeTopic.

  topics @0 :List(TopicDescription);
  # In the order of their names.
}

struct FindOffsets {
  # Where a place is, in every partition of a topic. Answered by Offsets.

  topic @0 :Text;
  # Its name.

  start @1 :Start;
  # The place.
}

struct Offsets {
  # The answer to FindOffsets and SeekIndex.

  offsets @0 :Data;
  # Packed: one per partition, in order.
}

# --- producing -----------------------------------------------------------------------------------

struct OpenProducer {
  # Answered by ProducerOpened.

  topic @0 :Text;
  # Its name.

  producerId @1 :Data;
  # 16 bytes: that of a producer opened before, to go on as it. Empty: a new one.

  epoch @2 :UInt32;
  # That of the producer opened before; 0 for a new one.

  transaction @3 :Text;
  # Not empty: what is pushed is staged for this transaction, and acknowledged without offsets.

  number @4 :UInt64;
  # Of the transaction, among those of its id.
}

struct ProducerOpened {
  # The answer to OpenProducer.

  handle @0 :UInt64;
  # The producer's number on this connection.

  producerId @1 :Data;
  # 16 bytes, to be written into every batch.

  epoch @2 :UInt32;
  # To be written into every batch.

  partitions @3 :UInt32;
  # How many the topic has now.

  sequences @4 :Data;
  # Packed: per partition, the sequence that the next new batch must have.
}

struct Push {
  # Payload: one or more whole batches, their sequences consecutive. With request 0 the answers are
  # PushAcked and PushRefused.

  handle @0 :UInt64;
  # The producer.

  partition @1 :UInt32;
  # The partition that all the batches are for.
}

struct PushAcked {
  # Every batch up to `sequence` is as durable as its topic demands. Cumulative.

  handle @0 :UInt64;
  # The producer.

  partition @1 :UInt32;
  # The partition.

  sequence @2 :UInt64;
  # Of the last batch acknowledged.

  offsets @3 :Data;
  # Packed: the base offsets of the newly acknowledged batches, that of the last one last.
}

struct PushRefused {
  # The batch `sequence`, and whatever followed it in this partition, was not stored.

  handle @0 :UInt64;
  # The producer.

  partition @1 :UInt32;
  # The partition.

  sequence @2 :UInt64;
  # Of the first batch refused.

  code @3 :Text;
  # An error code, as in Failure.

  message @4 :Text;
  # In words, as in Failure.
}

struct Publish {
  # One-off. Payload: one batch. Answered by Published.

  topic @0 :Text;
  # Its name.

  partition @1 :Int32 = -1;
  # Where to. -1: by the hash of the batch's first key.
}

struct Published {
  # The answer to Publish.

  partition @0 :UInt32;
  # Where the batch is.

  offset @1 :UInt64;
  # Of its first record.
}

struct CloseHandle {
  # Of a producer or a subscription. Answered by Done once all it did is durable.

  handle @0 :UInt64;
  # Its number.
}

# --- consuming -----------------------------------------------------------------------------------

struct OpenSubscription {
  # Answered by SubscriptionOpened.

  topic @0 :Text;
  # Its name.

  index @1 :Text;
  # The index's name. Empty: the client keeps its place itself.

  mode @2 :Mode;
  # How the index is shared.

  start @3 :Start;
  # Where a new index begins, or a subscription without one.

  positions @4 :Data;
  # Packed pairs (partition, offset): override `start` where given.

  partitions @5 :Data;
  # Packed: the ones wanted. Empty: all.

  holdRetention @6 :Bool;
  # Records are not removed before this index has consumed them.

  creditBytes @7 :UInt64;
  # The first credit: so many bytes of payload may be sent.

  consumer @8 :Data;
  # Shared indexes: 16 bytes of the client's choice, the same again when its connection was lost.

  prefetch @9 :UInt32;
  # Shared indexes: so many messages may be sent.

  leaseUs @10 :UInt64;
  # Shared indexes: how long a message is this consumer's. 0: as the index has it, 30 s if it is new.

  maxDeliveries @11 :UInt32;
  # Shared indexes: after so many it goes to the dead letters. 0: as the index has it, 5 if it is new.

  failover @12 :Failover;
  # Shared indexes: whether to wait for old leases when the broker has been away.

  held @13 :Data;
  # Shared indexes: packed triples (partition, start, end) handed out and not settled.
}

struct SubscriptionOpened {
  # The answer to OpenSubscription.

  handle @0 :UInt64;
  # The subscription's number on this connection.

  positions @1 :Data;
  # Packed pairs (partition, next offset).

  leaseUs @2 :UInt64;
  # Shared indexes: how long a message is this consumer's.
}

struct Deliver {
  # Payload: whole batches of one partition, in order. Uses up credit; not answered.

  handle @0 :UInt64;
  # The subscription.

  partition @1 :UInt32;
  # The partition.

  offset @2 :UInt64;
  # Of the first record meant; what the first batch holds before it is to be skipped.

  end @3 :UInt64;
  # The partition's end as the broker knows it now, for the lag.
}

struct Credit {
  # The broker may send so many more bytes of payload. Not answered.

  handle @0 :UInt64;
  # The subscription.

  bytes @1 :UInt64;
  # How many more.

  messages @2 :UInt64;
  # Shared indexes: how many more messages.
}

struct Commit {
  # Move the index to these places. Answered by Done when durable.

  handle @0 :UInt64;
  # The subscription.

  positions @1 :Data;
  # Packed pairs (partition, next offset).
}

struct Moved {
  # The subscription goes on elsewhere in this partition; what was delivered before is stale.

  handle @0 :UInt64;
  # The subscription.

  partition @1 :UInt32;
  # The partition.

  offset @2 :UInt64;
  # Where it goes on.

  lost @3 :UInt64;
  # After a seek 0; where retention had removed records not yet read, their number.
}

struct HandleEnded {
  # The broker has ended a producer or subscription: fenced, topic deleted, corrupt data.

  handle @0 :UInt64;
  # Its number, which means nothing from here on.

  code @1 :Text;
  # An error code, as in Failure.

  message @2 :Text;
  # In words, as in Failure.
}

struct PartitionsChanged {
  # The topic of this producer or subscription has more partitions now.

  handle @0 :UInt64;
  # The producer or subscription.

  partitions @1 :UInt32;
  # How many.
}

# --- indexes -------------------------------------------------------------------------------------

struct ListIndexes {
  # Answered by Indexes.

  topic @0 :Text;
  # Its name.
}

struct Indexes {
  # The answer to ListIndexes.

  indexes @0 :List(IndexDescription);
  # In the order of their names.
}

struct SeekIndex {
  # Put an index elsewhere, whether a consumer is attached or not. Answered by Offsets.

  topic @0 :Text;
  # Its name.

  index @1 :Text;
  # The index's name.

  start @2 :Start;
  # Where to.

  partition @3 :Int32 = -1;
  # In which partition. -1: in all of them.
}

struct DeleteIndex {
  # Answered by Done.

  topic @0 :Text;
  # Its name.

  index @1 :Text;
  # The index's name.
}

# --- shared indexes ------------------------------------------------------------------------------

struct Lease {
  # Messages for this consumer alone, until their lease ends. Payload: the batches that hold them.
  # Uses up credit; not answered.

  handle @0 :UInt64;
  # The subscription.

  partition @1 :UInt32;
  # The partition.

  end @2 :UInt64;
  # The partition's end as the broker knows it now, for the lag.

  ranges @3 :Data;
  # Packed triples (start, end, delivery count), in order.

  continued @4 :Bool;
  # The first batch is the last one of the Lease before it of this partition, and is not sent again.
}

struct Settle {
  # What has become of messages. Answered by Settled when it is durable.

  handle @0 :UInt64;
  # The subscription.

  action @1 :Settlement;
  # What.

  ranges @2 :Data;
  # Packed triples (partition, start, end).

  durationUs @3 :UInt64;
  # nack: not again before so long. extend: the new lease from now on; 0 for the usual one.

  reason @4 :Text;
  # Of a reject, in words.
}

struct Settled {
  # The answer to Settle.

  refused @0 :Data;
  # Packed triples (partition, start, end) that this consumer does not hold; nothing was done there.
}

# --- transactions --------------------------------------------------------------------------------

struct CommitTransaction {
  # Publish all that was staged, or nothing. Answered by Done when all of it can be read.

  transaction @0 :Text;
  # Its id.

  number @1 :UInt64;
  # Which one of this id. Numbers only ever grow.

  participants @2 :List(Participant);
  # All of it. What others have staged for it is dropped.
}

struct AbortTransaction {
  # Drop what some producers have staged. Answered by Done. It uses up no number: what is staged for it
  # afterwards, by other producers, can be committed.

  transaction @0 :Text;
  # Its id.

  number @1 :UInt64;
  # Which one of this id.

  producers @2 :List(Data);
  # 16 bytes each: whose stages are dropped. What they had staged can never be committed.
}

# --- access --------------------------------------------------------------------------------------

struct CreateUser {
  # Answered by TokenIssued. The first one turns access control on, and must have the role admin.

  name @0 :Text;
  # Letters, digits, '.', '_' or '-'.

  roles @1 :List(Text);
  # What it may do.
}

struct RenewToken {
  # The old token is void from now on. Answered by TokenIssued.

  name @0 :Text;
  # The user.
}

struct TokenIssued {
  # The answer to CreateUser and RenewToken. The broker keeps a hash only: it cannot be asked again.

  token @0 :Text;
  # For Hello.
}

struct DeleteUser {
  # Its connections are closed. Answered by Done.

  name @0 :Text;
  # The user.
}

struct SetRoles {
  # Answered by Done.

  name @0 :Text;
  # The user.

  roles @1 :List(Text);
  # All of them, in place of those it has.
}

struct CreateRole {
  # Answered by Done.

  name @0 :Text;
  # Letters, digits, '.', '_' or '-'.
}

struct DeleteRole {
  # Users that have it lose it. Answered by Done.

  name @0 :Text;
  # The role.
}

struct AddGrant {
  # Answered by Done.

  role @0 :Text;
  # The role that gets it.

  grant @1 :Grant;
  # What it permits.
}

struct RemoveGrant {
  # What was opened by it is closed at once. Answered by Done.

  role @0 :Text;
  # The role that has it.

  grant @1 :Grant;
  # Exactly as it was given.
}

struct DescribeAccess {
  # Answered by Access.
}

struct Access {
  # The answer to DescribeAccess. Without users access control is off.

  users @0 :List(UserDescription);
  # In the order of their names.

  roles @1 :List(RoleDescription);
  # In the order of their names.
}

struct ExplainAccess {
  # May this user do this? Answered by Explained.

  user @0 :Text;
  # Its name. Everybody may ask for himself, an admin for all.

  action @1 :Action;
  # What.

  topic @2 :Text;
  # With which topic.

  index @3 :Text;
  # And which of its indexes; empty for none.
}

struct Explained {
  # The answer to ExplainAccess.

  allowed @0 :Bool;
  # Whether.

  reason @1 :Text;
  # Why, in words: by which grant of which role, or what is missing.
}

# --- what the frames are made of -----------------------------------------------------------------

enum Failover {
  safe @0;
  # Messages that an old lease may still hold wait until it has ended for certain.

  fast @1;
  # They are delivered again at once; they may be with two consumers for a while.
}

enum Settlement {
  ack @0;
  # It is done.

  nack @1;
  # It is to be delivered again.

  extend @2;
  # It takes longer: a new lease, from now on.

  reject @3;
  # It is not to be delivered again: to the dead letters.

  release @4;
  # It was not handed out: delivered again, and this delivery does not count.
}

enum Action {
  publish @0;
  # Produce to the topic.

  subscribe @1;
  # Consume it, and move its indexes.

  create @2;
  # Make a topic of that name.

  alter @3;
  # Change what is set for it.

  delete @4;
  # Delete the topic, or its indexes.

  admin @5;
  # Everything, users and roles included.
}

struct Participant {
  topic @0 :Text;
  # Its name.

  partition @1 :UInt32;
  # The partition.

  producerId @2 :Data;
  # 16 bytes: who staged.

  batches @3 :UInt64;
  # How many, sequences 0 to one less.

  records @4 :UInt64;
  # In all of them.

  crc @5 :UInt32;
  # CRC-32C over the body CRCs of the batches, each as four bytes, little-endian, in order.
}

struct Grant {
  action @0 :Action;
  # What it permits.

  topic @1 :Text;
  # A pattern of names: '*' is any run of characters.

  index @2 :Text;
  # Likewise, where an index is concerned.
}

struct RoleDescription {
  name @0 :Text;
  # Of the role.

  grants @1 :List(Grant);
  # What it permits.
}

struct UserDescription {
  name @0 :Text;
  # Of the user.

  roles @1 :List(Text);
  # That it has.
}

enum Durability {
  quorum @0;
  # Acknowledged when on the disk of a majority of the replicas.

  memory @1;
  # Acknowledged when in the memory of a majority of the replicas.
}

enum Mode {
  own @0;
  # One consumer, which gets everything.

  shared @1;
  # Many consumers; each message goes to one of them.

  keyShared @2;
  # As `shared`, and the messages of one key go to one consumer at a time, in order.
}

enum StartKind {
  earliest @0;
  # The oldest record there is.

  latest @1;
  # After the newest record there is.

  offset @2;
  # The offset `value`.

  time @3;
  # The first record whose timestamp is `value` or later.
}

struct TopicConfig {
  partitions @0 :UInt32 = 1;
  # How many logs the topic is made of.

  replication :union {
    # Copies of each partition.

    none @1 :Void;
    # The broker's default.

    some @2 :UInt32;
    # So many.
  }

  memoryRetentionUs @3 :UInt64 = 600000000;
  # How long records are served from memory.

  memoryBytesMax @4 :UInt64 = 268435456;
  # Memory per partition; wins over the time.

  diskRetentionUs :union {
    # How long records are kept.

    some @5 :UInt64 = 604800000000;
    # So many microseconds.

    none @6 :Void;
    # For ever.
  }

  diskBytesMax :union {
    # Disk per partition.

    none @7 :Void;
    # Without limit.

    some @8 :UInt64;
    # So many bytes.
  }

  durability @9 :Durability;
  # When a batch counts as stored.

  segmentBytesMax @10 :UInt64 = 67108864;
  # Of one file of the log.
}

struct TopicDescription {
  name @0 :Text;
  # Of the topic.

  config @1 :TopicConfig;
  # As it is now.

  partitions @2 :List(PartitionDescription);
  # In order; empty in the answer to ListTopics.
}

struct PartitionDescription {
  partition @0 :UInt32;
  # Its number.

  start @1 :UInt64;
  # The oldest offset that can be read.

  end @2 :UInt64;
  # The offset that the next record will get.

  memoryStart @3 :UInt64;
  # From here on the memory tier answers; `end` if it is empty.

  memoryBytes @4 :UInt64;
  # Held in memory.

  diskBytes @5 :UInt64;
  # Held on disk.

  memoryReads @6 :UInt64;
  # Reads answered from memory since the broker started.

  diskReads @7 :UInt64;
  # Reads that went to the disk since the broker started.

  leader @8 :Text;
  # The node that leads it.

  replicas @9 :List(Text);
  # The nodes that hold it.

  problem @10 :Text;
  # What is damaged, in words; empty when all is well.
}

struct IndexDescription {
  name @0 :Text;
  # Of the index.

  mode @1 :Mode;
  # How it is shared.

  holdRetention @2 :Bool;
  # Records are not removed before it has consumed them.

  partitions @3 :List(IndexPartition);
  # In order.
}

struct IndexPartition {
  partition @0 :UInt32;
  # Its number.

  position @1 :UInt64;
  # The next offset to be consumed.

  end @2 :UInt64;
  # The offset that the next record will get.

  attached @3 :Bool;
  # A consumer is connected.

  ahead @4 :UInt64;
  # Of a shared index: messages behind `position` that are done already.

  leased @5 :UInt64;
  # Of a shared index: messages that are with consumers now.
}

struct Start {
  kind @0 :StartKind;
  # What sort of place.

  value @1 :Int64;
  # The offset, or the time in microseconds; 0 otherwise.
}

struct Limits {
  frameBytesMax @0 :UInt64 = 167772160;
  # Payload of one frame.

  batchBytesMax @1 :UInt64 = 134217728;
  # One batch as it is stored.

  inFlightMax @2 :UInt32 = 32;
  # Batches of one producer and partition not yet acknowledged.

  handlesMax @3 :UInt32 = 10000;
  # Producers and subscriptions of one connection.

  connectionsMax @4 :UInt32 = 10000;
  # Connections to one broker.

  creditBytesMax @5 :UInt64 = 1073741824;
  # Credit of one subscription.
}
