"""The command line: ``redist plan``, ``check``, ``prove``, ``simulate``, ``bench`` ...."""
