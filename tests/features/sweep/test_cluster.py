from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("distributed")

from tests.features.sweep import cluster


@pytest.mark.slow
def test_through_a_killed_worker_and_a_restarted_scheduler_the_rows_are_the_same(tmp_path: Path) -> None:
    models = tmp_path / "layers.yaml"
    models.write_text(cluster.LAYERS, encoding="utf-8")
    machines = cluster.Cluster()
    try:
        cluster.disturbed([str(models)], tmp_path / "cluster", machines)
    finally:
        machines.stop()
    assert cluster.sweep([str(models)], tmp_path / "local", "--jobs", "2").wait() == 0
    rows = cluster.rows(tmp_path / "cluster")
    assert rows == cluster.rows(tmp_path / "local")
    assert all(len(set(lines)) == len(lines) for lines in rows.values())


@pytest.mark.slow
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_what_a_model_does_costs_itself_alone(tmp_path: Path, jobs: str) -> None:
    import pyarrow.parquet as pq

    names = ("hangs", "eats", "kills", "stops", "dies", "works")
    here = Path(__file__).with_name("models.py")
    models = [f"{here}:{name}" for name in names]
    entries = "".join(f'- {{model: "{model}", inputs: ["2x4:float32"]}}\n' for model in models)
    (tmp_path / "models.yaml").write_text(entries)
    flags = [
        "--mode",
        "inference",
        "--torch",
        "2.13",
        "--timeout",
        # Long enough for the model that works, on whatever machine: only one of them hangs.
        "30",
        "--memory-limit",
        "1",
        "--jobs",
        jobs,
    ]
    running = cluster.sweep([str(tmp_path / "models.yaml")], tmp_path / "out", *flags)
    assert running.wait(timeout=3600) == 0
    failures = pq.read_table(tmp_path / "out" / "failures.parquet").to_pylist()
    results = {row["model"].rpartition(":")[2]: (row["stage"], row["problem"]) for row in failures}
    # Linux 6.12 and later refuse the signals to other processes.
    refused = ("load", "ModelLoadError")
    assert results.pop("kills") in {("worker", "died"), refused}
    assert results.pop("stops") in {("worker", "hung"), refused}
    assert results == {"hangs": ("worker", "hung"), "eats": ("load", "ModelLoadError"), "dies": ("worker", "died")}
