from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from opcheck.data.sweep_tables import TABLES
from opcheck.features.sweep import sweep_folder
from opcheck.features.sweep.page import render
from opcheck.features.sweep.sweep_folder import Folder, SweepDescription
from tests.features.sweep.made import TARGETS, about, fails_to_load, runs

pq = pytest.importorskip("pyarrow.parquet")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with Folder(tmp_path) as place:
        place.begin(about(["a" * 32, "b" * 32]))
        place.keep(runs())
        place.keep(fails_to_load())
    return tmp_path


def test_each_model_mode_and_target_is_a_row_also_without_a_verdict(folder: Path) -> None:
    counts = {"outcomes": 4, "operators": 1, "uses": 2, "failures": 1, "verdicts": 2}
    assert sweep_folder.write(folder) == counts
    rows = pq.read_table(folder / "outcomes.parquet").to_pylist()
    assert [(row["model"], row["torch"], row["headline"], row["capture"]) for row in rows] == [
        ("transformers:BertModel", "2.4", "runs natively", 0),
        ("transformers:BertModel", "2.5", "runs only with PYTORCH_ENABLE_MPS_FALLBACK=1", 1),
        ("timm:x", "2.4", "could not tell", -1),
        ("timm:x", "2.5", "could not tell", -1),
    ]
    assert [row["fallback_env"] for row in rows] == [0, 1, 0, 0]
    (failed,) = pq.read_table(folder / "failures.parquet").to_pylist()
    assert (failed["targets"], failed["owner"]) == (list(TARGETS), "model")


def test_the_files_have_the_columns_of_the_schema_and_say_what_was_swept(folder: Path) -> None:
    sweep_folder.write(folder)
    for name, columns in TABLES.items():
        schema = pq.read_schema(folder / f"{name}.parquet")
        assert schema.names == [column.name for column in columns]
        result = msgspec.json.decode(schema.metadata[b"opcheck"], type=SweepDescription)
        assert result == msgspec.structs.replace(about([]), keys=())


def test_pandas_polars_and_duckdb_read_them(folder: Path) -> None:
    sweep_folder.write(folder)
    path = folder / "outcomes.parquet"
    pandas = pytest.importorskip("pandas")
    assert pandas.read_parquet(path)["fallback_env"].sum() == 1
    polars = pytest.importorskip("polars")
    assert polars.read_parquet(path)["fallback_env"].sum() == 1
    duckdb = pytest.importorskip("duckdb")
    query = f"select model, count(*) from '{path}' where headline = 'could not tell' group by model"  # noqa: S608
    assert duckdb.sql(query).fetchall() == [("timm:x", 2)]


def test_the_report_names_what_stops_models_and_what_a_release_took_away(folder: Path) -> None:
    text = render(folder, "markdown")
    assert "| `aten::_safe_softmax` | fallback env | 1 | 0 | 1 |" in text
    assert "torch 2.5, macOS 15: 0 run that did not, 0 more run natively, 1 run no more" in text
    assert "- runs no more: transformers:BertModel (inference)" in text
    assert "- 1 models and modes: the model's" in text
    assert "Nothing was observed on a Mac" in text


def test_the_page_escapes_what_models_say(folder: Path) -> None:
    with Folder(folder) as place:
        failed = fails_to_load()
        result = msgspec.structs.replace(failed.failures[0], message="<script>alert(1)</script>")
        place.keep(msgspec.structs.replace(failed, failures=(result,)))
    page = render(folder, "html")
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
