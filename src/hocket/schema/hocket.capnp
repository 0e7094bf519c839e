@0x9629506c2ab85187;
# The protocol of Hocket: the header of every frame, in both directions.
#
# docs/protocol.md says how headers and payloads follow each other on a connection, and which frame
# answers which. Rules of this file:
#
# * New fields are added at the end of a struct, and new members at the end of the union. A field
#   number is never reused and never given another meaning. If the sender does not know a field, the
#   receiver reads the field's default in this file.
# * Offsets, sequences and handles are UInt64. Times are microseconds since the epoch, UTC.
#   Durations are microseconds. Ranges are half-open.
# * "Packed" Data is a list of numbers, one after the other. Each number has 64 bits and is unsigned
#   and little-endian.
# * Record batches are never in a header. They travel beside the header, as the frame's payload.

struct Frame {
  request @0 :UInt64;
  # The side that asks chooses this number, and its answer carries the same number. The number is 0
  # where no answer is expected.

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

    # What was added since, in the order in which it came.
    skipUnreadable @53 :SkipUnreadable;
    nameParticipants @54 :NameParticipants;
    revive @55 :Revive;
    deleteMessages @56 :DeleteMessages;
    describeRing @57 :DescribeRing;
    ringIs @58 :RingIs;
    lookUpKey @59 :LookUpKey;
    keyIsOwned @60 :KeyIsOwned;
    listNodes @61 :ListNodes;
    nodesAre @62 :NodesAre;
    findLeaders @63 :FindLeaders;
    leadersAre @64 :LeadersAre;
    readAudit @65 :ReadAudit;
    auditIs @66 :AuditIs;
    describeCluster @67 :DescribeCluster;
    clusterIs @68 :ClusterIs;
    setCluster @69 :SetCluster;
    openFeed @70 :OpenFeed;
    describeTree @71 :DescribeTree;
    treeIs @72 :TreeIs;
    registerName @73 :RegisterName;
    releaseName @74 :ReleaseName;
    findName @75 :FindName;
    nameIs @76 :NameIs;
    listNames @77 :ListNames;
    namesAre @78 :NamesAre;
    openPipe @79 :OpenPipe;
    pipeWanted @80 :PipeWanted;
    takePipe @81 :TakePipe;
    pipeIs @82 :PipeIs;
    deliverAlike @83 :DeliverAlike;
    describePlugins @84 :DescribePlugins;
    pluginsAre @85 :PluginsAre;
  }
}

struct FrameKind {
  # FrameKind is laid out like Frame, with the discriminant of the union as a number. FrameKind is
  # never sent. A receiver that does not know the member of a Frame reads the Frame as a FrameKind,
  # to say which kind of frame it was.

  request @0 :UInt64;
  # The same as in Frame.

  kind @1 :UInt16;
  # Which member of the union it is, counted from 0 in the order above.
}

# --- the connection ------------------------------------------------------------------------------

struct Hello {
  # The client's first frame. The answer is Welcome or Failure.

  versionMin @0 :UInt32 = 1;
  # The oldest version of the protocol that the client speaks.

  versionMax @1 :UInt32 = 1;
  # The newest version of the protocol that the client speaks.

  client @2 :Text;
  # Who the client is, for people who look at the broker.

  features @3 :List(Text);
  # What the client can do beyond the version. Unknown names are ignored.

  token @4 :Text;
  # The client's token, if the broker asks for one.
}

struct Welcome {
  # The broker's answer to Hello.

  version @0 :UInt32;
  # The version that both sides speak from here on.

  node @1 :Text;
  # The broker's name.

  software @2 :Text;
  # Which software the broker runs, for people.

  features @3 :List(Text);
  # What the broker can do beyond the version. Unknown names are ignored.

  limits @4 :Limits;
  # What the broker allows on this connection.

  cluster @5 :Text;
  # The id of the cluster that the broker belongs to, for ever the same: the id of the data directory
  # of the node that founded the cluster. A client that meets another id than before goes on nowhere.
  # Empty from a broker that does not know this field.

  id @6 :Text;
  # The id of the node's data directory, by which nodes are told apart. Empty from a broker that does
  # not know this field.

  nodes @7 :List(NodeAddress);
  # Other nodes of the cluster, by which a client may go on if it loses this one. At most 64.
}

struct NodeAddress {
  # Where a node is reached.

  node @0 :Text;
  # The id of its data directory.

  address @1 :Text;
  # HOST:PORT.
}

struct Goodbye {
  # The sender is about to close the connection. There is no answer.

  reason @0 :Text;
  # Why the sender closes the connection, in words.
}

struct Ping {
  # Are you there? The answer is Done.
}

struct Done {
  # The request was carried out, durably.
}

struct Failure {
  # The request failed. `mayHaveHappened` says whether it may have been carried out all the same.

  code @0 :Text;
  # One of the error codes of docs/protocol.md. Treat a code that you do not know as "failed".

  message @1 :Text;
  # What was wrong, with the value that was wrong, and what to do.

  mayHaveHappened @2 :Bool;
  # False: the request certainly had no effect. True: the request may have been carried out.

  node @3 :Text;
  # Of the code notHere: the id of the node to ask instead. Empty: the answering node does not know.

  address @4 :Text;
  # Where that node is reached, as HOST:PORT. Empty: the answering node does not know.
}

# --- topics --------------------------------------------------------------------------------------

struct CreateTopic {
  # Create a topic. The answer is Done.

  topic @0 :Text;
  # The topic's name: 1 to 255 ASCII letters, digits, '.', '_' or '-'. It begins with neither '.' nor
  # '-'.

  config @1 :TopicConfig;
  # The topic's configuration. A field that is left out has its default in TopicConfig.
}

struct AlterTopic {
  # Change the configuration of a topic. The answer is Done.

  topic @0 :Text;
  # The topic's name.

