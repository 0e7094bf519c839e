"""The stages of a micro-batch at which a job is stopped, in their order, and whom a kill hits."""

from __future__ import annotations

ASKING = "planning: asking for the end"
PLANNING = "planning: making partitions"
TASK = "in a task, some rows staged"
PREPARED = "in a task, all rows staged"
BEFORE = "before commit"
ASKED = "inside commit, asked"
DECIDED = "inside commit, decided"
AFTER = "after commit, before Spark's log"

STAGES = (ASKING, PLANNING, TASK, PREPARED, BEFORE, ASKED, DECIDED, AFTER)

DRIVER = "driver and JVM"
BROKER = "broker"
LEADER = "the leader's node"  # of three, which keep three replicas of everything
VICTIMS = (DRIVER, BROKER, LEADER)
