"""The order of jobs: of a queue's jobs that are in line the first by its key, also where one that had its turn is in line again."""

from __future__ import annotations

from types import SimpleNamespace

from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.engine.job_order import JobOrder

JOBS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 99)), max_size=12)


def _session():
    extensions = SimpleNamespace(job_key=lambda job: job.key, queue_key=lambda queue: (queue.turns, queue.name))
    queues = {name: SimpleNamespace(name=name, turns=0) for name in "ab"}
    return SimpleNamespace(extensions=extensions, queues=queues)


@settings(max_examples=examples(200), deadline=None)
@given(jobs=JOBS, again=st.lists(st.none() | st.integers(0, 99), max_size=12), drops=st.sampled_from([None, 2, 5]))
def test_each_turn_is_that_of_the_first_job_in_line(jobs, again, drops):
    session, numbers = _session(), iter(range(10**6))
    in_line = [SimpleNamespace(key=(key, next(numbers)), info=SimpleNamespace(queue=queue)) for queue, key in jobs]
    order, left = JobOrder(session, in_line), {name: [] for name in "ab"}
    for job in in_line:
        left[job.info.queue].append(job)
    for turn, (queue, job) in enumerate(order):
        waiting = {name: jobs for name, jobs in left.items() if jobs}
        assert queue.name == min(waiting, key=lambda name: (session.queues[name].turns, name))
        assert job is min(left[queue.name], key=lambda each: each.key)
        left[queue.name].remove(job)
        queue.turns += 1
        if turn == drops:
            order.drop_queue(queue)
            left[queue.name].clear()
        elif again and (key := again.pop()) is not None:
            job.key = (key, next(numbers))
            order.requeue(job)
            left[queue.name].append(job)
    assert not any(left.values())
