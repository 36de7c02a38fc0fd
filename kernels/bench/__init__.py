"""Is every kernel right, and how fast: problems, providers, timing, floors."""
