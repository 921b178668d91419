"""A transport for a tenant of one namespace, in front of one for an administrator."""

from __future__ import annotations

from typing import Any

import msgspec

from muster.kube.transport import Request, Response


class Restricted:
    """Passes on what a tenant of one namespace may ask; denies the rest, as an API server does."""

    def __init__(self, inner: Any, namespace: str) -> None:
        self._inner, self._part = inner, f"/namespaces/{namespace}/"

    async def request(self, request: Request, *, within: float) -> Response:
        if self._part not in request.path:
            body = {"kind": "Status", "reason": "Forbidden", "message": f'"{request.path}" is forbidden'}
            return Response(403, msgspec.json.encode(body))
        response: Response = await self._inner.request(request, within=within)
        return response
