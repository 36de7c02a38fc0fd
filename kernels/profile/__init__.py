"""Measured step costs of a synthetic decoder, for the simulator."""
