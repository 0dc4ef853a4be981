"""Find a plan. Nothing here judges one: that is the work of :mod:`redist.check`."""
