@0xc4d1f0a7b35e9a26;
# Hocket over Cap'n Proto RPC: what `hocket serve --rpc-listen` offers, for clients in any language.
#
# The bootstrap capability is a Broker. A capability is the permission to use what it stands for. A
# client that drops a capability gives that up: a Producer delivers what was pushed and closes, a
# Subscription commits what was acknowledged and closes, and a Session ends with the last capability
# that came from it. When a connection is lost, all its capabilities are dropped.
#
# The reason of an exception begins with the error's code: "unknownTopic: there is no topic 'x'".
# The codes are those of docs/protocol.md, and "closed" and "timeout". (C++ puts
# "remote exception: " before the reason.) After a `-> stream` call has failed, every later call of
# that capability fails with the same exception.
#
# The rules are those of hocket.capnp. Numbers are only ever added. Offsets are UInt64. Times are
# microseconds since the epoch, UTC. Durations are microseconds. Ranges are half-open.

using Cxx = import "/capnp/c++.capnp";
using Hocket = import "hocket.capnp";

$Cxx.namespace("hocket::rpc");

interface Broker {
  # The first capability that a client gets when it connects.

  login @0 (token :Text, client :Text) -> (session :Session);
  # `token` is the user's token; it is empty if the broker asks for none. `client` says who the
  # client is, for people who look at the broker. The broker closes a connection on which nobody
  # logs in within 10 s.
}

interface Session {
  # What a user may do after the login.

  topic @0 (topic :Text) -> (topic :Topic);
  # The call succeeds even if there is no such topic. Whether the topic exists shows when it is
  # used.

  createTopic @1 (topic :Text, config :Hocket.TopicConfig, existOk :Bool) -> (topic :Topic);
  # A `config` that is left out has the defaults. With `existOk`, a topic that is there already
  # stays as it is, and the call succeeds.

  deleteTopic @2 (topic :Text, missingOk :Bool) -> ();
  # With `missingOk`, the call succeeds even if there is no such topic.

  topics @3 () -> (names :List(Text));
  # The names of the topics that the user may see, sorted.
}

interface Topic {
  publish @0 (batch :Batch) -> (partition :UInt32, offset :UInt64);
  # The call is answered when the records are durable. The answer is the partition and the offset of
  # the first record; the other records follow it. All records go to one partition. That is the
  # partition of the batch. If the batch names none, it is the partition of the keys, which must be
  # the same for all keys.

  producer @1 (options :ProducerOptions) -> (producer :Producer);
  # Open a producer, for a stream of records.

  subscribe @2 (options :SubscriptionOptions, sink :Sink) -> (subscription :Subscription);
  # Open a subscription. Records go to the sink for as long as the client holds the subscription.

  describe @3 () -> (description :Hocket.TopicDescription);
  # The topic's configuration and its partitions.
}

struct ProducerOptions {
  lingerUs @0 :UInt64 = 2000;
  # How long a record waits for other records, to be sent in one batch with them.

  batchBytes @1 :UInt64 = 1048576;
  # A batch is sent when it is this large.

  windowBytes @2 :UInt64 = 16777216;
  # A push waits while more bytes than this are not acknowledged. At most 64 MiB.

  codec @3 :Text = "none";
  # How batches are compressed: "none", "lz4", "zstd", or a codec of a package that the broker has.
}

interface Producer {
  push @0 (batch :Batch) -> stream;
  # The call is answered when the window has taken the records. The records are stored soon after,
  # in order and each once. Records with a key go to the partition of the key. Records without a key
  # are spread over the partitions.

  flush @1 () -> (ends :List(Position));
  # The call is answered when everything that was pushed before is durable. If a push failed, the
  # call fails with the first error. `ends` has one position for each partition that got records of
  # this producer: the offset after the last such record.
}

struct Position {
  partition @0 :UInt32;
  offset @1 :UInt64;
}

enum Form {
  # How records are delivered.

  records @0;
  # One by one, in a form that every language reads with ease.

  encoded @1;
  # As the batches in which the records are stored. This is far cheaper for both sides.
}

struct SubscriptionOptions {
  index @0 :Text;
  # The name of the index, in which the broker keeps how far the consumer has come. Empty: there is
  # no index, and the broker keeps nothing.

  mode @1 :Hocket.Mode;
  # Whether the index is one consumer's own or shared.

