@0xdd4f0a3c91e27b65;
# The protocol between the nodes of a cluster: the header of every frame on a link.
#
# docs/protocol.md says how a link begins and how its frames are told from those of clients. Rules
# of this file:
#
# * New fields are added at the end of a struct, and new members at the end of the union. A field
#   number is never reused and never given another meaning. If the sender does not know a field, the
#   receiver reads the field's default in this file.
# * Positions, keys, offsets, groups, terms and incarnations are UInt64. Durations are microseconds.
#   Ranges are half-open.
# * "Packed" Data is a list of numbers, one after the other. Each number has 64 bits and is unsigned
#   and little-endian.
# * Batches are never in a header. They travel beside the header, as the frame's payload, as they
#   lie in the log; the header says where each begins and how long it is.

struct NodeFrame {
  request @0 :UInt64;
  # The side that asks chooses this number, and its answer carries the same number. The number is 0
  # where no answer is expected. An answer with the number 0 was not asked for.

  fromIncarnation @1 :UInt64;
  # The sender's life on the ring. The rest of the sender's contact stands in its NodeHello.

  toIncarnation @2 :UInt64;
  # The life of the receiver that the message is meant for; 0: whichever is there.

  union {
    # The link.
    nodeHello @3 :NodeHello;
    helloAccepted @4 :HelloAccepted;
    helloRefused @5 :HelloRefused;
    heartbeat @6 :Heartbeat;

    # The ring.
    getState @7 :GetState;
    stateIs @8 :StateIs;
    busy @9 :Busy;
    gone @10 :Gone;
    joinAt @11 :JoinAt;
    welcome @12 :Welcome;
    notMine @13 :NotMine;
    notify @14 :Notify;
    ping @15 :Ping;
    pong @16 :Pong;
    getCloser @17 :GetCloser;
    closerAre @18 :CloserAre;
    leaving @19 :Leaving;
    beaconIs @20 :BeaconIs;
    register @21 :Register;
    deregister @22 :Deregister;
    askRoot @23 :AskRoot;
    getRegistry @24 :GetRegistry;
    registryIs @25 :RegistryIs;

    # The relay tree of a partition.
    attach @26 :Attach;
    attached @27 :Attached;
    redirect @28 :Redirect;
    notRelaying @29 :NotRelaying;
    detach @30 :Detach;
    fetch @31 :Fetch;
    fetched @32 :Fetched;
    behind @33 :Behind;
    notAttached @34 :NotAttached;
    moveUp @35 :MoveUp;

    # Who leads a partition.
    publishLeader @36 :PublishLeader;
    whereIs @37 :WhereIs;
    leaderIs @38 :LeaderIs;

    # What was added since, in the order in which it came.
    getView @39 :GetView;
    viewIs @40 :ViewIs;
    whoLeads @41 :WhoLeads;
    rootIs @42 :RootIs;
    unused43 @43 :Unused;
    unused44 @44 :Unused;
    unused45 @45 :Unused;
    unused46 @46 :Unused;
    forward @47 :Forward;
    forwarded @48 :Forwarded;
    getPartitions @49 :GetPartitions;
    partitionsAre @50 :PartitionsAre;
    askStages @51 :AskStages;
    applyStages @52 :ApplyStages;
    stagesAre @53 :StagesAre;
    discardStages @54 :DiscardStages;
    forgetDecisions @55 :ForgetDecisions;
    whatOfStages @56 :WhatOfStages;
    whatToForget @57 :WhatToForget;
    handOver @58 :HandOver;
    handedOver @59 :HandedOver;
    storeBatch @60 :StoreBatch;
    batchStored @61 :BatchStored;
    getAudit @62 :GetAudit;
    auditHolds @63 :AuditHolds;
    raftMail @64 :RaftMail;
    raftBeat @65 :RaftBeat;
    raftBeatAnswer @66 :RaftBeatAnswer;
    getTrees @67 :GetTrees;
    treesAre @68 :TreesAre;
  }
}

