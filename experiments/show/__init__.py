"""Figures and terminal tables."""
