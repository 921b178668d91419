"""The sandbox's subset of kube-controller-manager, kubelet and kube-scheduler.

Each controller is a shell around a pure plan: it hears of changes through ``Store.subscribe``, puts the name of what
they concern on its own queue, and there works out from the store, never from the change, what has to be done. So it
is idempotent, and a change that it missed costs nothing. It writes as any client does, through admission.

May live here: the controllers, their pure plans, and what these share. Time comes from the server's clock and the
running loop only, so all of it works in virtual time.
"""