  config @1 :TopicConfig;
  # The whole new configuration. The number of partitions may only grow.
}

struct DeleteTopic {
  # Delete a topic with its records and indexes. The answer is Done.

  topic @0 :Text;
  # The topic's name.
}

struct ListTopics {
  # List the topics that the user may see. The answer is Topics, without the partitions.

  paged @0 :Bool;
  # True: answer with as much as fits one frame, and say in `next` where the rest begins. False:
  # answer with all of it, or with a failure if it does not fit.

  after @1 :Text;
  # The `next` of the answer before. Empty: from the beginning.
}

struct DescribeTopic {
  # Describe one topic. The answer is Topics, with this one topic and its partitions.

  topic @0 :Text;
  # The topic's name.

  paged @1 :Bool;
  # True: answer with as much as fits one frame, and say in `next` where the rest begins. False:
  # answer with all of it, or with a failure if it does not fit.

  after @2 :Text;
  # The `next` of the answer before. Empty: from the beginning.
}

struct Topics {
  # The answer to ListTopics and DescribeTopic.

  topics @0 :List(TopicDescription);
  # The topics, in the order of their names.

  next @1 :Text;
  # There is more: ask again, with this as `after`. Empty: this is the end of it.
}

struct FindOffsets {
  # Ask which offset `start` stands for in every partition of a topic. The answer is Offsets.

  topic @0 :Text;
  # The topic's name.

  start @1 :Start;
  # Where: the oldest record, the end, an offset or a time.

  partitions @2 :Data;
  # Packed: the partitions that are meant, in the order of the answer. Empty: all of them, in order.
}

struct Offsets {
  # The answer to FindOffsets, SeekIndex, SkipUnreadable and Revive.

  offsets @0 :Data;
  # Packed: one offset for each partition that the request is about, in the order of the partitions.
  # For Revive: the offsets of the messages that are delivered again.
}

struct DeleteMessages {
  # Delete the messages of a topic that lie before the given offsets. The answer is Done.

  topic @0 :Text;
  # The topic's name.

  offsets @1 :Data;
  # Packed: one offset for each of `partitions`.

  partitions @2 :Data;
  # Packed: the partitions that are meant. Empty: all partitions of the topic, in order.
}

# --- producing -----------------------------------------------------------------------------------

struct OpenProducer {
  # Open a producer. The answer is ProducerOpened.

  topic @0 :Text;
  # The name of the topic that the producer sends to.

  producerId @1 :Data;
  # 16 bytes: the id of a producer that was opened before, to go on as that producer. Empty: a new
  # producer.

  epoch @2 :UInt32;
  # The epoch of the producer that was opened before. 0 for a new producer.

  transaction @3 :Text;
  # The id of a transaction. If it is not empty, the batches of this producer are staged for the
  # transaction and acknowledged without offsets.

  number @4 :UInt64;
  # The number of the transaction among those of its id.

  delayed @5 :Bool;
  # True: the records of this producer are delayed. The timestamp of a record says when it is due,
  # and nobody sees the record before. The topic must be one that is `delayed`, and the producer may
  # not be one of a transaction. The offsets that acknowledge such batches count the topic's delayed
  # records; they are no offsets of the topic. Ask only a broker with the feature `delayed`.

  partitions @6 :Data;
  # Packed: the partitions that the producer is going to push to by this handle. Empty: all of them.
}

struct ProducerOpened {
  # The answer to OpenProducer.

  handle @0 :UInt64;
  # The producer's number on this connection.

  producerId @1 :Data;
  # The producer's id, 16 bytes. The client writes it into every batch.

  epoch @2 :UInt32;
  # The producer's epoch. The client writes it into every batch.

  partitions @3 :UInt32;
  # How many partitions the topic has now.

  sequences @4 :Data;
  # Packed: for each partition that was asked for, the sequence that the next new batch must have.
}

struct Push {
  # Store batches. The payload is one or more whole batches with consecutive sequences. A Push with
  # request 0 is answered by PushAcked and PushRefused.

  handle @0 :UInt64;
  # The producer.

  partition @1 :UInt32;
  # The partition that all the batches are for.
}

struct PushAcked {
  # Every batch up to `sequence` is as durable as the topic demands. The acknowledgement is
  # cumulative.

  handle @0 :UInt64;
  # The producer.

  partition @1 :UInt32;
  # The partition.

  sequence @2 :UInt64;
  # The sequence of the last batch that is acknowledged.

  offsets @3 :Data;
  # Packed: the offset of the first record of each newly acknowledged batch, in the order of the
  # batches.
}

struct PushRefused {
  # The batch with this `sequence` was not stored, nor was any batch that followed it in this
  # partition.

  handle @0 :UInt64;
  # The producer.

  partition @1 :UInt32;
  # The partition.

  sequence @2 :UInt64;
  # The sequence of the first batch that was refused.

  code @3 :Text;
  # An error code, as in Failure.

  message @4 :Text;
  # What was wrong, in words, as in Failure.
}

struct Publish {
  # Store one batch without opening a producer. The payload is the batch. The answer is Published.

  topic @0 :Text;
  # The topic's name.

  partition @1 :Int32 = -1;
  # The partition that the batch goes to. -1: the hash of the batch's first key decides.

  delayed @2 :Bool;
  # True: the records are delayed, as with a producer that is opened `delayed`.
}

struct Published {
  # The answer to Publish.

  partition @0 :UInt32;
  # The partition that the batch is in.

  offset @1 :UInt64;
  # The offset of the batch's first record.
}

struct CloseHandle {
  # Close a producer or a subscription. The answer is Done, when all that the producer or
  # subscription did is durable.

  handle @0 :UInt64;
  # The handle of the producer or subscription.
}

# --- consuming -----------------------------------------------------------------------------------

struct OpenSubscription {
  # Open a subscription. The answer is SubscriptionOpened.

  topic @0 :Text;
  # The name of the topic to read.