struct NodeFrameKind {
  # NodeFrameKind is laid out like NodeFrame, with the discriminant of the union as a number. It is
  # never sent. A receiver that does not know the member of a NodeFrame reads the NodeFrame as a
  # NodeFrameKind, to say which kind of frame it was.

  request @0 :UInt64;
  # The same as in NodeFrame.

  fromIncarnation @1 :UInt64;
  # The same as in NodeFrame.

  toIncarnation @2 :UInt64;
  # The same as in NodeFrame.

  kind @3 :UInt16;
  # Which member of the union it is, counted from 0 in the order above.
}

# --- values --------------------------------------------------------------------------------------

struct Contact {
  # One life of one node.

  position @0 :UInt64;
  # Where the node is on the ring.

  node @1 :Text;
  # The node's store id, the same in every life.

  incarnation @2 :UInt64;
  # The number of this life; 0: not known.

  address @3 :Text;
  # Where other nodes reach the node, as HOST:PORT.

  domain @4 :Text;
  # What fails together with the node: a rack, a zone. Empty: nothing.

  capacity @5 :UInt32 = 1;
  # How many partitions the node takes, relative to others. 0: none, if another node can take them.
}

struct Beacon {
  # A numbered sign of life of the root. The newer of two has the higher epoch, then the higher
  # number.

  epoch @0 :UInt64;
  # The root's incarnation.

  number @1 :UInt64;
  # Counts the beacons of an epoch.

  registry @2 :UInt64;
  # The version of the registry when the beacon was sent.

  root @3 :Text;
  # The root's address.
}

struct PartitionId {
  # The log of a partition.

  topic @0 :Text;
  # The name of the topic.

  partition @1 :UInt32;
  # The number of the partition in its topic.

  group @2 :UInt64;
  # The group of the log, never used twice: a topic that is made anew has another.
}

# --- the link ------------------------------------------------------------------------------------

struct NodeHello {
  # The first frame of the node that has opened the link. The answer is HelloAccepted or
  # HelloRefused.

  versionMin @0 :UInt32 = 1;
  # The oldest version of this protocol that the node speaks.

  versionMax @1 :UInt32 = 1;
  # The newest version of this protocol that the node speaks.

  cluster @2 :Text;
  # The id of the cluster that the node belongs to. Empty: the node wants to join the cluster that
  # it finds here.

  node @3 :Text;
  # The id of the node's store. The node's certificate names the same.

  name @4 :Text;
  # The node's name, for people.

  software @5 :Text;
  # Which software the node runs, for people.

  position @6 :UInt64;
  # Where the node is on the ring.

  address @7 :Text;
  # Where other nodes reach the node, as HOST:PORT.

  domain @8 :Text;
  # What fails together with the node. Empty: nothing.

  incarnation @9 :UInt64;
  # The node's life on the ring when the link was opened.

  features @10 :List(Text);
  # What the node can do beyond the version. Unknown names are ignored.

  boot @11 :UInt64;
  # A number drawn by chance when the node's process started. Two processes with one store id are
  # two copies of a data directory.

  starting @12 :Bool;
  # The node's process does not serve clients yet. So it can still be told to take another name.

  capacity @13 :UInt32 = 1;
  # How many partitions the node takes, relative to others. 0: none, if another node can take them.

  changers @14 :Text;
  # What may change records that are published at the node: plug-ins, in order, each with its
  # version, its policy and a digest of its settings. "none": nothing does. Empty: not said.

  changersMayDiffer @15 :Bool;
  # Whoever has started the node knows that those of other nodes may differ.
}

struct HelloAccepted {
  # The link is open.

  version @0 :UInt32 = 1;
  # The version that both sides speak from here on.

  cluster @1 :Text;
  # The id of the cluster. A node that has named none learns it here.

  node @2 :Text;
  # The id of the store of the node that accepts.

  name @3 :Text;
  # Its name, for people.

  software @4 :Text;
  # Which software it runs, for people.

  incarnation @5 :UInt64;
  # Its life on the ring.

  payloadBytesMax @6 :UInt64 = 167772160;
  # The largest payload that it takes.

  features @7 :List(Text);
  # What it can do beyond the version. Unknown names are ignored.

