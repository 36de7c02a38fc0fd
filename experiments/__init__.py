"""Experiments: YAML files and their schema, the ``specsched`` command, sweeps, summaries and figures."""
