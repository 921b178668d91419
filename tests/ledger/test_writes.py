"""What one write of a ledger costs: the API server keeps no account of its fields, compares its data as one, and only rows that are new are written."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from muster.kube.transport import Request
from muster.ledger.reservations import Reserved
from muster.ledger.rows import Row
from muster.model import kinds, names


async def managed(lab: Any) -> list[Any] | None:
    """Return what the API server keeps of who set which field of the ledger."""
    answer = await lab.client.send(Request("GET", kinds.QUOTALEDGERS.path(lab.namespace, names.LEDGER_NAME)))
    kept: list[Any] | None = msgspec.json.decode(answer.body)["metadata"].get("managedFields")
    return kept


async def test_the_data_is_one_field_to_the_api_server(lab: Any) -> None:
    ledger = {"metadata": {"name": names.LEDGER_NAME}, "data": {"summary": "of somebody's", "observed": {"pods": "1"}}}
    await lab.client.create(kinds.QUOTALEDGERS, ledger, lab.namespace)
    assert [each["fieldsV1"] for each in await managed(lab) or ()] == [{"f:data": {}}]


async def test_the_api_server_keeps_no_account_of_who_set_which_field(lab: Any) -> None:
    one = await lab.process()
    await lab.quota(one, cpu="10")
    # Both writes: the one that forgets what was kept since the creation, and one that finds nothing kept.
    for name in ("first", "second"):
        assert await lab.create(one, name, "1") == Reserved()
        assert await managed(lab) is None


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
