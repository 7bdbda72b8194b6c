"""Whole libraries of models over many targets: on this machine or a cluster, resumable, as Parquet tables."""
