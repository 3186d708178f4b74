"""The part of the API that changes the model: waiting photos, teaching, undoing, forgetting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Request, Response
from pydantic import BaseModel, Field

from podnet.model.changing import accept, undo
from podnet.studio.dependencies import PHOTO, IdleTeacher, ModelTeacher, StudioState
from podnet.studio.events import Studio
from podnet.studio.model_routes import described
from podnet.studio.teaching import Teacher, Teaching

LONGEST_NAME = 10_000  # that is looked at; what a class may be called is decided elsewhere

router = APIRouter(prefix="/api", tags=["teach"])


class Wanted(BaseModel):
    """How to teach."""

    epochs: int | None = Field(
        None,
        ge=1,
        le=1000,
        description="for a model that trains its network; by default depends on the number of photos",
    )


class Named(BaseModel):
    """A class."""

    name: str = Field(max_length=200)


@router.get("/draft")
def draft(studio: StudioState) -> list[dict[str, Any]]:
    """The photos waiting to be taught."""
    return studio.draft.describe()


@router.post("/draft", openapi_extra=PHOTO)
async def add_photo(
    request: Request, name: Annotated[str, Query(max_length=LONGEST_NAME)], studio: StudioState, teacher: IdleTeacher
) -> dict[str, Any]:
    """Send one encoded photo of the class `name` as the body."""
    async with studio.uploads.photo(request, studio.uploads.decoding) as photo:
        added = await asyncio.to_thread(lambda: studio.draft.add(name, photo.read(), teacher.require_idle))
    return {"id": added.id, "name": added.label}


@router.get("/draft/{key}", response_class=Response)
async def draft_photo(key: str, studio: StudioState) -> Response:
    """A small picture of a photo that waits, as JPEG."""
    async with studio.uploads.decoding:
        drawn = await asyncio.to_thread(studio.draft.thumbnail, key)
    if drawn is None:
        raise HTTPException(404, "this photo does not exist.")
    return Response(drawn, media_type="image/jpeg")


@router.delete("/draft/{key}")
def drop_photo(key: str, studio: StudioState, teacher: IdleTeacher) -> list[dict[str, Any]]:
    """Remove a waiting photo."""
    if not studio.draft.remove(key):
        raise HTTPException(404, "this photo does not exist.")
    return studio.draft.describe()


@router.delete("/draft")
def drop_class(studio: StudioState, teacher: IdleTeacher, name: str | None = None) -> list[dict[str, Any]]:
    """Remove the waiting photos of a class, or all."""
    studio.draft.clear(name)
    return studio.draft.describe()


@router.get("/teach")
def teaching(teacher: ModelTeacher) -> Teaching:
    """How far the teaching is."""
    return teacher.current


@router.post("/teach", status_code=202)
async def teach(wanted: Wanted, teacher: ModelTeacher) -> dict[str, Any]:
    """Teach the waiting photos; refused while teaching is in progress."""
    return asdict(await teacher.start(wanted.epochs))


@router.delete("/teach")
async def stop(teacher: ModelTeacher) -> dict[str, Any]:
    """Stop teaching; the model stays as it was."""
    await teacher.stop()
    return asdict(teacher.current)


@router.post("/model/undo")
async def undo_last(studio: StudioState, teacher: IdleTeacher) -> dict[str, Any]:
    """Restore the model from before the last change."""
    return await _changed(studio, teacher, lambda: undo(teacher.model))


@router.post("/model/accept")
async def accept_last(studio: StudioState, teacher: IdleTeacher) -> dict[str, Any]:
    """Keep the last change; it can no longer be undone."""
    return await _changed(studio, teacher, lambda: accept(teacher.model))


@router.post("/model/forget")
async def forget_class(named: Named, studio: StudioState, teacher: IdleTeacher) -> dict[str, Any]:
    """Remove a class. Until accepted it can be undone, so its photos are still on disk."""

    def forget_it() -> None:
        from podnet.model.forget import forget  # imports torch, so only when needed, and not in the event loop

        forget(teacher.model, [named.name], undoable=True)

    return await _changed(studio, teacher, forget_it)


async def _changed(studio: Studio, teacher: Teacher, change: Callable[[], None]) -> dict[str, Any]:
    """Change the file, and clear the outcome of the last teaching."""
    await asyncio.to_thread(change)
    teacher.forget_outcome()
    return await asyncio.to_thread(described, studio, teacher.model)