  index @1 :Text;
  # The index's name. Empty: there is no index, and the client itself keeps its positions.

  mode @2 :Mode;
  # Whether the index is one consumer's own or shared.

  start @3 :Start;
  # Where a new index begins, or where a subscription without an index begins.

  positions @4 :Data;
  # Packed pairs (partition, offset). In the partitions that are named, the subscription begins at
  # this offset instead.

  partitions @5 :Data;
  # Packed: the partitions that are wanted. Empty: all partitions.

  holdRetention @6 :Bool;
  # True: retention does not remove records before this index has consumed them.

  creditBytes @7 :UInt64;
  # The first credit: how many bytes of payload the broker may send.

  consumer @8 :Data;
  # Shared indexes: 16 bytes that the client chooses to name this consumer. After a lost connection
  # the client gives the same 16 bytes again.

  prefetch @9 :UInt32;
  # Shared indexes: how many messages the broker may send.

  leaseUs @10 :UInt64;
  # Shared indexes: how long a lease lasts. 0: as long as is set for the index; a new index has 30
  # s.

  maxDeliveries @11 :UInt32;
  # Shared indexes: after how many deliveries a message goes to the dead letters. 0: as many as are
  # set for the index; a new index has 5.

  failover @12 :Failover;
  # Shared indexes: whether messages that a consumer may still hold are withheld after a crash of
  # the broker.

  held @13 :Data;
  # Shared indexes: packed triples (partition, start, end) of messages that this client has handed
  # out and not settled.

  mustExist @14 :Bool;
  # True: the index is not made if there is none of this name; the answer is then a Failure with the
  # code unknownIndex.

  resumes @15 :Bool;
  # True: the client goes on with a subscription that it had, and `positions` are where it was. If
  # the topic's durability is memory, the broker may have lost records in a crash, and takes
  # positions beyond a partition's end back to that end.

  tells @16 :Bool;
  # Shared indexes: True: the client is going to say in Credit how far it has handed messages out.
  # If it dies, only what it has handed out counts as delivered. False: all that it had counts.

  part @17 :Bool;
  # True: `partitions` are some of those of a subscription to the whole topic, and the others are on
  # other nodes. If the topic grows, PartitionsChanged says so, and the client opens the new ones.

  fed @18 :Bool;
  # Own indexes, and no index: True: the client can take the bytes at another node, if the answer
  # names one (`feeder`).

  direct @19 :Bool;
  # True: but not now; this node is to deliver for the moment.

  unfed @20 :Text;
  # The id of the node at which the client was to take the bytes, and could not.
}

struct SubscriptionOpened {
  # The answer to OpenSubscription.

  handle @0 :UInt64;
  # The subscription's number on this connection.

  positions @1 :Data;
  # Packed pairs (partition, next offset): where the subscription begins.

  leaseUs @2 :UInt64;
  # Shared indexes: how long a lease lasts.

  indexIsNew @3 :Bool;
  # True: there was no index of this name, and it was made.

  feeder @4 :List(NodeAddress);
  # The node at which the client takes the bytes, by OpenFeed: nothing is delivered here. Empty: the
  # bytes are delivered here.

  groups @5 :Data;
  # Packed: the groups of the partitions in `positions`, in their order, if there is a feeder.
}

struct OpenFeed {
  # Take the bytes of a subscription at this node. The subscription is open at the node that leads
  # the partitions, which has named this one (`feeder`). The answer is SubscriptionOpened. Deliver,
  # Credit, Moved, HandleEnded and CloseHandle mean what they mean for a subscription.

  topic @0 :Text;
  # The topic's name.

  index @1 :Text;
  # The index of the subscription. Empty: it has none.

  places @2 :Data;
  # Packed triples (partition, its group, the next offset).

  creditBytes @3 :UInt64;
  # The first credit: how many bytes of payload the broker may send.
}

struct Deliver {
  # Records for an own index, or for a subscription without an index. The payload is whole batches
  # of one partition, in order. Its bytes are taken from the credit. There is no answer.

  handle @0 :UInt64;
  # The subscription.

  partition @1 :UInt32;
  # The partition.

  offset @2 :UInt64;
  # The offset of the first record that is delivered. The first batch may hold records before it;
  # skip those.

  end @3 :UInt64;
  # The end of the partition as the broker knows it now. The lag follows from it.
}

struct DeliverAlike {
  # The same as one Deliver for each of the handles, with the same payload, in this order: the payload
  # is sent once. Its bytes are taken from the credit of each subscription. Only clients that have the
  # feature "alike" in their Hello get this. There is no answer.

  handles @0 :Data;
  # Packed: the subscriptions.

  partition @1 :UInt32;
  # As in Deliver.

  offset @2 :UInt64;
  # As in Deliver.

  end @3 :UInt64;
  # As in Deliver.
}

struct Credit {
  # The broker may send more. There is no answer.

  handle @0 :UInt64;
  # The subscription.

  bytes @1 :UInt64;
  # How many more bytes of payload the broker may send.

  messages @2 :UInt64;
  # Shared indexes: how many more messages the broker may send.

  handed @3 :Data;
  # Shared indexes: packed triples (partition, number of a Lease, offset), for partitions where this
  # has changed: the first message that waits in the client to be handed out. Those before it were
  # handed out, or dropped. The Leases of this handle are counted from 1, over all partitions. If
  # nothing waits: the number of the next Lease, and 0. The first triple names the partition of which
  # the next message is handed out.
}

struct Commit {
  # Move the index to these positions. The answer is Done, when the move is durable.

  handle @0 :UInt64;
  # The subscription.

  positions @1 :Data;
  # Packed pairs (partition, next offset).
}

struct Moved {
  # The subscription goes on at another offset of this partition. Records of the partition that were
  # delivered before this frame and not handed out are void.

  handle @0 :UInt64;
  # The subscription.

  partition @1 :UInt32;
  # The partition.

