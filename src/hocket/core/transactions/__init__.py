"""The decider of transactions. Its counterpart in a partition is `partition.stages`."""
