"""The routes: the page, a model that is looked at, the runs of a folder, and the lessons."""

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
from saccade.viewer import read_page_files

MAX_TEXT_CHARS = 200_000  # characters of a text
PathIndex = Annotated[int, Path(ge=0, le=2**31)]


class LookBody(BaseModel):
    """What the page sends to look at."""

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
        given: dict[str, Any] = self.model_dump()
        given["disabled_heads"] = tuple(self.disabled_heads)
        return LookRequest(**given)


def make_app(sessions: dict[str, ModelSession], run_folder: RunFolder) -> FastAPI:
    """The application: rooms by the names of their models, and the runs that can be compared."""
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
            return error_response(404, "There is no such file.")
        content, kind = files[name]
        return Response(content, media_type=kind)


def _add_look_routes(app: FastAPI, sessions: dict[str, ModelSession]) -> None:
    @app.get("/api/about")
    def about() -> dict[str, Any]:
        return {"models": {name: room.describe() for name, room in sessions.items()}, "colors": color_scales()}

    def room(name: str) -> ModelSession:
        if name not in sessions:
            raise UsageError(f"There is no model {name!r} here.")
        return sessions[name]

    @app.post("/api/look/{name}")
    def look(name: str, asked: LookBody) -> dict[str, Any]:
        return room(name).look(asked.to_request())

    @app.get("/api/look/{name}/{number}/{map}")
    def weights(
        name: str, number: PathIndex, map: PathIndex, measure: Literal["weight", "value_norm"] = "weight"
    ) -> Response:
        return Response(room(name).encode_weights(number, map, measure), media_type="application/octet-stream")

    @app.get("/api/heads/{name}/{number}/{map}")
    def heads(name: str, number: PathIndex, map: PathIndex) -> list[dict[str, Any]]:
        return room(name).describe_heads(number, map)

    @app.get("/api/faithfulness/{name}/{number}/{map}/{head}")
    def faithfulness(name: str, number: PathIndex, map: PathIndex, head: PathIndex) -> dict[str, Any]:
        return room(name).measure_faithfulness(number, map, head)

    @app.get("/api/page/{name}/{number}")
    def saved(name: str, number: PathIndex) -> Response:
        return page_response(room(name).render_page(number))


def _add_run_routes(app: FastAPI, run_folder: RunFolder) -> None:
    @app.get("/api/runs")
    def runs() -> list[dict[str, Any]]:
        return run_folder.list_runs()

    @app.get("/api/report/{name}")
    def report(name: str) -> Response:
        return page_response(run_folder.read_report(name))

    @app.get("/api/card/{name}")
    def card(name: str) -> Response:
        return page_response(run_folder.read_card(name))

    @app.get("/api/samples/{name}")
    def samples(name: str) -> dict[str, Any]:
        return run_folder.read_samples(name)


def _add_lesson_routes(app: FastAPI, demo_jobs: DemoJobs) -> None:
    @app.get("/api/lessons")
    def lessons() -> list[dict[str, Any]]:
        return [lesson.describe() for lesson in LESSONS.values()]

    @app.get("/api/lesson/{name}")
    def lesson(name: str, set: Annotated[list[str], Query()] = []) -> dict[str, Any]:  # noqa: B006 - the framework copies it
        if name not in LESSONS:
            raise UsageError(f"There is no lesson {name!r}.")
        return LESSONS[name].run({one.partition(":")[0]: one.partition(":")[2] for one in set})

    @app.get("/api/demo")
    def trained() -> dict[str, Any]:
        return demo_jobs.status()

    @app.post("/api/demo/{name}")
    def train(name: str) -> dict[str, Any]:
        return demo_jobs.start(name)


def page_response(page: str | bytes) -> Response:
    """A page that has its style inside, and asks for nothing else."""
    return Response(
        page, media_type="text/html; charset=utf-8", headers={"Content-Security-Policy": CONTENT_SECURITY_POLICY}
    )


def color_scales() -> dict[str, list[str]]:
    """The scales of the pictures on a light and on a dark page, for weights and for numbers with a sign; zero is the ground."""
    weights, signed = ([class_to_colors(f"{kind}{level}") for level in range(COLOR_LEVELS + 1)] for kind in "md")
    found = {"light": [one[0] for one in weights], "dark": [one[1] for one in weights]}
    return found | {"signed": [one[0] for one in signed], "signed_dark": [one[1] for one in signed]}
