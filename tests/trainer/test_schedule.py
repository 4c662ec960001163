"""Who sees what: every example once an epoch, in an order that no number of replicas changes."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trainer.schedule import Position, Schedule, permutation, share


@given(
    examples=st.integers(1, 200), replicas=st.integers(1, 5), per_replica=st.integers(1, 17), seed=st.integers(0, 2**31)
)
def test_every_example_is_seen_once_an_epoch(examples: int, replicas: int, per_replica: int, seed: int) -> None:
    schedule = Schedule(examples, replicas * per_replica, seed)
    for epoch in (0, 1):
        seen: list[int] = []
        for step in range(epoch * schedule.steps(0), epoch * schedule.steps(0) + schedule.steps(epoch)):
            batch = schedule.batch(step)
            for replica in range(replicas):
                indices, count = share(batch, replica, per_replica)
                assert len(indices) == per_replica, "every replica has the same shape at every step"
                seen.extend(indices[:count].tolist())
        assert sorted(seen) == list(range(examples))


@given(examples=st.integers(1, 200), before=st.integers(1, 40), after=st.integers(1, 40), steps=st.integers(0, 30))
def test_resuming_with_another_batch_goes_on_at_the_exact_example(
    examples: int, before: int, after: int, steps: int
) -> None:
    first = Schedule(examples, before, seed=7)
    done = [int(index) for step in range(steps) for index in first.batch(step)]
    position = first.after(steps - 1) if steps else Position()
    second = Schedule(examples, after, 7, position)
    rest = [int(index) for step in range(second.steps(position.epoch)) for index in second.batch(step)]
    whole = [int(index) for epoch in range(position.epoch + 1) for index in permutation(examples, 7, epoch)]
    assert done + rest == whole


def test_epochs_differ_and_seeds_repeat() -> None:
    assert permutation(50, 1, 0).tolist() == permutation(50, 1, 0).tolist()
    assert permutation(50, 1, 0).tolist() != permutation(50, 1, 1).tolist()
    assert permutation(50, 1, 0).tolist() != permutation(50, 2, 0).tolist()


def test_a_partial_batch_is_filled_with_its_own_examples_only() -> None:
    indices, count = share(np.array([3, 9]), replica=1, per_replica=4)
    assert count == 0
    assert set(indices.tolist()) <= {3, 9}