  successors @8 :UInt32;
  # The length of successor lists in this cluster.

  positions @9 :List(UInt64);
  # The positions that are taken, as far as it knows, in ascending order; not all if there are many.

  root @10 :Text;
  # The address of the root, as far as it knows.

  replication @11 :UInt32;
  # How many replicas a topic has in this cluster that does not say so itself. 0: not known.

  foundedReplication @12 :UInt32;
  # The same when the cluster was founded. 0: not known.
}

struct HelloRefused {
  # The link is not opened; the connection ends.

  code @0 :Text = "failed";
  # Why, for programs: see docs/protocol.md. Treat an unknown code as `failed`.

  text @1 :Text;
  # Why, for people.
}

struct Heartbeat {
  # The sender lives, and so does the link. Either side may send it on an open link.

  number @0 :UInt64;
  # Counts the sender's heartbeats on this link, from 1.

  heard @1 :UInt64;
  # The number of the newest heartbeat that the sender has heard on this link; 0: none yet.
}

# --- the ring ------------------------------------------------------------------------------------

struct GetState {
  # Tell me your pointers.
}

struct StateIs {
  # The answer to GetState: the pointers of the sender.

  predecessor :union {
    none @0 :Void;
    # The sender knows no predecessor.

    some @1 :Contact;
    # The sender's predecessor.
  }

  successors @2 :List(Contact);
  # The sender's successors, the nearest first.

  beacon @3 :Beacon;
  # The newest beacon that the sender has seen.
}

struct Busy {
  # My pointers count as undefined now: try again a little later.
}

struct Gone {
  # You asked a life of mine that is over, or I am no longer on the ring.

  was @0 :Contact;
  # The life that is over.

  beacon @1 :Beacon;
  # The newest beacon that the sender has seen.
}

struct JoinAt {
  # Let me in between you and your successor.

  who @0 :Contact;
  # Who wants to be let in.
}

struct Welcome {
  # The answer to JoinAt: you are let in.

  successors @0 :List(Contact);
  # Those of the sender, the nearest first.

  beacon @1 :Beacon;
  # The newest beacon that the sender has seen.
}

struct NotMine {
  # You do not lie between me and my successor.

  nearer @0 :Contact;
  # A node that is nearer to you than I am.
}

struct Notify {
  # I think that I am your predecessor.

  who @0 :Contact;
  # Who thinks so.
}

struct Ping {
  # Are you there? The answer is Pong.

  about :union {
    none @0 :Void;
    # The ping is about the receiver.

    some @1 :Contact;
    # Ping this node for me, and report.
  }
}

struct Pong {
  # The answer to Ping.

  alive @0 :Bool;
  # Whether the node that the ping was about answered.

  beacon @1 :Beacon;
  # The newest beacon that the sender has seen.
}

struct GetCloser {
  # A step of a lookup: name the owners of the key, or nodes that are nearer to it.

  key @0 :UInt64;
  # The key that is looked up.

  count @1 :UInt32;
  # How many nearer nodes to name at most.

  byFingers @2 :Bool;
  # Name fingers and successors only, no other node that you know.
}

struct CloserAre {
  # The answer to GetCloser.

  preceding @0 :List(Contact);
  # Nodes strictly between the asked node and the key, the nearest to the key first.

  owners @1 :List(Contact);
  # The successor of the key, and the nodes behind that one. If there are any, the lookup is done.

  beyond @2 :List(Contact);
  # The owners, in case all of `preceding` are dead.
}

struct Leaving {
  # I leave on purpose.

  who @0 :Contact;
  # Who leaves.

  predecessor :union {
    none @1 :Void;
    # The one that leaves knows no predecessor.

    some @2 :Contact;
    # The predecessor of the one that leaves.
  }

  successors @3 :List(Contact);
  # The successors of the one that leaves, the nearest first.
}

struct BeaconIs {
  # A broadcast: the receiver hands it on to all nodes between itself and the limit.

  beacon @0 :Beacon;
  # The beacon.

  limit @1 :UInt64;
  # The position up to which the receiver hands it on.
}

