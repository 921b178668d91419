"""The scheduler's configuration: the file, its checks, the built-in policy, plugins of others, reloading.

What turns text into a ``Policy`` lives here. Rules do not: they are actions and plugins.
"""
