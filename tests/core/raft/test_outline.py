"""The outline of a log against a plain list of terms."""

from __future__ import annotations

from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hocket.core.raft.outline import UNKNOWN, Outline
from tests.support.core.raft_node import Entry, runs_of


class OutlineAgainstList(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.outline = Outline()
        self.terms = [0]  # by index, from 0 on

    @rule(count=st.integers(1, 4), more=st.integers(0, 2))
    def add(self, count, more):
        term = self.terms[-1] + more
        self.terms += [term] * count
        self.outline.add(len(self.terms) - 1, term)

    @precondition(lambda self: self.outline.last > self.outline.start)
    @rule(data=st.data())
    def cut(self, data):
        first = data.draw(st.integers(self.outline.start + 1, self.outline.last))
        self.outline.cut(first)
        del self.terms[first:]

    @rule(data=st.data())
    def flush(self, data):
        self.outline.flushed = data.draw(st.integers(self.outline.flushed, self.outline.last))

    @rule(data=st.data())
    def forget(self, data):
        self.outline.forget(data.draw(st.integers(self.outline.start, self.outline.last)))

    @rule(index=st.integers(0, 30), term=st.integers(0, 5))
    def reset(self, index, term):
        self.terms = [UNKNOWN] * index + [term]
        self.outline.reset(index, term)
        self.outline.flushed = index

    @invariant()
    def says_the_same(self):
        outline, terms = self.outline, self.terms
        assert outline.last == len(terms) - 1
        assert outline.flushed <= outline.last
        assert outline.last_term == terms[-1]
        for index in range(outline.start, outline.last + 1):
            assert outline.term_of(index) == terms[index]
        assert outline.term_of(outline.last + 1) == UNKNOWN
        if outline.start:
            assert outline.term_of(outline.start - 1) == UNKNOWN

    @rule(data=st.data())
    def runs(self, data):
        first = data.draw(st.integers(self.outline.start + 1, self.outline.last + 1))
        last = data.draw(st.integers(first - 1, self.outline.last))
        entries = [Entry(term, 0) for term in self.terms[1 : last + 1]]
        assert self.outline.runs(first, last) == runs_of(entries, first)

    @rule(index=st.integers(0, 40), term=st.integers(0, 9))
    def last_before(self, index, term):
        outline = self.outline
        fitting = [
            at
            for at in range(outline.start, min(index, outline.last) + 1)
            if self.terms[at] <= term
        ]
        assert outline.last_before(index, term) == max(fitting, default=outline.start)


TestOutline = OutlineAgainstList.TestCase
TestOutline.settings = settings(max_examples=20, stateful_step_count=25)

logs = st.lists(st.integers(0, 2), max_size=8).map(
    lambda steps: [sum(steps[: at + 1]) + 1 for at in range(len(steps))]
)


@settings(max_examples=50)
@given(ours=logs, theirs=logs, data=st.data())
def test_the_first_difference_is_found(ours, theirs, data):
    outline = Outline()
    for index, term in enumerate(ours, 1):
        outline.add(index, term)
    first = data.draw(st.integers(1, len(theirs) + 1))
    entries = [Entry(term, 0) for term in theirs]
    runs = runs_of(entries, first)
    found = first
    while found <= len(theirs) and ours[found - 1 : found] == [theirs[found - 1]]:
        found += 1
    assert outline.difference(first, runs) == found