  start @2 :Hocket.Start;
  # Where a new index begins, or where a subscription without an index begins.

  positions @3 :List(Position);
  # Without an index: where the subscription begins in the partitions that are named. In all other
  # partitions it begins at `start`.

  partitions @4 :List(UInt32);
  # The partitions that are wanted. Empty: all partitions.

  holdRetention @5 :Bool;
  # True: retention does not remove records before this index has consumed them.

  form @6 :Form;
  # In which form the records are delivered.

  windowBytes @7 :UInt64 = 1048576;
  # How many bytes may be on their way to the sink. The broker holds as many again ready for the
  # sink. At most 64 MiB.

  leaseUs @8 :UInt64;
  # Shared indexes: how long a lease lasts. 0: as long as is set for the index.

  maxDeliveries @9 :UInt32;
  # Shared indexes: after how many deliveries a message goes to the dead letters. 0: as many as are
  # set for the index.

  prefetch @10 :UInt32 = 5000;
  # Shared indexes: how many messages that are not settled the sink may have.

  failover @11 :Hocket.Failover;
  # Shared indexes: whether messages that a consumer may still hold are withheld after a crash of
  # the broker.
}

interface Sink {
  # The client makes the sink, and the broker calls it.

  deliver @0 (batch :Batch) -> stream;
  # The batches of a partition come in order. The broker sends further batches before this call is
  # answered, as far as the subscription's window allows. A sink that fails ends its subscription.

  ended @1 (code :Text, message :Text) -> ();
  # The broker has ended the subscription, for this reason. Nothing more is delivered. The broker
  # does not call `ended` if the client itself has closed or dropped the subscription.
}

interface Subscription {
  ack @0 (partition :UInt32, start :UInt64, end :UInt64) -> ();
  # These messages are done and need not be delivered again. With an own index the call acknowledges
  # everything before `end`, whatever `start` is. With a shared index it acknowledges exactly these
  # messages, which this consumer must hold. The call does not wait until the acks are durable: they
  # are gathered, and `commit` waits for them.

  settle @1 (settlements :List(Settlement)) -> ();
  # Say what has become of messages of a shared index. Like `ack`, the call does not wait.

  commit @2 () -> ();
  # The call is answered when everything that was acknowledged or settled before is durable. It
  # fails with "leaseLost: ..." if this consumer no longer held some of the messages.

  close @3 () -> ();
  # Commit, and close the subscription. Nothing is delivered afterwards. Dropping the capability has
  # the same effect, but nothing is answered.
}

struct Settlement {
  partition @0 :UInt32;
  start @1 :UInt64;
  end @2 :UInt64;

  action @3 :Hocket.Settlement;
  # What has become of the messages. `release` is for messages that nobody has looked at: their
  # delivery does not count.

  durationUs @4 :UInt64;
  # nack: how long the messages are not delivered again. extend: how long the new lease lasts, from
  # now on; 0: as long as a lease of this index lasts.

  reason @5 :Text;
  # reject: why the messages are rejected, in words.
}

struct Batch {
  partition @0 :Int32 = -1;
  # The partition that the records go to, or come from. -1: the keys decide, and records without a
  # key go to any partition.

  union {
    records @1 :List(Record);
    # The records, one by one.

    encoded @2 :Data;
    # One batch entry, laid out as docs/internals/log_format.md says. In a publish or push the
    # broker overwrites the producer's id, epoch and sequence in the entry; if `partition` is -1,
    # the entry goes to the partition of its first record's key. In a delivery the entry has its
    # offsets.
  }

  start @3 :UInt64;
  end @4 :UInt64;
  # Deliveries: the range of offsets that is delivered. An encoded batch may also hold records
  # before `start` or from `end` on; skip those.

  deliveryCount @5 :UInt32;
  # Deliveries of a shared index: how often these messages were delivered, this time included.
}

struct Record {
  key @0 :Data;
  # Left out (a null pointer): the record has no key. An empty key is a key like any other.

  value @1 :Data;

  headers @2 :List(Header);

  timestamp @3 :Int64;
  # When the record was made. 0: now.

  offset @4 :UInt64;
  partition @5 :UInt32;
  deliveryCount @6 :UInt32;
  # Deliveries: the position of the record, and how often it was delivered, this time included.
}

struct Header {
  name @0 :Text;

  value @1 :Data;
  # Left out (a null pointer): the header has no value.
}
