"""The scheduler's configuration: the file, its checks, the built-in policy, third-party plugins, reloading.

What turns text into a ``Policy`` lives here. Rules do not: they are actions and plugins.
"""
