@0xc4d1f0a7b35e9a26;
# Hocket over Cap'n Proto RPC: what `hocket serve --rpc-listen` offers, for clients in any language.
#
# The bootstrap capability is a Broker. A capability is the permission to use what it stands for, and
# dropping it lets that go: a Producer delivers what was pushed and closes, a Subscription commits
# what was acknowledged and closes, and a Session ends with the last capability that came from it.
# So does everything of a connection that is lost.
#
# An exception's reason begins with the error's code, as in "unknownTopic: there is no topic 'x'".
# The codes are those of docs/protocol.md. (C++ puts "remote exception: " before it.) After a
# `-> stream` call has failed, every later call of that capability fails with the same exception.
#
# Rules: as in hocket.capnp. Numbers are only ever added; offsets are UInt64; times are microseconds
# since the epoch, UTC; durations are microseconds; ranges are half-open.

using Cxx = import "/capnp/c++.capnp";
using Hocket = import "hocket.capnp";

$Cxx.namespace("hocket::rpc");

interface Broker {
  # What one gets on connecting.

  login @0 (token :Text, client :Text) -> (session :Session);
  # `token` is the user's secret; empty where the broker asks for none. `client` says who it is, for
  # people who look at the broker. A connection on which nobody logs in is soon hung up on.
}

interface Session {
  # What its user may do.

  topic @0 (topic :Text) -> (topic :Topic);
  # Whether there is such a topic shows when it is used.

  createTopic @1 (topic :Text, config :Hocket.TopicConfig, existOk :Bool) -> (topic :Topic);
  # A config that is left out has the defaults. `existOk`: if the topic is there already, it stays as
  # it is, and that is no error.

  deleteTopic @2 (topic :Text, missingOk :Bool) -> ();

  topics @3 () -> (names :List(Text));
  # Sorted.
}

interface Topic {
  publish @0 (batch :Batch) -> (partition :UInt32, offset :UInt64);
  # Answered when the records are durable, with the place of the first; the others follow it. All go
  # to one partition: the batch's, or that of their keys, which must be the same for all.

  producer @1 (options :ProducerOptions) -> (producer :Producer);
  # For a stream of records.

  subscribe @2 (options :SubscriptionOptions, sink :Sink) -> (subscription :Subscription);
  # Deliveries go to the sink for as long as the subscription is held.

  describe @3 () -> (description :Hocket.TopicDescription);
}

struct ProducerOptions {
  lingerUs @0 :UInt64 = 2000;
  # How long a record waits for others to share its batch.

  batchBytes @1 :UInt64 = 1048576;
  # A batch is sent when it is as large as this.

  windowBytes @2 :UInt64 = 16777216;
  # A push waits while more than this is not acknowledged; at most 64 MiB.

  codec @3 :Text = "none";
  # How batches are compressed: "none", "lz4" or "zstd".
}

interface Producer {
  push @0 (batch :Batch) -> stream;
  # Answered when the window has taken the records, in order and each once; they are stored soon
  # after. Records with a key go to its partition, those without are spread.

  flush @1 () -> (ends :List(Position));
  # Answered when everything pushed before is durable; else it fails with the first error there was.
  # `ends` are the offsets behind the last record of this producer, one for each partition that got
  # any.
}

struct Position {
  partition @0 :UInt32;
  offset @1 :UInt64;
}

enum Form {
  # How records are delivered.

  records @0;
  # One by one; as everybody can read them.

  encoded @1;
  # As the batches that they are stored in: far cheaper for both sides.
}

struct SubscriptionOptions {
  index @0 :Text;
  # The name under which the broker keeps the place. Empty: it keeps none.

  mode @1 :Hocket.Mode;
  # Whether the index is one consumer's own, or shared between many.

  start @2 :Hocket.Start;
  # Where a new index begins, or a subscription without one.

  positions @3 :List(Position);
  # Without an index: begin here; `start` counts for partitions that are not named.

  partitions @4 :List(UInt32);
  # Only these. Empty: all.

  holdRetention @5 :Bool;
  # Records are not removed before this index has consumed them.

  form @6 :Form;
  # How they are delivered.

  windowBytes @7 :UInt64 = 1048576;
  # So much may be on its way to the sink, and as much again is held ready for it; at most 64 MiB.

  leaseUs @8 :UInt64;
  # Shared indexes: how long a message is this consumer's. 0: as the index has it.

  maxDeliveries @9 :UInt32;
  # Shared indexes: after so many it goes to the dead letters. 0: as the index has it.

  prefetch @10 :UInt32 = 5000;
  # Shared indexes: so many messages may be at the sink unsettled.

  failover @11 :Hocket.Failover;
  # Shared indexes: whether to wait for old leases when the broker has been away.
}

interface Sink {
  # Made by the client, called by the broker.

  deliver @0 (batch :Batch) -> stream;
  # In order within a partition. The next ones come while the answer to this one is awaited, as far
  # as the subscription's window allows; a sink that fails ends its subscription.

  ended @1 (code :Text, message :Text) -> ();
  # The broker has ended the subscription, for this reason. Nothing more is delivered. It is not
  # called when the client has closed or dropped the subscription itself.
}

interface Subscription {
  ack @0 (partition :UInt32, start :UInt64, end :UInt64) -> ();
  # These messages need not be delivered again. An own index acknowledges everything before `end`,
  # whatever `start` is; a shared one exactly these, which this consumer must hold. It does not wait:
  # acks are gathered, and `commit` waits for them.

  settle @1 (settlements :List(Settlement)) -> ();
  # What has become of messages of a shared index; like `ack`, it does not wait.

  commit @2 () -> ();
  # Answered when everything acknowledged or settled before is durable. "leaseLost: ..." if some of
  # it was not this consumer's any more.

  close @3 () -> ();
  # `commit`, and let go; nothing is delivered afterwards. Dropping the capability does the same
  # without an answer.
}

struct Settlement {
  partition @0 :UInt32;
  start @1 :UInt64;
  end @2 :UInt64;

  action @3 :Hocket.Settlement;
  # `release` is for messages that were not looked at: this delivery does not count.

  durationUs @4 :UInt64;
  # nack: not again before so long; extend: the new lease, 0 for the usual one.

  reason @5 :Text;
  # Of a reject.
}

struct Batch {
  partition @0 :Int32 = -1;
  # For which partition, or of which. -1: by the keys, or anywhere.

  union {
    records @1 :List(Record);
    # One by one.

    encoded @2 :Data;
    # Whole batch entries, as docs/internals/log_format.md lays them out. In a publish, one; the
    # producer's id, epoch and sequence in it are overwritten. Without a partition, it goes to that
    # of its first record's key. In a delivery, one, with its offsets.
  }

  start @3 :UInt64;
  end @4 :UInt64;
  # Deliveries: the offsets that are meant. An encoded batch may hold records before and behind them,
  # which are not.

  deliveryCount @5 :UInt32;
  # Deliveries of a shared index: how often these were delivered, this time included.
}

struct Record {
  key @0 :Data;
  # Left out (a null pointer): no key. Empty is a key as good as any.

  value @1 :Data;

  headers @2 :List(Header);

  timestamp @3 :Int64;
  # When it was made. 0: now.

  offset @4 :UInt64;
  partition @5 :UInt32;
  deliveryCount @6 :UInt32;
  # Deliveries: where it stands, and how often it was delivered, this time included.
}

struct Header {
  name @0 :Text;

  value @1 :Data;
  # Left out (a null pointer): a header without a value.
}
