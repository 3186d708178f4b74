"""The page's server: files of the page, and everything it shows as JSON."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, Response, StreamingResponse
from fastapi.staticfiles import StaticFiles
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp

from podnet import __version__
from podnet.errors import BusyError, PodnetError
from podnet.studio.answers import AllRuns, Comparison
from podnet.studio.details import classes, overview
from podnet.studio.events import Studio
from podnet.studio.guard import HEADERS, Guard, TooLargeError
from podnet.studio.index import WatchedRun
from podnet.studio.model_routes import model_routes

STATIC = Path(__file__).parent / "static"
PLOTLY = Path(str(resources.files("plotly"))) / "package_data" / "plotly.min.js"
SWAGGER = Path(str(resources.files("fastapi_swagger"))) / "resources"
DAY = {"Cache-Control": "max-age=86400"}


class NotFoundError(PodnetError):
    """Something that is not there, or not there any more."""


def create_app(studio: Studio, host: str = "127.0.0.1", token: str | None = None) -> ASGIApp:
    """The application; `host` is the address it is bound to."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        watching = asyncio.create_task(studio.watch())
        yield
        watching.cancel()
        await studio.close()

    app = FastAPI(
        title="podnet studio",
        version=__version__,
        description="What the page shows. Run folders and the model file are the ones of the command line.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
    )
    _pages(app)
    _errors(app)
    _run_routes(app, studio)
    model_routes(app, studio)
    return Guard(app, host, token)


def _pages(app: FastAPI) -> None:
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    app.mount("/vendor/swagger", StaticFiles(directory=SWAGGER), name="swagger")

    @app.get("/", include_in_schema=False)
    def page() -> FileResponse:
        return FileResponse(STATIC / "index.html")

    @app.get("/vendor/plotly.js", include_in_schema=False)
    def charts() -> FileResponse:
        return FileResponse(PLOTLY, media_type="text/javascript", headers=DAY)

    @app.get("/docs", include_in_schema=False)
    def docs() -> HTMLResponse:
        shown = get_swagger_ui_html(
            openapi_url="/api/openapi.json",
            title="podnet studio: API",
            swagger_js_url="/vendor/swagger/swagger-ui-bundle.js",
            swagger_css_url="/vendor/swagger/swagger-ui.css",
            swagger_favicon_url="/static/icon.svg",
        )
        text = bytes(shown.body).decode()
        scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)  # its own, which the policy must name
        digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
        allowed = " ".join(["script-src 'self'", *(f"'sha256-{digest}'" for digest in digests)])
        policy = HEADERS["Content-Security-Policy"].replace("script-src 'self'", allowed)
        return HTMLResponse(text, headers={"Content-Security-Policy": policy})


def _errors(app: FastAPI) -> None:
    async def told(request: Request, error: Exception) -> Response:
        status = 404 if isinstance(error, NotFoundError) else 409 if isinstance(error, BusyError) else 422
        return JSONResponse({"detail": str(error)}, status_code=status)

    async def malformed(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        words = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()]
        return JSONResponse({"detail": f"the request is not as expected: {'; '.join(words)}."}, status_code=422)

    async def too_large(request: Request, error: Exception) -> Response:
        return JSONResponse({"detail": "the request is larger than allowed."}, 413, {"Connection": "close"})

    async def vanished(request: Request, error: Exception) -> Response:
        return Response(status_code=400)  # nobody is there to read it

    async def gone(request: Request, error: Exception) -> Response:
        assert isinstance(error, OSError)
        return JSONResponse({"detail": f"a file cannot be read: {error.strerror}."}, status_code=404)

    app.add_exception_handler(PodnetError, told)
    app.add_exception_handler(RequestValidationError, malformed)
    app.add_exception_handler(TooLargeError, too_large)
    app.add_exception_handler(ClientDisconnect, vanished)
    app.add_exception_handler(OSError, gone)


def _run_routes(app: FastAPI, studio: Studio) -> None:
    def run_of(key: str) -> WatchedRun:
        run = studio.index.run(key)
        if run is None or not run.config_file.exists():
            raise NotFoundError("there is no such run, or its folder is gone.")
        return run

    def lines_from(start: int, lines: list[dict[str, Any]], generation: int) -> Response:
        with _damage_told():
            return JSONResponse({"generation": generation, "lines": lines[start:]})

    @app.get("/api/runs", tags=["runs"], responses={200: {"model": AllRuns}})
    def runs() -> Response:
        """All runs, and the version of the list; ask /api/events for what changes after it."""
        return Response(studio.all_runs(), media_type="application/json")

    @app.get("/api/events", tags=["runs"])
    async def events(request: Request, since: str = "") -> StreamingResponse:
        """Server-sent events: `runs` that changed or are gone, `teach` and `model`. Last-Event-ID goes on after it."""
        after = request.headers.get("last-event-id", since)
        return StreamingResponse(studio.stream(after), media_type="text/event-stream")

    @app.get("/api/runs/{key}", tags=["runs"])
    def run(key: str) -> dict[str, Any]:
        """The summary of a run, its configuration, environments, and the command to run it again."""
        found = run_of(key)
        summary = studio.index.summary(key)
        return {"summary": asdict(summary) if summary else None, **overview(found)}

    @app.get("/api/runs/{key}/results", tags=["runs"])
    def results(key: str, start: Annotated[int, Query(ge=0)] = 0) -> Response:
        """The lines of results.jsonl from one on; a new generation means that lines from before are gone."""
        found = run_of(key)
        return lines_from(start, found.results(), found.generation(found.results_file))

    @app.get("/api/runs/{key}/epochs", tags=["runs"])
    def epochs(key: str, start: Annotated[int, Query(ge=0)] = 0) -> Response:
        """The lines of epochs.jsonl from one on."""
        found = run_of(key)
        return lines_from(start, found.epochs(), found.generation(found.epochs_file))

    @app.get("/api/runs/{key}/classes", tags=["runs"])
    def of_classes(key: str) -> Response:
        """Accuracy of each class when it was new and now, and the confusion matrix after the last task."""
        with _damage_told():
            return JSONResponse(classes(run_of(key)))

    @app.get("/api/compare", tags=["runs"])
    def comparison(run: Annotated[list[str], Query(max_length=200)]) -> Comparison:
        """Several runs over each other: curves, averages, the paper's averages, the options that differ."""
        from podnet.studio.comparison import compare

        found = {key: run_of(key) for key in run}
        shown = {key: studio.index.summary(key) for key in found}
        names = [summary.name if summary else key for key, summary in shown.items()]
        with _damage_told():
            return compare(list(found.values()), names)


@contextmanager
def _damage_told() -> Iterator[None]:
    """Lines that lack what ours have are told as such."""
    try:
        yield
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise PodnetError(f"the files of a run are damaged ({error!r}).") from error
