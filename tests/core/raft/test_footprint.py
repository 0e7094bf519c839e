"""What a group costs; the times are measured by benchmarks/raft.py, by hand."""

from __future__ import annotations

from benchmarks import raft as benchmark


def test_an_idle_group_of_a_follower_is_small():
    assert benchmark.idle_follower_bytes(groups=200) < benchmark.BOUNDS["idle_follower_bytes"]


def test_the_benchmark_measures_what_it_says():
    assert benchmark.batch_us(batches=20) > 0
    led, followers = benchmark.led(30), benchmark.followers(30)
    assert benchmark.beat_ms(led) > 0
    assert benchmark.answers_ms(led) > 0
    assert benchmark.followed_ms(followers) > 0
    assert set(benchmark.BOUNDS) == {"batch_us", "beat_of_1000_groups_ms", "idle_follower_bytes"}
