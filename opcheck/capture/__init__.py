"""Turns a model into a trace of its operator calls on the simulated Mac."""
