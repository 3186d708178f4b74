"""Dependencies of the routes: the server's state, the run or teacher of a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, HTTPException, Request

from podnet.studio.events import Studio
from podnet.studio.index import Entry
from podnet.studio.teaching import Teacher

if TYPE_CHECKING:
    from podnet.studio.model_view import ModelView

PHOTO = {"requestBody": {"required": True, "content": {"application/octet-stream": {"schema": {"format": "binary"}}}}}


async def _studio(request: Request) -> Studio:
    studio: Studio = request.app.state.studio
    return studio


StudioState = Annotated[Studio, Depends(_studio)]


def run_of(studio: StudioState, key: str) -> Entry:
    entry = studio.index.entry(key)
    if entry is None or not entry.run.config_file.exists():
        raise HTTPException(404, "this run does not exist, or its folder was deleted.")
    return entry


async def _teacher(studio: StudioState) -> Teacher:
    return studio.teacher or _no_model()


async def _idle_teacher(studio: StudioState) -> Teacher:
    teacher = await _teacher(studio)
    teacher.require_idle()
    return teacher


RunOfKey = Annotated[Entry, Depends(run_of)]
ModelTeacher = Annotated[Teacher, Depends(_teacher)]
IdleTeacher = Annotated[Teacher, Depends(_idle_teacher)]  # refused while the model is being taught


def view_of(studio: Studio) -> ModelView:
    """What the model shows; torch is loaded for it."""
    return studio.view() or _no_model()


def _no_model() -> Any:
    raise HTTPException(404, "no model: podnet studio was started without --model.")