struct Register {
  # To the root: enter me in the registry of nodes.

  who @0 :Contact;
  # Who is to be entered.
}

struct Deregister {
  # To the root: strike me from the registry.

  who @0 :Contact;
  # Who is to be struck.
}

struct AskRoot {
  # I am not the root.

  beacon @0 :Beacon;
  # It says where the root is.

  small @1 :Bool;
  # The sender is no member of a large ring.
}

struct GetRegistry {
  # To the root: tell me the registry.
}

struct RegistryIs {
  # The registry, as the root tells it.

  beacon @0 :Beacon;
  # The root's newest beacon.

  count @1 :UInt64;
  # How many members the registry has.

  members @2 :List(Contact);
  # All members if they are few, else some of them; sorted by position.

  founders @3 :List(Contact);
  # The last small ring, from which the large one grew.
}

# --- the relay tree of a partition ---------------------------------------------------------------

struct Attach {
  # Let me be your child.

  partitionId @0 :PartitionId;
  # The log whose tree it is.

  nextOffset @1 :UInt64;
  # Where the child goes on.

  consumers @2 :UInt64;
  # How many consumers there are at the child and below.

  redirects @3 :UInt32;
  # How often the child was redirected.

  avoid @4 :List(Contact);
  # Do not redirect to these: they do not answer, or lead nowhere.
}

struct Attached {
  # You are my child.

  partitionId @0 :PartitionId;
  # The log whose tree it is.

  ancestors @1 :List(Contact);
  # The parent first, the owner last.
}

struct Redirect {
  # Ask somebody else.

  partitionId @0 :PartitionId;
  # The log whose tree it is.

  to @1 :Contact;
  # Whom to ask.
}

struct NotRelaying {
  # I do not take part in this tree, or I am not its owner.

  partitionId @0 :PartitionId;
  # The log whose tree it is.
}

struct Detach {
  # I am your child no more.

  partitionId @0 :PartitionId;
  # The log whose tree it is.
}

struct Fetch {
  # Send me what comes from an offset on, within the credit; wait for it if it is not there yet.

  partitionId @0 :PartitionId;
  # The log whose tree it is.

  offset @1 :UInt64;
  # The first record that is wanted.

  creditBytes @2 :UInt64;
  # How many bytes of batches to send at most; a batch that is larger comes alone.

  waitUs @3 :UInt64;
  # How long to wait if there is nothing yet.

  consumers @4 :UInt64;
  # How many consumers there are at the child and below.

  catchingUp @5 :Bool;
  # The question is for the owner, which answers from its log; the sender need not be its child.
}

struct Fetched {
  # The answer to Fetch. Its payload is the batches.

  partitionId @0 :PartitionId;
  # The log whose tree it is.

  pieces @1 :Data;
  # The batches of the payload, packed, three numbers each: the offset of its first record, the
  # offset behind its last record, and how many bytes it has. Batches follow each other in the
  # payload, with nothing before, between and behind them. The first holds the offset that was asked
  # for. There may be none.

  end @2 :UInt64;
  # The end of what is committed, as far as the sender knows.

  ancestors @3 :List(Contact);
  # The sender first, the owner last.

  room @4 :UInt32;
  # How many more children the sender could take.

  total @5 :UInt64;
  # The consumers of the whole tree, as the owner has told.

  isRooted @6 :Bool = true;
  # False: one of the ancestors looks for a parent itself.
}

struct Behind {
  # Take what is before an offset from the owner.

  partitionId @0 :PartitionId;
  # The log whose tree it is.

  first @1 :UInt64;
  # The sender has only what begins here.
}

struct NotAttached {
  # You are not my child: attach again.

  partitionId @0 :PartitionId;
  # The log whose tree it is.
}

struct MoveUp {
  # I save my parent too little: attach to somebody else.

  partitionId @0 :PartitionId;
  # The log whose tree it is.

  to @1 :Contact;
  # Whom to attach to.
}

# --- who leads a partition -----------------------------------------------------------------------

struct PublishLeader {
  # A leader tells the nodes that keep the hint.