  offset @2 :UInt64;
  # The offset at which the subscription goes on.

  lost @3 :UInt64;
  # How many records retention removed before they were read. 0 after a seek.
}

struct HandleEnded {
  # The broker has ended a producer or subscription: it was fenced, its topic was deleted, its
  # permission is gone, or its data is corrupt.

  handle @0 :UInt64;
  # The handle, which is void from here on, unless `commits` says otherwise.

  code @1 :Text;
  # An error code, as in Failure.

  message @2 :Text;
  # What was wrong, in words, as in Failure.

  commits @3 :Bool;
  # A subscription with an own index: nothing more is delivered, but the handle is not void yet. The
  # broker takes Commit for it until the client closes it, or another consumer opens the index.

  partition @4 :Int32 = -1;
  # With the code `corruptData`: the partition whose data cannot be read. -1: it is not known.

  start @5 :UInt64;
  # The first offset of that partition that cannot be read.

  end @6 :UInt64;
  # The offset behind the last one that cannot be read.
}

struct PartitionsChanged {
  # The topic of this producer or subscription has more partitions now.

  handle @0 :UInt64;
  # The producer or subscription.

  partitions @1 :UInt32;
  # How many partitions the topic has now.

  part @2 :Bool;
  # Subscriptions: True: the new partitions do not belong to this subscription. Some of them are on
  # other nodes, or the subscription is a part of one to the whole topic: the client opens them.
}

# --- indexes -------------------------------------------------------------------------------------

struct ListIndexes {
  # List the indexes of a topic. The answer is Indexes.

  topic @0 :Text;
  # The topic's name.

  paged @1 :Bool;
  # True: answer with as much as fits one frame, and say in `next` where the rest begins. False:
  # answer with all of it, or with a failure if it does not fit.

  after @2 :Text;
  # The `next` of the answer before. Empty: from the beginning.

  index @3 :Text;
  # If it is not empty, list the index of this name only.

  partitions @4 :Data;
  # Packed: tell of these partitions only. Empty: all partitions of the topic.
}

struct Indexes {
  # The answer to ListIndexes.

  indexes @0 :List(IndexDescription);
  # The indexes, in the order of their names.

  next @1 :Text;
  # There is more: ask again, with this as `after`. Empty: this is the end of it.
}

struct SeekIndex {
  # Move an index, whether a consumer is attached to it or not. The answer is Offsets.

  topic @0 :Text;
  # The topic's name.

  index @1 :Text;
  # The index's name.

  start @2 :Start;
  # Where the index goes on.

  partition @3 :Int32 = -1;
  # The partition in which the index is moved. -1: `partitions`.

  partitions @4 :Data;
  # Packed: the partitions in which the index is moved. Empty: all partitions.

  elsewhere @5 :Bool;
  # True: another node has the index in other partitions of the topic. So it need not be in these
  # yet, and is made there. False: if this node has no such index, the answer is UnknownIndex.
}

struct SkipUnreadable {
  # Move an own index past the messages that it stands at, if they cannot be read. What was
  # acknowledged stays so. The answer is Offsets, with the position of the index.

  topic @0 :Text;
  # The topic's name.

  index @1 :Text;
  # The index's name.

  partition @2 :UInt32;
  # The partition.

  offset @3 :UInt64;
  # One of the messages that cannot be read. If the index is behind it already, nothing changes.
}

struct DeleteIndex {
  # Delete an index. The answer is Done.

  topic @0 :Text;
  # The topic's name.

  index @1 :Text;
  # The index's name.

  partitions @2 :Data;
  # Packed: the partitions in which the index is deleted. Empty: all partitions.
}

struct Revive {
  # Have a shared index deliver messages again that it has given up, and that are dead letters. Other
  # indexes do not get them. A dead letter is used up by that: said again, the request changes
  # nothing. The answer is Offsets, with the offsets of the messages that are delivered again.

  topic @0 :Text;
  # The topic's name.

  index @1 :Text;
  # The index's name.

  partition @2 :UInt32;
  # The partition that has the messages.

  offsets @3 :Data;
  # Packed: the offsets of the messages.

  letters @4 :Data;
  # Packed: the offsets of their dead letters, as many, each larger than the one before.

  deadPartition @5 :UInt32;
  # The partition of `<topic>.dlq` that has the dead letters.
}

# --- shared indexes ------------------------------------------------------------------------------

struct Lease {
  # Messages that are this consumer's alone until their lease ends. The payload is the batches that
  # hold these messages. Its bytes and messages are taken from the credit. There is no answer.

  handle @0 :UInt64;
  # The subscription.

  partition @1 :UInt32;
  # The partition.

  end @2 :UInt64;
  # The end of the partition as the broker knows it now. The lag follows from it.

  ranges @3 :Data;
  # Packed triples (start, end, delivery count) of the messages that are leased, in order.

  continued @4 :Bool;
  # True: the first batch is the last batch of the previous Lease of this handle and partition. That
  # batch is not sent again.

  alone @5 :Bool;
  # True: the message was with a consumer that died. This consumer gets nothing more before it has
  # settled the message, so it does not wait for others to tell of with it.
}

struct Settle {
  # Say what has become of messages. The answer is Settled, when that is durable.

  handle @0 :UInt64;
  # The subscription.

  action @1 :Settlement;
  # What has become of the messages.

  ranges @2 :Data;
  # Packed triples (partition, start, end) of the messages.

  durationUs @3 :UInt64;
  # nack: how long the messages are not delivered again. extend: how long the new lease lasts, from
  # now on; 0: as long as a lease of this index lasts.

  reason @4 :Text;
  # reject: why the messages are rejected, in words.

  again @5 :Bool;
  # True: the client has said this before, on a connection that broke before it was answered.
}

struct Settled {
  # The answer to Settle.

