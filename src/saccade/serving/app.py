"""The FastAPI application: routes for the page, the models, the runs of a folder, and the lessons."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Path, Query
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from saccade.errors import UsageError
from saccade.lessons.alignments import DEMO_DIR
from saccade.lessons.registry import LESSONS
from saccade.render.grid import COLOR_LEVELS, class_to_colors
from saccade.render.page import CONTENT_SECURITY_POLICY
from saccade.serving.demo_jobs import DemoJobs
from saccade.serving.runs import RunFolder
from saccade.serving.security import add_security, error_response
from saccade.serving.session import LookRequest, ModelSession
from saccade.suggest import suggest
from saccade.viewer import read_page_files

MAX_TEXT_CHARS = 200_000  # of an input text
PathIndex = Annotated[int, Path(ge=0, le=2**31)]


class LookBody(BaseModel):
    """Body of a request for the attention maps of an input; see `LookRequest` for the fields."""

    model_config = ConfigDict(extra="forbid")
    text: str = Field("", max_length=MAX_TEXT_CHARS)
    second_text: str | None = Field(None, max_length=MAX_TEXT_CHARS)
    image: str | None = None
    disabled_heads: list[str] = Field([], max_length=4096)
    merge_subwords: bool = False
    first_query: int | None = Field(None, ge=0, le=2**20)
    beams: int = Field(1, ge=1, le=16)
    max_new_tokens: int | None = Field(None, ge=1, le=512)

    def to_request(self) -> LookRequest:
        fields: dict[str, Any] = self.model_dump()
        fields["disabled_heads"] = tuple(self.disabled_heads)
        return LookRequest(**fields)


def make_app(sessions: dict[str, ModelSession], run_folder: RunFolder) -> FastAPI:
    """Create the application for models by name and a folder of runs."""
    demos = DemoJobs(DEMO_DIR)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        demos.stop()

    app = add_security(FastAPI(title="saccade", docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan))
    _add_page_routes(app)
    _add_look_routes(app, sessions)
    _add_run_routes(app, run_folder)
    _add_lesson_routes(app, demos)
    return app


def _add_page_routes(app: FastAPI) -> None:
    files = read_page_files()

    @app.get("/")
    def home() -> Response:
        return Response(files["index.html"][0], media_type=files["index.html"][1])

    @app.get("/page/{name}")
    def page(name: str) -> Response:
        if name not in files:
            return error_response(404, "Not found: the page has no such file.")
        content, media_type = files[name]
        return Response(content, media_type=media_type)


def _add_look_routes(app: FastAPI, sessions: dict[str, ModelSession]) -> None:
    @app.get("/api/about")
    def about() -> dict[str, Any]:
        return {"models": {name: session.describe() for name, session in sessions.items()}, "colors": color_scales()}

    def find_session(name: str) -> ModelSession:
        if name not in sessions:
            raise UsageError(f"There is no model {name!r} on this server.")
        return sessions[name]

    @app.post("/api/look/{name}")
    def look(name: str, body: LookBody) -> dict[str, Any]:
        return find_session(name).look(body.to_request())

    @app.get("/api/look/{name}/{number}/{map}")
    def weights(
        name: str, number: PathIndex, map: PathIndex, measure: Literal["weight", "value_norm"] = "weight"
    ) -> Response:
        return Response(find_session(name).encode_weights(number, map, measure), media_type="application/octet-stream")

    @app.get("/api/heads/{name}/{number}/{map}")
    def heads(name: str, number: PathIndex, map: PathIndex) -> list[dict[str, Any]]:
        return find_session(name).describe_heads(number, map)

    @app.get("/api/faithfulness/{name}/{number}/{map}/{head}")
    def faithfulness(name: str, number: PathIndex, map: PathIndex, head: PathIndex) -> dict[str, Any]:
        return find_session(name).measure_faithfulness(number, map, head)

    @app.get("/api/page/{name}/{number}")
    def saved(name: str, number: PathIndex) -> Response:
        return page_response(find_session(name).render_page(number))


def _add_run_routes(app: FastAPI, run_folder: RunFolder) -> None:
    @app.get("/api/runs")
    def runs() -> list[dict[str, Any]]:
        return run_folder.list_runs()

    @app.get("/api/report/{name:path}")
    def report(name: str) -> Response:
        return page_response(run_folder.read_report(name))

    @app.get("/api/card/{name:path}")
    def card(name: str) -> Response:
        return page_response(run_folder.read_card(name))

    @app.get("/api/samples/{name:path}")
    def samples(name: str) -> dict[str, Any]:
        return run_folder.read_samples(name)


def _add_lesson_routes(app: FastAPI, demo_jobs: DemoJobs) -> None:
    @app.get("/api/lessons")
    def lessons() -> list[dict[str, Any]]:
        return [lesson.describe() for lesson in LESSONS.values()]

    @app.get("/api/lesson/{name}")
    def lesson(name: str, set: Annotated[list[str], Query()] = []) -> dict[str, Any]:  # noqa: B006 - FastAPI copies it
        if name not in LESSONS:
            raise UsageError(f"There is no lesson {name!r}; {suggest(name, list(LESSONS))}")
        return LESSONS[name].run({setting.partition(":")[0]: setting.partition(":")[2] for setting in set})

    @app.get("/api/demo")
    def trained() -> dict[str, Any]:
        return demo_jobs.status()

    @app.post("/api/demo/{name}")
    def train(name: str) -> dict[str, Any]:
        return demo_jobs.start(name)


def page_response(page: str | bytes) -> Response:
    """A self-contained HTML page, with a policy that forbids it to load anything."""
    return Response(
        page, media_type="text/html; charset=utf-8", headers={"Content-Security-Policy": CONTENT_SECURITY_POLICY}
    )


def color_scales() -> dict[str, list[str]]:
    """Color maps as hex colors, sequential and diverging (`signed`), for light and dark pages; zero is the background."""
    weights, signed = ([class_to_colors(f"{kind}{level}") for level in range(COLOR_LEVELS + 1)] for kind in "md")
    sequential = {"light": [pair[0] for pair in weights], "dark": [pair[1] for pair in weights]}
    return sequential | {"signed": [pair[0] for pair in signed], "signed_dark": [pair[1] for pair in signed]}
