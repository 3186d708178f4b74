"""The part of the API about runs: the list, one in detail, comparisons."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from podnet.errors import PodnetError
from podnet.studio.comparison import Comparison, compare
from podnet.studio.dependencies import RunOfKey, StudioState, run_of
from podnet.studio.details import classes, overview
from podnet.studio.events import MOST_STREAMS
from podnet.studio.summary import AllRuns

router = APIRouter(prefix="/api", tags=["runs"])


@router.get("/runs", responses={200: {"model": AllRuns}})
def runs(studio: StudioState) -> Response:
    """All runs, and the version of the list; ask /api/events for what changes after it."""
    return Response(studio.all_runs(), media_type="application/json")


@router.get("/events")
async def events(request: Request, studio: StudioState, since: str = "") -> StreamingResponse:
    """Server-sent events: `runs` that changed or were removed, `teach` and `model`. Resumes after Last-Event-ID."""
    if studio.streams >= MOST_STREAMS:
        raise HTTPException(503, "too many open pages; close some.", headers={"Retry-After": "10"})
    after = request.headers.get("last-event-id", since)
    session = getattr(request.state, "session", None)  # of another machine's browser
    return StreamingResponse(studio.stream(after, session), media_type="text/event-stream")


@router.get("/runs/{key}")
def run(found: RunOfKey) -> dict[str, Any]:
    """The summary of a run, its configuration, environments, and the command to run it again."""
    return {"summary": asdict(found.summary), **overview(found.run)}


@router.get("/runs/{key}/results")
def results(found: RunOfKey, start: Annotated[int, Query(ge=0)] = 0) -> Response:
    """The lines of results.jsonl from one on; a new generation means that lines from before are gone."""
    return _lines_from(start, found.run.results(), found.run.generation(found.run.results_file))


@router.get("/runs/{key}/epochs")
def epochs(found: RunOfKey, start: Annotated[int, Query(ge=0)] = 0) -> Response:
    """The lines of epochs.jsonl from one on."""
    return _lines_from(start, found.run.epochs(), found.run.generation(found.run.epochs_file))


@router.get("/runs/{key}/classes")
def of_classes(found: RunOfKey) -> Response:
    """Accuracy of each class when it was new and now, and the confusion matrix after the last task."""
    with _damage_told():
        return JSONResponse(classes(found.run))


@router.get("/compare")
def comparison(run: Annotated[list[str], Query(max_length=200)], studio: StudioState) -> Comparison:
    """Compare several runs: curves, averages, the paper's averages, the options that differ."""
    found = [run_of(studio, key) for key in dict.fromkeys(run)]
    with _damage_told():
        return compare([each.run for each in found], [each.summary.name for each in found])


def _lines_from(start: int, lines: list[dict[str, Any]], generation: int) -> Response:
    with _damage_told():
        return JSONResponse({"generation": generation, "lines": lines[start:]})


@contextmanager
def _damage_told() -> Iterator[None]:
    """Report lines that lack expected fields as damaged."""
    try:
        yield
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise PodnetError(f"files of the run are damaged ({error!r}).") from error
