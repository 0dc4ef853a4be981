"""The command line: ``redist plan``, ``redist check`` and ``redist simulate``."""
