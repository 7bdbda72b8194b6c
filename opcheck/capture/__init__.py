"""A model goes in, a trace of its operator calls on the simulated Mac comes out."""