  partitionId @0 :PartitionId;
  # What is led.

  leader @1 :Contact;
  # Who leads.

  term @2 :UInt64;
  # The leader's term. A newer term wins.
}

struct WhereIs {
  # Who leads this partition? The answer is LeaderIs.

  partitionId @0 :PartitionId;
  # The partition that is asked about.
}

struct LeaderIs {
  # The answer to WhereIs.

  partitionId @0 :PartitionId;
  # The partition that was asked about.

  leader :union {
    none @1 :Void;
    # No leader has published itself lately.

    some @2 :Contact;
    # The leader, as it published itself.
  }

  term @3 :UInt64;
  # The leader's term.
}

# --- the ring, for people ------------------------------------------------------------------------

struct GetView {
  # Tell me how you see the ring. The answer is ViewIs.
}

struct ViewIs {
  # How the sender sees the ring.

  me @0 :Contact;
  # The sender itself.

  name @1 :Text;
  # Its name, for people.

  standing @2 :Text;
  # Whether it is on the ring: small, member, or something else.

  predecessor :union {
    none @3 :Void;
    # The sender knows no predecessor.

    some @4 :Contact;
    # The sender's predecessor.
  }

  successors @5 :List(Contact);
  # The sender's successors, the nearest first.

  fingers @6 :List(Contact);
  # The sender's fingers, from the longest step to the shortest, each once.

  dead @7 :List(Contact);
  # Those that the sender has given up.
}

# --- what partitions hold, for people -------------------------------------------------------------

struct GetPartitions {
  # What do you hold of these partitions? The answer is PartitionsAre.

  groups @0 :List(UInt64);
  # The log groups of the partitions.
}

struct PartitionsAre {
  # Those of the partitions that the sender holds.

  partitions @0 :List(PartitionDescription);
  # What each of them holds, in the order in which they were asked for.
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

# --- group 0: topics, access and nodes, which every node has -------------------------------------

struct Unused {
  # A number that was once a message. It is sent no more, and means nothing.
}

struct WhoLeads {
  # Who leads group 0? Asked by a node that hears no leader.

  cluster @0 :Text;
  # The id of the cluster that the sender belongs to.
}

struct RootIs {
  # The answer to WhoLeads, of a node that knows it.

  cluster @0 :Text;
  # The id of the cluster that the sender belongs to.

  node @1 :Text;
  # The id of the store of the node that leads; empty: the asker belongs to another cluster.

  address @2 :Text;
  # Where that node is.

  term @3 :UInt64;
  # The term in which it leads.
}

struct Forward {
  # A request of a client, handed on to the root. The sender vouches for who the client is.

  number @0 :UInt64;
  # Never used twice by the sender, not even in another life.

  user @1 :Text;
  # The client's user; empty: nobody in particular.

  trusted @2 :Bool;
  # The client is within the sender's own process.

  address @3 :Text;
  # Where the client comes from, for the audit log.

  tokenHash @4 :Text;
  # The hash of the token that the sender has made, if one is asked for.

  frame @5 :Data;
  # The header of the client's frame, as clients send it.

  term @6 :UInt64;
  # The term in which the receiver leads, as the sender knows it. In another one it is not served.
}

struct Forwarded {
  # What has become of a request that was handed on.

  number @0 :UInt64;
  # That of the Forward.

  index @1 :UInt64;
  # The entry that has carried it out, or by which it was refused.

  code @2 :Text;
  # The code of the error; empty: it was carried out.

  text @3 :Text;
  # The error, for people.

  mayHaveHappened @4 :Bool;
  # It may have been carried out all the same.

  term @5 :UInt64;
  # That of the Forward.
}

# --- the copies of a group -----------------------------------------------------------------------

struct RaftMail {
  # What the sender says of all groups that it has in common with the receiver, in one turn.

