"""YAML files: devices in configurations, packages of conda, and nothing that only looks like them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from opcheck.source.engine import scan
from opcheck.source.source import read_index
from tests.source.reading import TARGET


def _scan(folder: Path, name: str, text: str) -> list[tuple[str, int]]:
    (folder / name).write_text(text, encoding="utf-8")
    places = [(each.rule, each.locations[0].location) for each in scan([str(folder)], TARGET).findings]
    return [(rule, place.line) for rule, place in places if place]


@pytest.mark.parametrize(
    "line",
    [
        "device: cuda",
        "model.device: 'cuda:0'  # the GPU",
        "trainer: {devices: 1, accelerator: cuda}",
        '- "device": "cuda"',
        "map_location: cuda:1",
        "eval_device: cuda",
        "_target_: torch.cuda.amp.GradScaler",
    ],
)
def test_a_setting_of_a_configuration_that_is_cuda_is_named(tmp_path: Path, line: str) -> None:
    assert _scan(tmp_path, "train.yaml", f"seed: 1\n{line}\n") == [("OC203", 2)]


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("trainer:\n  strategy: ddp\n  devices: 2\n", [("OC208", 2), ("OC208", 3)]),
        ("dist:\n  backend: nccl\ndist_backend: 'nccl'\n", [("OC208", 2), ("OC208", 3)]),
        ("dist:\n  backend: gloo\n", []),
        ("trainer:\n  devices: 8\n  accelerator: gpu\n", [("OC208", 2)]),
        ("trainer: {accelerator: gpu, devices: 2}\n", [("OC208", 1)]),
        ("strategy: 'fsdp_native'\n", [("OC208", 1)]),
        ("trainer:\n  accelerator: cpu\n  strategy: ddp\n  devices: 2\n", []),
        ("trainer:\n  accelerator: gpu\n  devices: 1\n  strategy: auto\n", []),
        ("a:\n  devices: 2\nb:\n  strategy: best\n", []),
        ("attn_implementation: flash_attention_2\n", [("OC214", 1)]),
        ("use_flash_attention_2: true\noptim: paged_adamw_8bit\n", [("OC214", 1), ("OC214", 2)]),
        ("enable_xformers_memory_efficient_attention: true\noptim: adamw_torch\n", [("OC214", 1)]),
        ("x: 1  # attn_implementation: flash_attention_2\n", []),
        ("quantization:\n  load_in_4bit: true\n  load_in_8bit: false\n", [("OC214", 2)]),
    ],
)
def test_settings_of_several_gpus_and_of_packages_for_cuda_are_named(
    tmp_path: Path, text: str, places: list[tuple[str, int]]
) -> None:
    assert _scan(tmp_path, "train.yaml", text) == places


@pytest.mark.parametrize(
    "text",
    [
        "device: auto\naccelerator: gpu\n",
        "device: cudagraphs\ndevices: 2\n",
        "help: |\n  device: cuda\n\n  accelerator: cuda\nnext: 1\n",
        "# device: cuda\n",
        "choices: [cpu, cuda]\n",
        "_target_: torch.optim.Adam\n",
        "device: cuda  # opcheck: ignore[OC203] the cluster's\n",
        "device:cuda\n",
    ],
)
def test_what_only_looks_like_a_device_of_cuda_is_silent(tmp_path: Path, text: str) -> None:
    assert _scan(tmp_path, "train.yml", text) == []


def test_an_environment_of_conda_names_its_packages_for_cuda(tmp_path: Path) -> None:
    text = """name: x
dependencies:
  - python=3.11
  - pytorch::pytorch=2.5
  - nvidia::pytorch-cuda=12.1  # CUDA
  - cudatoolkit
  - pytorch=2.5=py3.11_cuda12.1_cudnn9.1.0_0
  - pip:
    - flash-attn>=2
    - numpy
    - "triton==3.0"
  - cudnn
  - scipy
"""
    expected = [("OC214", line) for line in (5, 6, 7, 9, 11, 12)]
    assert _scan(tmp_path, "environment.yml", text) == expected
    assert _scan(tmp_path, "values.yml", text)[len(expected) :] == []


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("services:\n  a:\n    image: x\n    runtime: nvidia\n", [4]),
        ("services:\n  a:\n    image: x\n    gpus: all\n", [4]),
        ("trainer:\n  gpus: all\n", []),
        ("devices:\n  - driver: nvidia\n    count: 1\n    capabilities: [gpu]\n", [2, 4]),
        ('devices:\n  - capabilities: ["compute", "gpu"]\n', [2]),
        ("devices:\n  - capabilities: [tpu]\n    driver: cdi\n", []),
        ("runtime: runc\ndriver: bridge\ncapabilities: [nogpu]\n", []),
        ("runtime: nvidia  # opcheck: ignore[OC231] the cluster's\n", []),
    ],
)
def test_a_compose_file_that_asks_for_a_gpu_of_nvidia_is_named(tmp_path: Path, text: str, lines: list[int]) -> None:
    assert _scan(tmp_path, "compose.yaml", text) == [("OC231", line) for line in lines]


_IMAGE = "FROM nvidia/cuda:12.1.0-devel-ubuntu22.04\n"


@pytest.mark.parametrize(
    "line",
    [
        _IMAGE,
        "FROM --platform=linux/amd64 pytorch/pytorch:2.1.0-cuda12.1-cudnn8-runtime AS base",
        "from nvcr.io/nvidia/pytorch:23.10-py3",
        "ARG BASE=nvidia/cuda:12.1.0-base",
        "FROM registry.example.org/team/torch:2.7-cuda12",
        "RUN pip install torch --index-url https://index.example/whl/cu121",
        "RUN pip install torch==2.1.0+cu118",
        "FROM server:latest-cuda",
        "RUN conda install -y pytorch-cuda=12.1 -c nvidia",
        "ENV CUDA_HOME=/usr/local/cuda",
        "ENV CUDA_HOME /usr/local/cuda",
        "RUN nvidia-smi",
        "HEALTHCHECK CMD nvidia-smi",
        "RUN apt-get update && apt-get install -y cuda-toolkit-12-1",
        "RUN apt-get install -y cuda-12-1",
        "ONBUILD RUN apt-get install -y libcudnn8-dev=8.9",
    ],
)
def test_a_line_of_a_dockerfile_that_is_for_cuda_is_named(tmp_path: Path, line: str) -> None:
    assert _scan(tmp_path, "Dockerfile", f"# the image\n{line}\nWORKDIR /a\n") == [("OC231", 2)]


def test_a_dockerfile_for_the_cpu_is_silent(tmp_path: Path) -> None:
    text = """FROM python:3.11-slim AS cuda