  refused @0 :Data;
  # Packed triples (partition, start, end) of messages that this consumer does not hold. Nothing was
  # changed for these messages. If the Settle was sent `again`, messages for which it holds already
  # are not refused: those that are settled, and for a reject those on their way to the dead letters.
}

# --- transactions --------------------------------------------------------------------------------

struct CommitTransaction {
  # Publish all that was staged for a transaction, or nothing of it. The answer is Done, when all of
  # it can be read.

  transaction @0 :Text;
  # The id of the transaction.

  number @1 :UInt64;
  # The number of the transaction among those of its id. The numbers of an id only grow.

  participants @2 :List(Participant);
  # All participants of the transaction, but for those that were named before. What other producers
  # have staged for the transaction is dropped.

  named @3 :UInt32;
  # How many participants were named before, by NameParticipants on this connection.
}

struct NameParticipants {
  # Name some participants of a commit that is to come on this connection, if one frame cannot name
  # all of them. The answer is Done. The broker keeps the names until the commit comes or the
  # connection ends.

  transaction @0 :Text;
  # The id of the transaction.

  number @1 :UInt64;
  # The number of the transaction among those of its id.

  start @2 :UInt32;
  # How many participants of this transaction were named before, on this connection. 0: name them
  # anew.

  participants @3 :List(Participant);
  # The next participants.
}

struct AbortTransaction {
  # Drop what some producers have staged for a transaction. The answer is Done. An abort does not
  # use up the number: other producers can stage for it afterwards, and what they stage can be
  # committed.

  transaction @0 :Text;
  # The id of the transaction.

  number @1 :UInt64;
  # The number of the transaction among those of its id.

  producers @2 :List(Data);
  # The ids of the producers, 16 bytes each. What these producers have staged is dropped and can
  # never be committed.
}

# --- access --------------------------------------------------------------------------------------

struct CreateUser {
  # Create a user. The answer is TokenIssued. The first user turns access control on, and must have
  # the role admin.

  name @0 :Text;
  # The user's name: ASCII letters, digits, '.', '_' or '-'.

  roles @1 :List(Text);
  # The roles that the user has.
}

struct RenewToken {
  # Make a new token for a user. The old token is void from now on. The answer is TokenIssued.

  name @0 :Text;
  # The user's name.
}

struct TokenIssued {
  # The answer to CreateUser and RenewToken. The broker keeps only a hash of the token, so it cannot
  # show the token again.

  token @0 :Text;
  # The token that the user's clients send in Hello.
}

struct DeleteUser {
  # Delete a user and close the user's connections. The answer is Done.

  name @0 :Text;
  # The user's name.
}

struct SetRoles {
  # Set the roles of a user. The answer is Done.

  name @0 :Text;
  # The user's name.

  roles @1 :List(Text);
  # All roles that the user has from now on. They replace the user's present roles.
}

struct CreateRole {
  # Create a role. The answer is Done.

  name @0 :Text;
  # The role's name: ASCII letters, digits, '.', '_' or '-'.
}

struct DeleteRole {
  # Delete a role. Users that have the role lose it. The answer is Done.

  name @0 :Text;
  # The role's name.
}

struct AddGrant {
  # Add a grant to a role. The answer is Done.

  role @0 :Text;
  # The name of the role that gets the grant.

  grant @1 :Grant;
  # The grant.
}

struct RemoveGrant {
  # Remove a grant from a role. Producers and subscriptions that nothing else permits end at once.
  # The answer is Done.

  role @0 :Text;
  # The name of the role that has the grant.

  grant @1 :Grant;
  # The grant, exactly as it was added.
}

struct DescribeAccess {
  # List users, roles and grants. The answer is Access.

  paged @0 :Bool;
  # True: answer with as much as fits one frame, and say in `next` where the rest begins. False:
  # answer with all of it, or with a failure if it does not fit.

  after @1 :Text;
  # The `next` of the answer before. Empty: from the beginning.
}

struct Access {
  # The answer to DescribeAccess. Access control is off if there are no users.

  users @0 :List(UserDescription);
  # The users, in the order of their names.

  roles @1 :List(RoleDescription);
  # The roles, in the order of their names.

  next @2 :Text;
  # There is more: ask again, with this as `after`. Empty: this is the end of it.
}

struct ExplainAccess {
  # Ask whether a user may do something. The answer is Explained.

  user @0 :Text;
  # The user's name. Users may ask about themselves, an admin about everybody.

  action @1 :Action;
  # What the user would do.

  topic @2 :Text;
  # The name of the topic that the user would do it with.

  index @3 :Text;
  # The name of the index that the user would do it with. Empty: no index.
}

struct Explained {
  # The answer to ExplainAccess.

  allowed @0 :Bool;
  # Whether the user may do it.

  reason @1 :Text;
  # Why, in words: which grant of which role permits it, or which grant is missing.
}

# --- what the frames are made of -----------------------------------------------------------------

enum Failover {
  safe @0;
  # After a crash of the broker, messages that a consumer may still hold are withheld for two
  # seconds. A consumer that comes back in this time keeps the messages in its `held`.

  fast @1;
  # After a crash of the broker, messages that a consumer may still hold are delivered again at
  # once. Two consumers may have the same message for a while.
}

enum Settlement {
  ack @0;
  # The message is done.

  nack @1;
  # The message is to be delivered again.

  extend @2;
  # The work on the message takes longer: the message gets a new lease, from now on.

  reject @3;
  # The message is not to be delivered again: it goes to the dead letters.

  release @4;
  # The message was not handed out: it is delivered again, and this delivery does not count.
}

enum Action {
  publish @0;
  # Produce to the topic.

  subscribe @1;
  # Consume the topic, and move its indexes.

  create @2;
  # Create a topic of that name.

  alter @3;
  # Change the configuration of the topic.

  delete @4;
  # Delete the topic, or its indexes.

  admin @5;
  # Everything. On the topics '*' that includes users, roles and grants.
  bind @6;
  # To have the name of a broker that other processes reach.

