"""Thin scikit-learn shells around rule, schedule and engine."""
