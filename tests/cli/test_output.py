from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
import yaml

from muster.cli import output

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (10_799, "179m"),
        (10_800, "3h"),
        (172_799, "47h"),
        (172_800, "2d"),
        (-5, "0s"),
    ],
)
def test_an_age_is_written_as_kubectl_writes_it(seconds, text):
    assert output.age(NOW - timedelta(seconds=seconds), NOW) == text


def test_an_unknown_age_says_so():
    assert output.age(None, NOW) == "<unknown>"


def test_a_table_in_a_pipe_is_not_cut_and_has_no_colours(capsys):
    wide = "x" * 300
    output.table(["Name", "Weight"], [["default", 1], [wide, 20]])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["NAME", "WEIGHT"]
    assert lines[1].split() == ["default", "1"]
    assert lines[2].split() == [wide, "20"]
    assert not any(line.endswith(" ") or "\x1b" in line for line in lines)


def test_what_looks_like_markup_is_printed_as_it_is(capsys):
    output.table(["Name"], [["[red]a[/red]"]])
    assert "[red]a[/red]" in capsys.readouterr().out


@pytest.mark.parametrize(("form", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_a_document_reads_back_as_the_same_value(capsys, form, read):
    value = {"kind": "Queue", "spec": {"weight": 3, "capability": {"cpu": "1"}}, "list": [1, None, "ü"]}
    output.document(value, form)
    assert read(capsys.readouterr().out) == value