  connect @7;
  # To connect to such a name.
}

struct Participant {
  topic @0 :Text;
  # The topic's name.

  partition @1 :UInt32;
  # The partition in which something is staged.

  producerId @2 :Data;
  # The id of the producer that staged it, 16 bytes.

  batches @3 :UInt64;
  # How many batches are staged. Their sequences begin at 0 and have no gaps.

  records @4 :UInt64;
  # How many records are in all these batches.

  crc @5 :UInt32;
  # The CRC-32C over the body CRCs of the batches, in order. Each body CRC is four bytes,
  # little-endian.
}

struct Grant {
  action @0 :Action;
  # The action that the grant permits.

  topic @1 :Text;
  # A pattern for the names of topics: '*' stands for any run of characters.

  index @2 :Text;
  # A pattern for the names of indexes, where the action concerns an index.
}

struct RoleDescription {
  name @0 :Text;
  # The role's name.

  grants @1 :List(Grant);
  # The grants of the role.
}

struct UserDescription {
  name @0 :Text;
  # The user's name.

  roles @1 :List(Text);
  # The names of the roles that the user has.
}

enum Durability {
  quorum @0;
  # A batch is acknowledged when it is on the disk of a majority of the replicas.

  memory @1;
  # A batch is acknowledged when it is in the memory of a majority of the replicas.
}

enum Mode {
  own @0;
  # The index has one consumer, which gets every message.

  shared @1;
  # The index has many consumers, and each message goes to one of them.

  keyShared @2;
  # As `shared`. Besides, the messages of one key go to one consumer at a time, in order.
}

enum StartKind {
  earliest @0;
  # At the oldest record that there is.

  latest @1;
  # After the newest record that there is.

  offset @2;
  # At the offset `value`.

  time @3;
  # At the first record whose timestamp is `value` or later.
}

struct TopicConfig {
  partitions @0 :UInt32 = 1;
  # How many partitions the topic has.

  replication :union {
    # How many copies of each partition there are.

    none @1 :Void;
    # As many as the broker makes by default.

    some @2 :UInt32;
    # This many.
  }

  memoryRetentionUs @3 :UInt64 = 600000000;
  # How long records are served from memory.

  memoryBytesMax @4 :UInt64 = 268435456;
  # How many bytes of one partition are kept in memory. Records leave memory early if there are
  # more.

  diskRetentionUs :union {
    # How long records are kept on disk.

    some @5 :UInt64 = 604800000000;
    # This many microseconds.

    none @6 :Void;
    # For ever.
  }

  diskBytesMax :union {
    # How many bytes of one partition are kept on disk.

    none @7 :Void;
    # There is no limit.

    some @8 :UInt64;
    # This many bytes.
  }

  durability @9 :Durability;
  # When a batch is acknowledged.

  segmentBytesMax @10 :UInt64 = 67108864;
  # How large one segment, a file of the log, may become, in bytes.

  delayed @11 :Bool;
  # True: records may be published that are due later. A topic that has this keeps it, whatever a
  # later AlterTopic says.
}

struct TopicDescription {
  name @0 :Text;
  # The topic's name.

  config @1 :TopicConfig;
  # The topic's present configuration.

  partitions @2 :List(PartitionDescription);
  # The partitions, in order. Empty in the answer to ListTopics.
}

struct PartitionDescription {
  partition @0 :UInt32;
  # The partition's number.

  start @1 :UInt64;
  # The oldest offset that can be read.

  end @2 :UInt64;
  # The offset that the next record will get.

  memoryStart @3 :UInt64;
  # The offset from which on reads are answered from memory. It is `end` if nothing is in memory.

  memoryBytes @4 :UInt64;
  # How many bytes of the partition are in memory.

  diskBytes @5 :UInt64;
  # How many bytes of the partition are in its segments on disk.

  memoryReads @6 :UInt64;
  # How many reads were answered from memory since the broker started.

  diskReads @7 :UInt64;
  # How many reads went to the disk since the broker started.

  leader @8 :Text;
  # The id of the node that leads the partition. Empty: nobody is known to.

  replicas @9 :List(Text);
  # The ids of the nodes that hold a copy of the partition.

  problem @10 :Text;
  # What is damaged, in words. Empty if nothing is damaged.

  waiting @11 :UInt64;
  # How many delayed records are not in the partition yet, since they are not due.

  known @12 :Bool = true;
  # False: the node that holds the partition did not answer. Then `problem` says so, and the numbers
  # are 0 because nobody knows them.

  replicaStates @13 :List(ReplicaState);
  # What is known of each copy.

  tierBytes @14 :UInt64;
  # How many bytes of the partition are in a storage tier, and not in segments on disk.
}

struct ReplicaState {
  # One copy of a partition.

  node @0 :Text;
  # The id of the node that holds it.

  role @1 :Text;
  # "leader" or "follower"; or "unknown": nobody who knows has answered. Others may come.

  term @2 :UInt64;
  # The term in which the node leads, or follows. 0: not known.

  end @3 :UInt64;
  # The offset behind the last record that is durable there. 0 if that is not known.

  lag @4 :UInt64;
  # How many entries of the log it lacks that the leader has.

  behind @5 :Bool;
  # True: it is not known to have what the leader had a moment ago. It is down, or cut off, or slow.
}

struct IndexDescription {
  name @0 :Text;
  # The index's name.

  mode @1 :Mode;
  # Whether the index is one consumer's own or shared.

  holdRetention @2 :Bool;
  # True: retention does not remove records before this index has consumed them.

  partitions @3 :List(IndexPartition);
  # How far the index has come in each partition, in the order of the partitions.
}

struct IndexPartition {
  partition @0 :UInt32;
  # The partition's number.

  position @1 :UInt64;
  # The next offset to be consumed.

  end @2 :UInt64;
  # The offset that the next record will get.

