"""The source of a model is read once, and the request is made of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from opcheck.capture.request import CaptureOption, CaptureOptions, ModelSource, find_source, request_of
from opcheck.common.errors import ModelLoadError
from opcheck.model.options import options_of
from tests.made import make_target


def test_a_request_is_made_of_what_was_read_before(tmp_path: Path) -> None:
    folder = tmp_path / "bert"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "bert"}', encoding="utf-8")
    source = find_source(str(folder), CaptureOptions())
    shutil.rmtree(folder)
    request = request_of(source, make_target(), CaptureOptions())
    assert request.repository is not None
    assert request.repository.settings("config.json") == {"model_type": "bert"}
    assert find_source(str(folder), CaptureOptions()).repository is None


def test_the_name_of_an_object_is_not_looked_up() -> None:
    request = request_of(ModelSource("Net"), make_target(), CaptureOptions())
    assert (request.model, request.repository) == ("Net", None)
    with pytest.raises(ModelLoadError):
        find_source("Net", CaptureOptions())


def test_each_option_of_a_capture_says_whether_a_report_names_it() -> None:
    plain = [each.field for each in options_of(CaptureOptions) if not isinstance(each.option, CaptureOption)]
    assert plain == [], "declare it by CaptureOption: capture.flags of a report leaves a plain Option out"
