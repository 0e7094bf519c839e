"""What tests of the log stand on: a world that crashes, planted bugs, a process that appends."""
