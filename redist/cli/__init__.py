"""The command line: ``redist plan``, ``check``, ``simulate`` and ``bench``."""
