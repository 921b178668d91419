"""What one write of a ledger costs: the API server compares its data as one field, and only rows that are new are written."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from muster.kube.transport import Request
from muster.ledger.reservations import Reserved
from muster.ledger.rows import Row
from muster.model import kinds, names


async def test_the_data_is_one_field_to_the_api_server(lab: Any) -> None:
    one = await lab.process()
    await lab.quota(one, cpu="10")
    assert await lab.create(one, "train", "6") == Reserved()
    answer = await lab.client.send(Request("GET", kinds.QUOTALEDGERS.path(lab.namespace, names.LEDGER_NAME)))
    managed = msgspec.json.decode(answer.body)["metadata"]["managedFields"]
    assert [each["fieldsV1"].get("f:data") for each in managed if "f:data" in each["fieldsV1"]] == [{}]


async def test_rows_that_were_written_before_keep_their_text(
    lab: Any, asking: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await lab.process()
    await lab.quota(one, cpu="10")
    written: list[str] = []
    write = Row.__str__

    def noted(row: Row) -> str:
        written.append(row.name)
        return write(row)

    monkeypatch.setattr(Row, "__str__", noted)
    # Nobody stores these groups, so that each row stays.
    for name in ("first", "second", "third"):
        assert await asking(one, name, "1") == Reserved()
    assert [name for name in written if name in {"first", "second", "third"}] == ["first", "second", "third"]
    assert len((await lab.ledger()).data.rows) >= 3
