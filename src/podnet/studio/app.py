"""The page's server: its files, and its data as JSON."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import resources
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp

from podnet import __version__
from podnet.errors import BusyError, PodnetError
from podnet.studio import model_routes, run_routes, teach_routes
from podnet.studio.access import Access
from podnet.studio.events import Studio
from podnet.studio.guard import Guard

STATIC = Path(__file__).parent / "static"
PLOTLY = Path(str(resources.files("plotly"))) / "package_data" / "plotly.min.js"
SWAGGER = Path(str(resources.files("fastapi_swagger"))) / "resources"
DAY = {"Cache-Control": "max-age=86400"}


def create_app(studio: Studio, host: str, access: Access | None) -> ASGIApp:
    """The application; `host` is the address it is bound to, `access` who may use it from elsewhere."""

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
    app.state.studio = studio  # for the routes: podnet.studio.dependencies
    for routes in (run_routes, model_routes, teach_routes):
        app.include_router(routes.router)
    return Guard(app, host, access)


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
    def docs() -> FileResponse:
        return FileResponse(STATIC / "docs.html")


def _errors(app: FastAPI) -> None:
    @app.exception_handler(PodnetError)
    async def told(request: Request, error: PodnetError) -> Response:
        return JSONResponse({"detail": str(error)}, status_code=409 if isinstance(error, BusyError) else 422)

    @app.exception_handler(RequestValidationError)
    async def malformed(request: Request, error: RequestValidationError) -> Response:
        words = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()]
        return JSONResponse({"detail": f"invalid request: {'; '.join(words)}."}, status_code=422)

    @app.exception_handler(ClientDisconnect)
    async def vanished(request: Request, error: ClientDisconnect) -> Response:
        return Response(status_code=400)  # nobody is there to read it

    @app.exception_handler(OSError)
    async def gone(request: Request, error: OSError) -> Response:
        return JSONResponse({"detail": f"cannot read a file: {error.strerror}."}, status_code=404)
