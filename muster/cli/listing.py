"""Objects of the API as kubectl's ``get`` shows them: which are selected, in which order, in which form, and as they change."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

import click
import msgspec

from muster.cli import jsonpath
from muster.cli.output import DOCUMENTS, FORMATS, Grid, document, moment
from muster.kube import decoding, errors
from muster.kube.client import Client
from muster.kube.clock import SystemClock
from muster.kube.transport import Request
from muster.model.kinds import Kind
from muster.model.objects import Object
from muster.sandbox.printers.jsonpath import JsonPathError

T = TypeVar("T", bound=Object)
Body = dict[str, Any]

_TEMPLATES: Final = ("jsonpath", "custom-columns")
_IDLE: Final = 3600.0
"""Seconds without a line after which a watch is begun anew: API servers end it themselves before that."""


class Selection(msgspec.Struct, frozen=True):
    """The values of `listing_options`; ``watch`` and what selects are empty for one object."""

    output: str = "table"
    managed_fields: bool = False
    headers: bool = True
    labels: str = ""
    fields: str = ""
    sort_by: str = ""
    watch: bool = False


class Column(NamedTuple):
    """A column: its head, and what it shows of an object at a time."""

    head: str
    text: Callable[[Any, datetime], object]
    wide: bool = False


def viewed(columns: Sequence[Column]) -> tuple[Column, ...]:
    """Return the columns for one object alone: before its age, the last of them, also when it was created."""
    return (*columns[:-1], Column("created", lambda each, _: moment(each.metadata.creation_timestamp)), columns[-1])


class Found(NamedTuple):
    """An object as the server has it; our structs hold only the fields that we use."""

    kind: Kind[Any]
    body: Body

    @property
    def place(self) -> tuple[str, str]:
        """Its namespace and name."""
        return self.body["metadata"].get("namespace", ""), self.body["metadata"]["name"]


class _Output(click.ParamType[str]):
    name = "output"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        form, _, spec = value.partition("=")
        if value in FORMATS:
            return value
        if form not in _TEMPLATES:
            self.fail(
                f"{value!r} is none of {', '.join((*FORMATS, *(f'{each}=…' for each in _TEMPLATES)))}", param, ctx
            )
        if not spec:
            example = "{.items[*].metadata.name}" if form == "jsonpath" else "NAME:.metadata.name"
            self.fail(f"{form} needs a template, as in -o {form}={example}", param, ctx)
        try:
            jsonpath.rendered(spec, None) if form == "jsonpath" else jsonpath.columns(spec)
        except JsonPathError as error:
            self.fail(str(error), param, ctx)
        return value


def one_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a command that shows one object; it gets a `Selection` as ``selection``."""
    return _selected(command, _form_options())


