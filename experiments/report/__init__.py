"""One HTML page about finished runs."""