  attached @3 :Bool;
  # True: a consumer is connected.

  ahead @4 :UInt64;
  # Shared indexes: how many messages after `position` are settled already.

  leased @5 :UInt64;
  # Shared indexes: how many messages consumers hold now.

  lost @6 :UInt64;
  # How many messages were removed before the index had consumed them, since it was made or moved by
  # SeekIndex.
}

struct Start {
  kind @0 :StartKind;
  # Which kind of start it is. The kind says what `value` means.

  value @1 :Int64;
  # For `offset` the offset, for `time` the time in microseconds, and otherwise 0.
}

struct Limits {
  frameBytesMax @0 :UInt64 = 167772160;
  # How many bytes the payload of one frame may have.

  batchBytesMax @1 :UInt64 = 134217728;
  # How many bytes one batch may have, as it is stored.

  inFlightMax @2 :UInt32 = 32;
  # How many batches of one producer may be unacknowledged in one partition.

  handlesMax @3 :UInt32 = 10000;
  # How many producers and subscriptions one connection may have open.

  connectionsMax @4 :UInt32 = 10000;
  # How many connections one broker takes.

  creditBytesMax @5 :UInt64 = 1073741824;
  # How many bytes of credit one subscription may have.
}

# --- the cluster ---------------------------------------------------------------------------------

struct DescribeRing {
  # Gather how the nodes on the ring see it. The answer is RingIs.
}

struct RingIs {
  # The ring, as its nodes see it. Each has answered at its own moment.

  cluster @0 :Text;
  # The id of the cluster.

  ideal @1 :Bool;
  # Every successor list and every predecessor is exactly right.

  successors @2 :UInt32;
  # The length of successor lists.

  nodes @3 :List(RingNode);
  # Those that answered, by position.

  silent @4 :List(Text);
  # The ids of nodes that others count on, and that did not answer.
}

struct RingNode {
  # One node on the ring, as it sees the ring itself.

  node @0 :Text;
  # The id of its store.

  name @1 :Text;
  # Its name, for people.

  address @2 :Text;
  # Where it is reached, as HOST:PORT.

  position @3 :UInt64;
  # Where it is on the ring.

  successors @4 :List(Text);
  # The ids of its successors, the nearest first.

  predecessor @5 :Text;
  # The id of its predecessor. Empty: it has none.

  fingers @6 :List(Text);
  # The ids of its fingers, from the longest step to the shortest, each once.
}

struct LookUpKey {
  # Find the owner of a key by way of the ring. The answer is KeyIsOwned.

  key @0 :Text;
  # The key.

  cached @1 :Bool = true;
  # The nodes may take short cuts that they have learnt. False: from finger to finger.
}

struct KeyIsOwned {
  # The answer to LookUpKey.

  position @0 :UInt64;
  # Where the key is on the ring.

  owner @1 :Text;
  # The id of the node that owns the key.

  hops @2 :List(Text);
  # The ids of the nodes that were asked, in order.
}

struct FindLeaders {
  # Ask which node leads each partition of a topic. Any node knows it. The answer is LeadersAre.

  topic @0 :Text;
  # The topic's name.
}

struct LeadersAre {
  # The answer to FindLeaders.

  nodes @0 :List(NodeAddress);
  # Each node that leads a partition of the topic, once.

  leaders @1 :Data;
  # Packed: for each partition, in order, the place of its leader in `nodes`. A place that is not
  # below the number of nodes: nobody is known to lead the partition.
}

struct ListNodes {
  # Name the nodes of the cluster. The answer is NodesAre.

  known @0 :Bool;
  # True: as the asked node has them by heart. It asks no other node, and calls every node alive.
}

struct NodesAre {
  # The answer to ListNodes.

  nodes @0 :List(NodeDescription);
  # All nodes that belong to the cluster, by position.
}

struct NodeDescription {
  # One node of the cluster, as the node that was asked sees it.

  node @0 :Text;
  # The id of its store.

  name @1 :Text;
  # Its name, for people.

  address @2 :Text;
  # Where it is reached, as HOST:PORT.

  state @3 :NodeState;
  # Whether it lives.

  position @4 :UInt64;
  # Where it is on the ring.

  domain @5 :Text;
  # What fails together with it. Empty: nothing.
}

enum NodeState {
  alive @0;
  # It has answered just now.

  suspect @1;
  # It has not answered, and may be slow, stopped or cut off.

  dead @2;
  # The node that was asked has given it up.
}

struct ReadAudit {
  # Read the audit logs of all nodes. The answer is AuditIs.

  sinceUs @0 :UInt64;
  # From this time on.
}

struct AuditIs {
  # The answer to ReadAudit.

  records @0 :List(AuditRecord);
  # In the order of time.

  nextUs @1 :UInt64;
  # There are more from this time on. 0: these are all.

  silent @2 :List(Text);
  # The ids of nodes that did not answer.
}

struct DescribeCluster {
  # Ask what is set for the whole cluster. The answer is ClusterIs.
}

struct ClusterIs {
  # The answer to DescribeCluster.

  cluster @0 :Text;
  # The id of the cluster.

  nodes @1 :UInt32;
  # How many nodes the cluster has, whether they are there at the moment or not.

  replication @2 :UInt32;
  # How many copies of each partition a topic gets that is made without saying so.

  successors @3 :UInt32;
  # The length of successor lists. 0: the broker is in no cluster.
}

struct SetCluster {
  # Change what is set for the whole cluster. The answer is Done.

  replication @0 :UInt32;
  # How many copies of each partition a topic gets that is made from now on without saying so. 0: it
  # stays as it is.
}

struct DescribeTree {
  # Ask how the partitions of a topic fan out over the nodes. The answer is TreeIs.

  topic @0 :Text;
  # The topic's name.
}

struct TreeIs {
  # The answer to DescribeTree. Each node has answered at its own moment.

  nodes @0 :List(TreeNode);
  # By partition, and then by node.