def listing_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a command that lists objects; it gets a `Selection` as ``selection``."""
    choosing = (
        click.option("-l", "--selector", "labels", default="", metavar="SELECTOR", help="Labels: app=web,tier!=db."),
        click.option("--field-selector", "fields", default="", metavar="SELECTOR", help="Fields: metadata.name=train."),
        click.option(
            "--sort-by", default="", metavar="PATH", help="Field to sort by, e.g. .metadata.creationTimestamp."
        ),
        click.option("-w", "--watch", is_flag=True, help="After the list, print each object when it changes."),
    )
    return _selected(command, (*_form_options(), *choosing))


def _form_options() -> tuple[Callable[..., Any], ...]:
    text = f"{', '.join(FORMATS)}, jsonpath=TEMPLATE or custom-columns=HEADER:PATH,…"
    managed = "Keep metadata.managedFields in documents."
    return (
        click.option("-o", "--output", type=_Output(), default="table", show_default=True, metavar="FORMAT", help=text),
        click.option("--show-managed-fields", "managed_fields", is_flag=True, help=managed),
        click.option("--no-headers", is_flag=True, help="Print a table without its heads."),
    )


def _selected(command: Callable[..., Any], options: Sequence[Callable[..., Any]]) -> Callable[..., Any]:
    @functools.wraps(command)
    def selecting(*, no_headers: bool, **given: Any) -> Any:
        chosen = {key: given.pop(key) for key in Selection.__struct_fields__ if key in given}
        return command(selection=Selection(headers=not no_headers, **chosen), **given)

    for option in reversed(options):
        selecting = option(selecting)
    return selecting


class ObjectPrinter(Generic[T]):
    """Shows the objects of some kinds; the first names the others.

    Args:
        kinds: what is read; API servers that serve them.
        columns: of tables.
        namespace: where they are; empty for all namespaces and for kinds of the cluster.
    """

    def __init__(
        self,
        client: Client,
        kinds: Sequence[Kind[T]],
        columns: Sequence[Column],
        selection: Selection,
        namespace: str = "",
    ) -> None:
        self._client = client
        self._kinds = kinds
        self._selection = selection
        self._namespace = namespace
        named = (Column("namespace", lambda each, _: each.namespace),) if kinds[0].namespaced and not namespace else ()
        wide = selection.output == "wide"
        self._columns = [each for each in (*named, *columns) if wide or not each.wide]
        self._grid = Grid([each.head for each in self._columns], headers=selection.headers)

    async def show(self) -> None:
        """Print what there is and, where that is asked for, each change.

        Raises:
            KubeError: it can't be read.
            ClickException: a field to sort by that no object has.
        """
        lists = await asyncio.gather(*(self._list(kind) for kind in self._kinds))
        found = sorted((each for some, _ in lists for each in some), key=lambda each: each.place)
        if self._selection.sort_by:
            found = self._sorted(found)
        if self._selection.watch:
            self._print_each(found)
            versions = zip(self._kinds, (version for _, version in lists), strict=True)
            await asyncio.gather(*(self._follow(kind, version) for kind, version in versions))
        else:
            self._print(found)

    async def show_one(self, kind: Kind[T], name: str) -> None:
        """Print one object.

        Raises:
            KubeError: it can't be read.
        """
        body = self._cleaned(kind, msgspec.json.decode((await self._client.send(self._request(kind, name))).body))
        self._print_each([Found(kind, body)])

    def _sorted(self, found: list[Found]) -> list[Found]:
        try:
            keys = jsonpath.sort_keys(self._selection.sort_by, [each.body for each in found])
        except JsonPathError as error:
            raise click.ClickException(str(error)) from error
        return [found[at] for at in sorted(range(len(found)), key=keys.__getitem__)]

    def _request(self, kind: Kind[T], name: str = "", **more: str) -> Request:
        chosen = {"labelSelector": self._selection.labels, "fieldSelector": self._selection.fields}
        query = {key: value for key, value in (chosen | more).items() if value}
        return Request("GET", kind.path(self._namespace, name), query)

    async def _list(self, kind: Kind[T]) -> tuple[list[Found], str]:
        whole = msgspec.json.decode((await self._client.send(self._request(kind))).body)
        return [Found(kind, self._cleaned(kind, each)) for each in whole.get("items") or ()], _version(whole)

    def _cleaned(self, kind: Kind[T], body: Body) -> Body:
        """Return it with its type, which lists of built-in kinds leave out, and a document without what nobody reads."""
        if self._selection.output in DOCUMENTS and not self._selection.managed_fields:
            body["metadata"].pop("managedFields", None)
        return {"apiVersion": kind.api_version, "kind": kind.name} | body

    async def _follow(self, kind: Kind[T], version: str) -> None:
        while True:
            async for change in self._changes(kind, version):
                if change["type"] == "ERROR":
                    raise errors.from_answer(
                        change["object"].get("code", 500), msgspec.json.encode(change["object"]), {}
                    )
                version = _version(change["object"])
                if change["type"] != "BOOKMARK":
                    self._print_each([Found(kind, self._cleaned(kind, change["object"]))])

    async def _changes(self, kind: Kind[T], version: str) -> AsyncIterator[Body]:
        request = self._request(kind, watch="true", resourceVersion=version, allowWatchBookmarks="true")
        async with self._client.transport.watch(request, idle=_IDLE) as lines:
            async for line in lines:
                yield msgspec.json.decode(line)

    def _print(self, found: list[Found]) -> None:
        """Print a list as one document, or line by line."""
        form, _, spec = self._selection.output.partition("=")
        # As kubectl writes it, whatever the kinds.
        whole = {
            "apiVersion": "v1",
            "items": [body for _, body in found],
            "kind": "List",
            "metadata": {"resourceVersion": ""},
        }
        if form in DOCUMENTS:
            document(whole, form)
        elif form == "jsonpath":
            click.echo(jsonpath.rendered(spec, whole), nl=False)
        elif found or form not in {"table", "wide"}:
            self._print_each(found)
        else:
            where = f" in {self._namespace} namespace." if self._namespace else ""
            click.echo(f"No resources found{where}", err=True)

    def _print_each(self, found: Sequence[Found]) -> None:
        form, _, spec = self._selection.output.partition("=")
        if form == "name":
            for kind, body in found:
                click.echo(f"{_resource(kind)}/{body['metadata']['name']}")
        elif form == "jsonpath":
            click.echo("".join(jsonpath.rendered(spec, body) for _, body in found), nl=False)
        elif form in DOCUMENTS:
            for _, body in found:
                document(body, form)
        elif form == "custom-columns":
            chosen = jsonpath.columns(spec)
            self._grid.heads([head for head, _ in chosen])
            self._grid.write([[jsonpath.cell(path, body) for _, path in chosen] for _, body in found])
        else:
            now = SystemClock().now()
            self._grid.write([[each.text(item, now) for each in self._columns] for item in self._decoded(found)])

    def _decoded(self, found: Sequence[Found]) -> list[Any]:
        items = [decoding.item(kind, msgspec.json.encode(body)) for kind, body in found]
        for each in items:
            if isinstance(each, decoding.Unreadable):
                name = f"{each.about.namespace}/{each.about.name}".removeprefix("/")
                click.echo(f"note: {self._kinds[0].name} {name} is left out: {each.reason}", err=True)
        return [each for each in items if not isinstance(each, decoding.Unreadable)]


def _version(body: Body) -> str:
    return cast("str", (body.get("metadata") or {}).get("resourceVersion", ""))


def _resource(kind: Kind[Any]) -> str:
    return f"{kind.name.lower()}.{kind.group}" if kind.group else kind.name.lower()
