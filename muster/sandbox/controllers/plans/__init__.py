"""The decisions of controllers and kubelets, computed from objects and a time.

Pure: values in, what has to be done or written out. Who observes, waits or writes does not live here.
"""
