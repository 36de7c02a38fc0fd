"""The ``specsched`` command, one file a subcommand."""