  rows @0 :Data;
  # Packed, seven numbers for each message: the kind of message, the group, the sender's term (of a
  # pre-vote: the term that is tried), three numbers that depend on the kind, and whether a piece of
  # the payload belongs to it (1) or not (0). Kinds, and their numbers:
  #   1 askVote: last index, its term, 1 for a pre-vote + 2 if the leader hands over
  #   2 voteIs: the term that was asked for, 1 if granted + 2 for a pre-vote
  #   3 entries: the index before the first, its term, the leader's commit index; piece: entries
  #   4 accepted: the log is the leader's up to here, and durable up to here
  #   5 rejected: the index before the first that was sent, the last one here instead, its term
  #   6 snapshot: index, its term; piece: the state
  #   7 heartbeat: commit index
  #   8 outdated
  #   9 campaignNow
  #   10 confirm, 11 confirmed: the number of the round
  #   12 askRead: the number of the read
  #   13 readIs: the number of the read, index + 1 or 0: the sender does not lead

  pieces @1 :Data;
  # Packed, three numbers for each piece of the payload: the first index, the one behind the last,
  # and how many bytes. The pieces are in the order of the rows.
  # Entries stand back to back as in the log. A state is: how the log ends with its last entry, and
  # how the receiver's log begins (each as next index, next offset, last CRC, term); the first
  # offset that may be read; the length of the configuration; the configuration, as JSON; the state.
}

struct RaftBeat {
  # The heartbeats of all groups that the sender leads and the receiver belongs to.

  life @0 :UInt64;
  # The sender's life: another one means that its process was gone.

  sequence @1 :UInt64;
  # Counts the beats of a life.

  lines @2 :Data;
  # Packed, three numbers for each group: group, term, commit index.

  quiet @3 :Data;
  # The same, for groups that have nothing to do: fall quiet if you agree.
}

struct RaftBeatAnswer {
  # All groups of that beat are well, but for these.

  life @0 :UInt64;
  # That of the beat.

  sequence @1 :UInt64;
  # That of the beat.

  apart @2 :Data;
  # Packed pairs: groups that do not follow the sender, and the term there, or 0.

  behind @3 :Data;
  # Packed: groups that cannot commit what the leader has.

  awake @4 :Data;
  # Packed: groups that do not fall quiet.
}

# --- transactions: deciders, and the partitions in which something is staged ---------------------

struct AskStages {
  # A decider asks whether exactly this is, durably, staged in a partition.

  decider @0 :UInt64;
  # The group of the decider's log.

  group @1 :UInt64;
  # The group of the partition's log.

  topic @2 :Text;
  # The partition's topic, for people.

  partition @3 :UInt32;
  # Its number, for people.

  transaction @4 :Text;
  # The id of the transaction, with its user.

  number @5 :UInt64;
  # The number of the transaction.

  round @6 :UInt64;
  # Of verifying: an answer to an earlier one counts for nothing.

  producers @7 :Data;
  # Those who have staged, 16 bytes each.

  counts @8 :Data;
  # Packed: batches, records, and the CRC over the CRCs of the batches, of each producer.
}

struct ApplyStages {
  # A decider says that a transaction is committed: what is staged for it is to be appended.

  decider @0 :UInt64;
  # The group of the decider's log.

  group @1 :UInt64;
  # The group of the partition's log.

  transaction @2 :Text;
  # The id of the transaction, with its user.

  number @3 :UInt64;
  # The number of the transaction.

  decision @4 :UInt64;
  # The index of the decision in the decider's log.

  producers @5 :Data;
  # Those whose stages are published, 16 bytes each.

  counts @6 :Data;
  # Packed: how many batches each of them has staged.
}

struct StagesAre {
  # The answer to AskStages and ApplyStages.

  decider @0 :UInt64;
  # The group of the decider's log.

  group @1 :UInt64;
  # The group of the partition's log.

  transaction @2 :Text;
  # The id of the transaction, with its user.

  number @3 :UInt64;
  # The number of the transaction.

  round @4 :UInt64;
  # That of AskStages. 0: this is about ApplyStages.

  outcome @5 :StagesOutcome;
  # What is the case.

  code @6 :Text;
  # If the outcome is `refused`: the code of the error.

  text @7 :Text;
  # The error, for people.
}

enum StagesOutcome {
  verified @0;
  # It is all there, durably.