# FROM nvidia/cuda:12.1.0-base
LABEL cuda=nvidia-smi
ENV CUDA_VISIBLE_DEVICES="" HOME_OF_CUDA=1
ARG BASE=a:barracuda
COPY cuda-12.whl /whl/cu121/
RUN apt-get install -y git \\
    curl && pip install torch==2.1.0+cpu --index-url https://index.example/whl/cpu
RUN echo a/cuda-toolkit-12
"""
    assert _scan(tmp_path, "Dockerfile", text) == []


def test_a_continued_line_of_a_dockerfile_belongs_to_its_instruction(tmp_path: Path) -> None:
    text = "RUN apt-get install -y \\\n    # the driver\n\n  user libnccl2 \\\n  cuda-nvcc-12-1\nRUN <<EOF\nfrom a import b\nnvidia-smi\nEOF\n"
    text += _IMAGE
    assert _scan(tmp_path, "Containerfile", text) == [("OC231", line) for line in (4, 5, 8, 10)]


@pytest.mark.parametrize("name", ["Dockerfile", "dockerfile", "Dockerfile.gpu", "train.Dockerfile", "Containerfile"])
def test_a_file_is_a_dockerfile_by_its_name(tmp_path: Path, name: str) -> None:
    assert _scan(tmp_path, name, _IMAGE) == [("OC231", 1)]


@pytest.mark.parametrize(
    "name",
    ["Dockerfile.md", "Dockerfile.dockerignore", "Dockerfile.gpu.txt", "dockerfile.vim", "Dockerfiles", "aDockerfile"],
)
def test_a_name_that_only_begins_as_that_of_a_dockerfile_is_not_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.py").touch()
    assert _scan(tmp_path, name, _IMAGE) == []


def test_a_hostile_dockerfile_costs_little_and_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile.zero").symlink_to("/dev/zero")
    (tmp_path / "Dockerfile.long").write_text("FROM " + ":cud" * 240_000, encoding="utf-8")
    (tmp_path / "Dockerfile.gpus").write_text("RUN " + "cuda-" * 190_000, encoding="utf-8")
    (tmp_path / "Dockerfile.pins").write_text("RUN " + "a-" * 400_000, encoding="utf-8")
    (tmp_path / "a.yaml").write_text("{a: " + "[gpu, a: " * 100_000, encoding="utf-8")
    assert _scan(tmp_path, "Dockerfile", "RUN a \\\n" + "b \\\n" * 99_998 + "nvidia-smi\n") == [("OC231", 100_000)]
    (problem,) = scan([str(tmp_path)], TARGET).problems
    assert (problem.kind, problem.module) == ("not_a_file", f"{tmp_path.as_posix()}/Dockerfile.zero")


@pytest.mark.parametrize("version", [2, 3, 4])
def test_a_file_that_git_tracks_is_read_although_a_pattern_matches_it(tmp_path: Path, version: int) -> None:
    git = ["git", "-c", f"index.version={version}", "-C", str(tmp_path)]
    subprocess.run([*git, "init", "-q"], check=True)
    (tmp_path / "out" / "deep").mkdir(parents=True)
    names = ["out/deep/a_tracked_file.py", "out/deep/a_tracked_file_too.py", "out/b.py", "c.py"]
    for name in names:
        (tmp_path / name).write_text("import torch\ntorch.zeros(1).cuda()\n", encoding="utf-8")
    (tmp_path / ".gitignore").write_text("out/\nc.py\n", encoding="utf-8")
    subprocess.run([*git, "add", "-f", *names[:2]], check=True)
    if version == 3:
        (tmp_path / "z.txt").touch()
        subprocess.run([*git, "add", "-N", "z.txt"], check=True)
    index = (tmp_path / ".git" / "index").read_bytes()
    assert index[7] == version
    assert read_index(index)[:2] == names[:2]
    report = scan([str(tmp_path)], TARGET)
    files = [place.file for each in report.findings if (place := each.locations[0].location)]
    assert [Path(file).relative_to(tmp_path).as_posix() for file in files] == names[:2]


def test_a_damaged_index_tracks_nothing() -> None:
    assert read_index(b"") == read_index(b"DIRC" + bytes(8)) == []
    assert read_index(b"DIRC\0\0\0\2\xff\xff\xff\xff" + bytes(70)) in ([], [""])
    assert read_index(b"DIRC\0\0\0\4\0\0\0\2" + b"\xff" * 90) == []
