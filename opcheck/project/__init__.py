"""Work on many models and targets: the gate, the sweep, changes between reports, programs for findings."""
