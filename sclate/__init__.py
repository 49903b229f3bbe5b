"""SCLATE's engine: one event scheduler on a hybrid simulated clock."""

__version__ = "0.1.0"
