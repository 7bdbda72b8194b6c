"""The run of all models of a project on all of its targets (``opcheck gate``)."""
