"""The worker: gang scheduler, queue controller, PodGroup controller; one leader at a time.

``cycle.decide(snapshot, now)`` is pure; ``worker`` brings events in and takes plans out under a live Fence.
"""