  silent @1 :List(Text);
  # The ids of nodes that did not answer.
}

struct TreeNode {
  # One node in the tree in which a partition fans out, as it sees the tree itself.

  partition @0 :UInt32;
  # The partition.

  node @1 :Text;
  # The id of its store.

  parent @2 :Text;
  # The id of its parent. Empty: it is a root, or looks for a parent.

  children @3 :List(Text);
  # The ids of its children.

  childBytes @4 :List(UInt64);
  # How many bytes of batches each child was sent, since it is one.

  consumers @5 :UInt32;
  # How many consumers it serves itself.

  bytesOut @6 :UInt64;
  # How many bytes of batches it has sent to children and consumers, since it takes part.

  isRoot @7 :Bool;
  # It leads the partition.

  readsLog @8 :Bool;
  # It takes the batches from its own log, and so is a root: it leads the partition, or keeps a copy.
}

struct AuditRecord {
  # What a node has denied, or changed.

  node @0 :Text;
  # The id of its store.

  timeUs @1 :UInt64;
  # When, by the clock of that node.

  text @2 :Text;
  # For people.
}

struct RegisterName {
  # Register the name of a broker for the process behind this connection. The answer is Done.

  name @0 :Text;
  # The name: 1 to 255 bytes, printable.

  kind @1 :Text;
  # The kind of broker, "full-event", "mixed" or "thread". Only brokers of one kind connect.

  lease @2 :Data;
  # 16 random bytes. Whoever knows them may register the name again, at any node, and release it.

  key @3 :Data;
  # 32 random bytes, by which the nodes of the cluster make tickets for this name.

  address @4 :Text;
  # Where the process listens, as host:port. Empty: it is reached through its node only.

  fingerprint @5 :Data;
  # The SHA-256 of the certificate (DER) that the process shows there. Empty: it speaks no TLS.
}

struct ReleaseName {
  # Free a name, if this lease has it. The answer is Done.

  name @0 :Text;
  # The name.

  lease @1 :Data;
  # The lease that it was registered with.
}

struct FindName {
  # Ask where the broker of this name is, and for a ticket to call it. The answer is NameIs.

  name @0 :Text;
  # The name.
}

struct NameIs {
  # The answer to FindName.

  kind @0 :Text;
  # The kind of broker.

  lease @1 :Data;
  # The first 8 bytes of its lease: enough to tell one registration from the next.

  address @2 :Text;
  # Where its process listens. Empty: it is reached through its node only.

  fingerprint @3 :Data;
  # The SHA-256 of the certificate that is shown there. Empty: no TLS is spoken there.

  node @4 :Text;
  # The address of the node that its process is connected to. Empty: it is this one.

  ticket @5 :Data;
  # To be shown to the process.

  secret @6 :Data;
  # By which the caller proves that the ticket is his.
}

struct ListNames {
  # Ask for the names that the user may know of. The answer is NamesAre.

  after @0 :Text;
  # Only those behind this one.
}

struct NameDescription {
  # A name of a broker.

  name @0 :Text;
  # The name.

  kind @1 :Text;
  # The kind of broker.

  node @2 :Text;
  # The id of the node that its process is connected to.

  user @3 :Text;
  # Who has registered it. Empty: there were no users.

  address @4 :Text;
  # Where its process listens. Empty: it is reached through its node only.
}

struct NamesAre {
  # The answer to ListNames.

  names @0 :List(NameDescription);
  # By name.

  next @1 :Text;
  # There are more behind this one. Empty: these are all.
}

struct OpenPipe {
  # Have this node pass bytes on between this connection and the process of the broker of this name.
  # The answer is PipeIs.

  name @0 :Text;
  # The name.
}

struct PipeWanted {
  # Somebody wants to reach a broker of this connection through the node. Its process opens another
  # connection to this node, and sends TakePipe there.

  name @0 :Text;
  # The name that is called.

  pipe @1 :Data;
  # To be sent back in TakePipe.
}

struct TakePipe {
  # Be the other end of a pipe. The answer is PipeIs.

  pipe @0 :Data;
  # What PipeWanted has said.
}

struct PipeIs {
  # The pipe stands. This is the last frame of the connection in this direction. What follows are
  # bytes of the process at the other end.
}

struct DescribePlugins {
  # Which plug-ins this node runs, and how they fare. The answer is PluginsAre.
}

struct PluginsAre {
  # The answer to DescribePlugins.

  node @0 :Text;
  # The id of the node's store.

  name @1 :Text;
  # The node's name.

  hooks @2 :List(PluginState);
  # In the order in which plug-ins are called.
}

struct PluginState {
  # One hook of a plug-in, since the node was started.

  plugin @0 :Text;
  # The plug-in's name.

  version @1 :Text;
  # The version of its package.

  policy @2 :Text;
  # "open": what it should have judged passes when it fails. "closed": that is refused.

  on @3 :Bool;
  # False: it has failed too often, and is not called any more.

  problem @4 :Text;
  # What it failed with last. Empty: nothing.

  hook @5 :Text;
  # The hook's name.

  calls @6 :UInt64;
  # How often it was called.

  rejections @7 :UInt64;
  # How many batches it has refused.

  failures @8 :UInt64;
  # How often it failed.

  slow @9 :UInt64;
  # How many calls took longer than they may.

  totalUs @10 :UInt64;
  # How long all calls took, in microseconds.

  maxUs @11 :UInt64;
  # How long the longest took.

  process @12 :Text;
  # Of a plug-in in a process of its own: "starting", "running", "restarting" or "stopped". Empty:
  # it runs within the node.

  kills @13 :UInt64;
  # How often its process was killed.

  ends @14 :UInt64;
  # How often its process ended, killed or by itself.

  waiting @15 :UInt64;
  # How many questions its process has not answered yet.

  dropped @16 :UInt64;
  # How often it was not told what it should have been told.
}