  refused @1;
  # Something else is there, or nothing; the error says what.

  applied @2;
  # The transaction is, durably, in the partition's log.

  notMine @3;
  # The sender does not hold the partition, and does not know of its deletion.

  gone @4;
  # The partition's topic was deleted, by a deletion that is committed.
}

struct DiscardStages {
  # A decider says that what these producers have staged for a transaction is to be dropped.

  group @0 :UInt64;
  # The group of the partition's log. 0: all partitions of the receiver.

  transaction @1 :Text;
  # The id of the transaction, with its user.

  number @2 :UInt64;
  # The number of the transaction.

  producers @3 :Data;
  # Whose stages, 16 bytes each.
}

struct ForgetDecisions {
  # A decider says that its decisions up to this one are applied everywhere.

  decider @0 :UInt64;
  # The group of the decider's log.

  group @1 :UInt64;
  # The group of the partition's log.

  through @2 :UInt64;
  # The index of the decision.
}

struct WhatOfStages {
  # A partition asks what becomes of what these producers have staged there.

  decider @0 :UInt64;
  # The group of the decider's log.

  group @1 :UInt64;
  # The group of the partition's log.

  transaction @2 :Text;
  # The id of the transaction, with its user.

  number @3 :UInt64;
  # The number of the transaction.

  producers @4 :Data;
  # Who has staged, 16 bytes each.

  idle @5 :Bool;
  # Nobody has touched it for long.
}

struct WhatToForget {
  # A partition remembers what it has applied, and asks whether it still must.

  decider @0 :UInt64;
  # The group of the decider's log.

  group @1 :UInt64;
  # The group of the partition's log.
}

struct HandOver {
  # The founder's own decider tells one that follows it what it knows of the ids of that one.

  decider @0 :UInt64;
  # The group of the log of the one that is told.

  term @1 :UInt64;
  # Of the founder's decider. Parts are counted anew in each.

  count @2 :UInt32;
  # How many parts there are from the beginning. Others may follow.

  parts @3 :Data;
  # Packed: the number of the part, the next number, and its bytes, which are in the payload.
}

struct HandedOver {
  # A part is, durably, with the decider that follows.

  decider @0 :UInt64;
  # The group of its log.

  term @1 :UInt64;
  # That of HandOver.

  part @2 :UInt32;
  # The number of the part.

  whole @3 :Bool;
  # Nothing is lacking any more.
}

# --- batches that a node stores at another one ---------------------------------------------------

struct StoreBatch {
  # Append this batch to a partition, unless its producer has stored it there already.

  group @0 :UInt64;
  # The group of the partition's log.

  batches @1 :Data;
  # Packed: 0, the number of records, and the bytes of the batch, which is in the payload.
}

struct BatchStored {
  # The answer to StoreBatch.

  outcome @0 :StoreOutcome;
  # What is the case.

  code @1 :Text;
  # If the outcome is `refused`: the code of the error.

  text @2 :Text;
  # The error, for people.
}

enum StoreOutcome {
  stored @0;
  # The batch is, durably, in the partition.

  refused @1;
  # It is not; the error says why.

  notMine @2;
  # The sender does not hold the partition, and does not know of its deletion.

  gone @3;
  # The partition's topic was deleted, by a deletion that is committed.
}

# --- how partitions fan out, for people -------------------------------------------------------------

struct GetTrees {
  # Which place do you have in the trees of these partitions? The answer is TreesAre.

  topic @0 :Text;
  # The topic of all of them.

  groups @1 :Data;
  # Packed: their groups, in the order of the partitions.
}

struct TreesAre {
  # The places that the sender has.

  nodes @0 :List(TreeNode);
  # One for each partition in whose tree the sender takes part.
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

# --- the audit log, for people ---------------------------------------------------------------------

struct GetAudit {
  # What does your audit log hold from this time on? The answer is AuditHolds.

  sinceUs @0 :UInt64;
  # The time.
}

struct AuditHolds {
  # The oldest of these records.

  records @0 :List(AuditRecord);
  # In the order of time.

  more @1 :Bool;
  # There are more behind them.
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
