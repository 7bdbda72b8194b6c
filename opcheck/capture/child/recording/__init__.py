"""The operator calls of a run, as they happen and as a graph; where its tensors live and how they were made."""
