"""Offline calibration: from published or measured figures to what a simulation reads."""
