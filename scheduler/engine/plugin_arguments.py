"""The base of the arguments of users' plugins; apart from `scheduler.engine.arguments`, since it imports pydantic."""

from __future__ import annotations

from typing import TypeAlias

from pydantic import BaseModel, ConfigDict

from scheduler.engine.arguments import BuiltinArguments


class Arguments(BaseModel):
    """The base of the arguments of users' plugins: each a field, unknown ones refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


ArgumentsType: TypeAlias = type[BuiltinArguments] | type[Arguments]
