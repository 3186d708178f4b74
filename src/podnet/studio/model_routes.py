"""The part of the API about the current model: what it knows, and trying it."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from podnet.studio.dependencies import PHOTO, ModelTeacher, StudioState, view_of
from podnet.studio.events import Studio

router = APIRouter(prefix="/api", tags=["model"])


@router.get("/model")
def model(studio: StudioState, teacher: ModelTeacher) -> dict[str, Any]:
    """What the model knows: classes, history, settings, and the map of its photos or proxies."""
    return described(studio, teacher.model)


def described(studio: Studio, path: Path) -> dict[str, Any]:
    """The model file, as the page shows it."""
    if not path.exists():
        return {"file": path.name, "exists": False}
    return {"file": path.name, "exists": True, "version": studio.model_version(), **view_of(studio).describe()}


@router.get("/model/classes/{label}/photos/{index}", response_class=Response)
def exemplar(label: int, index: int, studio: StudioState, size: Annotated[int, Query(ge=8, le=512)] = 96) -> Response:
    """One of the photos that the model keeps of a class, as JPEG."""
    return Response(view_of(studio).thumbnail(label, index, size), media_type="image/jpeg")


@router.post("/predict", openapi_extra=PHOTO)
async def predict(request: Request, studio: StudioState, label: int | None = None) -> dict[str, Any]:
    """Send one encoded photo as the body; returns both inferences, and where the network looked for a class."""
    async with studio.uploads.photo(request, studio.uploads.network) as photo:
        answer, preview = await asyncio.to_thread(lambda: view_of(studio).look(photo.read(), label))
    kind = "png" if preview.startswith(b"\x89PNG") else "jpeg"
    return {**answer, "photo": f"data:image/{kind};base64,{base64.b64encode(preview).decode()}"}
