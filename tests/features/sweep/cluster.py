"""A sweep on a dask cluster of this machine, with a worker killed and the scheduler restarted in the middle."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pyarrow.parquet as pq

from opcheck.data.sweep_tables import TABLES
from opcheck.features.sweep.sweep_folder import read

#: A small list: layers of torch, whose import is all that they need.
LAYERS = """
models:
  - {model: "torch.nn:Linear", config: {in_features: 4, out_features: 4}, inputs: ["2x4:float32"]}
  - {model: "torch.nn:Conv2d", config: {in_channels: 3, out_channels: 4, kernel_size: 3}, inputs: ["1x3x8x8:float32"]}
  - {model: "torch.nn:GELU", inputs: ["2x4:float32"]}
  - {model: "torch.nn:LayerNorm", config: {normalized_shape: 4}, inputs: ["2x4:float32"]}
  - {model: "torch.nn:LSTM", config: {input_size: 4, hidden_size: 4}, inputs: ["2x3x4:float32"]}
  - {model: "torch.nn:GRU", config: {input_size: 4, hidden_size: 4}, inputs: ["2x3x4:float32"]}
  - {model: "torch.nn:TransformerEncoderLayer", config: {d_model: 8, nhead: 2}, inputs: ["2x4x8:float32"]}
  - model: "torch.nn:Bilinear"
    config: {in1_features: 4, in2_features: 4, out_features: 4}
    inputs: ["2x4:float32", "2x4:float32"]
  - {model: "torch.nn:BatchNorm2d", config: {num_features: 3}, inputs: ["2x3x4x4:float32"]}
  - {model: "torch.nn:Embedding", config: {num_embeddings: 8, embedding_dim: 4}, inputs: ["2x3:int64"]}
  - {model: "torch.nn:AdaptiveMaxPool3d", config: {output_size: 2}, inputs: ["1x2x4x4x4:float32"]}
  - {model: "torch.nn:FractionalMaxPool2d", config: {kernel_size: 2, output_size: 2}, inputs: ["1x2x8x8:float32"]}
"""
_WAIT = 3600.0


class Cluster:
    """A scheduler and workers, each a process of its own on loopback."""

    def __init__(self, workers: int = 2) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        self._workers = workers
        self._processes: list[subprocess.Popen[bytes]] = []
        self.start()

    def start(self) -> None:
        """Start the scheduler and its workers."""
        port = self.address.rpartition(":")[2]
        self._run("scheduler", "--host", "127.0.0.1", "--port", port, "--no-dashboard", "--no-jupyter")
        for _ in range(self._workers):
            self.add_worker()

    def add_worker(self) -> None:
        """One more."""
        self._run("worker", self.address, "--nthreads", "1", "--no-nanny", "--no-dashboard")

    def kill_worker(self) -> None:
        """End the last one, as a machine that goes away does."""
        worker = self._processes.pop()
        worker.kill()
        worker.wait()

    def stop(self) -> None:
        """End all of it."""
        for process in self._processes:
            process.kill()
            process.wait()
        self._processes.clear()

    def _run(self, *arguments: str) -> None:
        self._processes.append(
            subprocess.Popen(
                [sys.executable, "-m", "dask", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        )


def sweep(models: list[str], folder: Path, *flags: str) -> subprocess.Popen[bytes]:
    """``opcheck sweep`` of these models into a folder."""
    return subprocess.Popen([sys.executable, "-m", "opcheck", "sweep", *models, "--folder", str(folder), "-v", *flags])


def rows(folder: Path) -> dict[str, list[str]]:
    """The tables, each row as JSON without the seconds that it took; sorted, so that order plays no part."""
    results = {}
    for name in TABLES:
        table = pq.read_table(folder / f"{name}.parquet")
        kept = [column for column in table.column_names if column != "seconds"]
        lines = table.select(kept).to_pylist()
        results[name] = sorted(msgspec.json.encode(line).decode() for line in lines)
    return results


def finished(folder: Path) -> int:
    """Results that are written."""
    return len(list((folder / "results").glob("??/*.json")))


def disturbed(models: list[str], folder: Path, cluster: Cluster) -> None:
    """Sweep on the cluster; kill a worker after a quarter of the results, and the scheduler after half."""
    running = sweep(models, folder, "--backend", "dask", "--scheduler", cluster.address)
    deadline = time.monotonic() + _WAIT
    while not (folder / "sweep.json").exists():
        _still(running, deadline)
    total = len(read(folder)[0].keys)
    _until(folder, total // 4, running, deadline)
    cluster.kill_worker()
    cluster.add_worker()
    _until(folder, total // 2, running, deadline)
    cluster.stop()
    time.sleep(3)
    cluster.start()
    if running.wait(timeout=max(deadline - time.monotonic(), 1)):
        message = "the sweep on the cluster failed"
        raise SystemExit(message)


def _until(folder: Path, count: int, running: subprocess.Popen[bytes], deadline: float) -> None:
    while finished(folder) < count:
        _still(running, deadline)


def _still(running: subprocess.Popen[bytes], deadline: float) -> None:
    if running.poll() is not None or time.monotonic() > deadline:
        message = "the sweep ended too early, or hangs"
        raise SystemExit(message)
    time.sleep(0.05)
