"""The files of the page, read once and served from memory."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from fastapi import Request, Response

_FOLDER = Path(__file__).parent / "page"
_MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """A file of the page."""

    content: bytes
    media_type: str
    tag: str

    async def respond(self, request: Request) -> Response:
        """Send the file, or say that the browser has it already."""
        headers = {"etag": self.tag, "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == self.tag:
            return Response(status_code=304, headers=headers)
        return Response(self.content, media_type=self.media_type, headers=headers)


def read_assets() -> dict[str, Asset]:
    """Return each file of the page by its path, the page itself by `/`."""
    assets = {}
    for path in sorted(_FOLDER.iterdir()):
        content = path.read_bytes()
        tag = f'"{sha256(content).hexdigest()[:16]}"'
        name = "" if path.name == "index.html" else f"page/{path.name}"
        assets[f"/{name}"] = Asset(content, _MEDIA_TYPES[path.suffix], tag)
    return assets
