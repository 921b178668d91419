"""What controllers and kubelets decide, worked out from objects and a time.

Pure: values in, what has to be done or written out. Who observes, waits or writes does not live here.
"""
