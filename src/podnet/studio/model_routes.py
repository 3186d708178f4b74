"""The part of the API that is about the model: what it knows, trying it, teaching it."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import FastAPI, HTTPException, Query, Request, Response
from pydantic import BaseModel, Field

from podnet.studio.events import Studio
from podnet.studio.teaching import Teacher, Teaching

if TYPE_CHECKING:
    from podnet.studio.model_view import ModelView

UPLOADS = 4  # bodies that are read and decoded at a time; the others wait in their sockets
UPLOAD_SECONDS = 60  # that one may take
LONGEST_NAME = 10_000  # that is looked at; what a class may be called is decided elsewhere
PHOTO = {"requestBody": {"required": True, "content": {"application/octet-stream": {"schema": {"format": "binary"}}}}}


class Wanted(BaseModel):
    """How to teach."""

    epochs: int | None = Field(None, ge=1, le=1000, description="of the main phase; chosen by the photos if left out")


class Named(BaseModel):
    """A class."""

    name: str = Field(max_length=200)


def model_routes(app: FastAPI, studio: Studio) -> None:
    """Add the routes."""
    uploads = asyncio.Semaphore(UPLOADS)

    async def body_of(request: Request) -> bytes:
        try:
            return await asyncio.wait_for(request.body(), UPLOAD_SECONDS)
        except TimeoutError:
            raise HTTPException(408, f"the photo did not arrive within {UPLOAD_SECONDS} seconds.") from None

    def view() -> ModelView:
        return studio.view() or _no_model()

    def teacher() -> Teacher:
        return studio.teacher or _no_model()

    def path() -> Path:
        return studio.model or _no_model()

    @app.get("/api/model", tags=["model"])
    def model() -> dict[str, Any]:
        """What the model knows: classes, history, settings, and the map of its proxies."""
        if not path().exists():
            return {"file": path().name, "exists": False}
        return {"file": path().name, "exists": True, "version": studio.model_version(), **view().describe()}

    @app.get("/api/model/classes/{label}/photos/{index}", tags=["model"], response_class=Response)
    def exemplar(label: int, index: int, size: Annotated[int, Query(ge=8, le=512)] = 96) -> Response:
        """One of the photos that the model keeps of a class, as JPEG."""
        return Response(view().thumbnail(label, index, size), media_type="image/jpeg")

    @app.post("/api/predict", tags=["model"], openapi_extra=PHOTO)
    async def predict(request: Request, label: int | None = None) -> dict[str, Any]:
        """Send one encoded photo as the body: both inferences, and where the network looked for a class."""
        async with uploads:
            content = await body_of(request)
            answer, preview = await asyncio.to_thread(lambda: view().look(content, label))
        kind = "png" if preview.startswith(b"\x89PNG") else "jpeg"
        return {**answer, "photo": f"data:image/{kind};base64,{base64.b64encode(preview).decode()}"}

    @app.get("/api/draft", tags=["teach"])
    def draft() -> list[dict[str, Any]]:
        """The photos that wait to be taught."""
        return studio.draft.describe()

    @app.post("/api/draft", tags=["teach"], openapi_extra=PHOTO)
    async def add_photo(request: Request, name: Annotated[str, Query(max_length=LONGEST_NAME)]) -> dict[str, Any]:
        """Send one encoded photo of the class `name` as the body."""
        teacher().require_idle()
        async with uploads:
            content = await body_of(request)
            photo = await asyncio.to_thread(studio.draft.add, name, content, teacher().require_idle)
        return {"id": photo.id, "name": photo.label}

    @app.get("/api/draft/{key}", tags=["teach"], response_class=Response)
    def draft_photo(key: str) -> Response:
        """A small picture of a photo that waits, as JPEG."""
        drawn = studio.draft.thumbnail(key)
        if drawn is None:
            raise HTTPException(404, "there is no such photo.")
        return Response(drawn, media_type="image/jpeg")

    @app.delete("/api/draft/{key}", tags=["teach"])
    def drop_photo(key: str) -> list[dict[str, Any]]:
        """Take a photo back."""
        teacher().require_idle()
        if not studio.draft.remove(key):
            raise HTTPException(404, "there is no such photo.")
        return studio.draft.describe()

    @app.delete("/api/draft", tags=["teach"])
    def drop_class(name: str | None = None) -> list[dict[str, Any]]:
        """Take back the photos of a class, or all."""
        teacher().require_idle()
        if name is None:
            studio.draft.clear()
        else:
            studio.draft.remove_class(name)
        return studio.draft.describe()

    @app.get("/api/teach", tags=["teach"])
    def teaching() -> Teaching:
        """How far the teaching is."""
        return teacher().current

    @app.post("/api/teach", tags=["teach"], status_code=202)
    async def teach(wanted: Wanted) -> dict[str, Any]:
        """Teach the photos that wait; refused while it is being taught already."""
        return asdict(await teacher().start(wanted.epochs))

    @app.delete("/api/teach", tags=["teach"])
    async def stop() -> dict[str, Any]:
        """Stop teaching; the model stays as it was."""
        await teacher().stop()
        return asdict(teacher().current)

    async def changed(change: Callable[[ModelView], None]) -> dict[str, Any]:
        """Change the file; what the last teaching did is then past."""
        teacher().require_idle()
        await asyncio.to_thread(lambda: change(view()))
        teacher().forget_outcome()
        return await asyncio.to_thread(model)

    @app.post("/api/model/undo", tags=["teach"])
    async def undo_last() -> dict[str, Any]:
        """Bring back the model as it was before the last change."""
        return await changed(lambda view: view.undo())

    @app.post("/api/model/accept", tags=["teach"])
    async def accept_last() -> dict[str, Any]:
        """Keep the last change; it cannot be undone any more."""
        return await changed(lambda view: view.accept())

    @app.post("/api/model/forget", tags=["teach"])
    async def forget_class(named: Named) -> dict[str, Any]:
        """Remove a class; until it is accepted it can be undone, and so its photos are still there."""
        return await changed(lambda view: view.forget(named.name))


def _no_model() -> Any:
    raise HTTPException(404, "the page was started without --model.")
