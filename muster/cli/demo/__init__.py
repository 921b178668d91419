"""``muster demo``: the story and its terminal session.

What newcomers are shown lives here. Nothing that another command needs does.
"""
