"""The routes: the page, a model that is looked at, the runs of a folder, and the lessons."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Path, Query
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from saccade.errors import UsageError
from saccade.explain.grid import LEVELS, shades
from saccade.explain.page import POLICY
from saccade.serving.demos import Demos
from saccade.serving.guard import guard, said
from saccade.serving.room import Asking, Room
from saccade.serving.shelf import Shelf
from saccade.studies.lessons.alignments import DEMO
from saccade.studies.lessons.table import LESSONS
from saccade.viewer import pages

LONGEST = 200_000  # characters of a text
Number = Annotated[int, Path(ge=0, le=2**31)]


class Asked(BaseModel):
    """What the page sends to look at."""

    model_config = ConfigDict(extra="forbid")
    text: str = Field("", max_length=LONGEST)
    second: str | None = Field(None, max_length=LONGEST)
    picture: str | None = None
    off: list[str] = Field([], max_length=4096)
    words: bool = False
    first: int | None = Field(None, ge=0, le=2**20)
    beams: int = Field(1, ge=1, le=16)
    length: int | None = Field(None, ge=1, le=512)

    def asking(self) -> Asking:
        given: dict[str, Any] = self.model_dump()
        given["off"] = tuple(self.off)
        return Asking(**given)


def make(rooms: dict[str, Room], shelf: Shelf) -> FastAPI:
    """The application: rooms by the names of their models, and the runs that can be compared."""
    demos = Demos(DEMO)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        demos.end()

    app = guard(FastAPI(title="saccade", docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan))
    _files(app)
    _looks(app, rooms)
    _runs(app, shelf)
    _lessons(app, demos)
    return app


def _files(app: FastAPI) -> None:
    files = pages()

    @app.get("/")
    def home() -> Response:
        return Response(files["index.html"][0], media_type=files["index.html"][1])

    @app.get("/page/{name}")
    def page(name: str) -> Response:
        if name not in files:
            return said(404, "There is no such file.")
        content, kind = files[name]
        return Response(content, media_type=kind)


def _looks(app: FastAPI, rooms: dict[str, Room]) -> None:
    @app.get("/api/about")
    def about() -> dict[str, Any]:
        return {"models": {name: room.about() for name, room in rooms.items()}, "colours": colours()}

    def room(name: str) -> Room:
        if name not in rooms:
            raise UsageError(f"There is no model {name!r} here.")
        return rooms[name]

    @app.post("/api/look/{name}")
    def look(name: str, asked: Asked) -> dict[str, Any]:
        return room(name).look(asked.asking())

    @app.get("/api/look/{name}/{number}/{map}")
    def weights(
        name: str, number: Number, map: Number, measure: Literal["weight", "value_norm"] = "weight"
    ) -> Response:
        return Response(room(name).weights(number, map, measure), media_type="application/octet-stream")

    @app.get("/api/heads/{name}/{number}/{map}")
    def heads(name: str, number: Number, map: Number) -> list[dict[str, Any]]:
        return room(name).heads(number, map)

    @app.get("/api/agree/{name}/{number}/{map}/{head}")
    def agree(name: str, number: Number, map: Number, head: Number) -> dict[str, Any]:
        return room(name).agree(number, map, head)

    @app.get("/api/page/{name}/{number}")
    def saved(name: str, number: Number) -> Response:
        return inside(room(name).page(number))


def _runs(app: FastAPI, shelf: Shelf) -> None:
    @app.get("/api/runs")
    def runs() -> list[dict[str, Any]]:
        return shelf.runs()

    @app.get("/api/report/{name}")
    def report(name: str) -> Response:
        return inside(shelf.report(name))

    @app.get("/api/card/{name}")
    def card(name: str) -> Response:
        return inside(shelf.card(name))

    @app.get("/api/samples/{name}")
    def samples(name: str) -> dict[str, Any]:
        return shelf.samples(name)


def _lessons(app: FastAPI, demos: Demos) -> None:
    @app.get("/api/lessons")
    def lessons() -> list[dict[str, Any]]:
        return [lesson.described() for lesson in LESSONS.values()]

    @app.get("/api/lesson/{name}")
    def lesson(name: str, set: Annotated[list[str], Query()] = []) -> dict[str, Any]:  # noqa: B006 - the framework copies it
        if name not in LESSONS:
            raise UsageError(f"There is no lesson {name!r}.")
        return LESSONS[name].shown({one.partition(":")[0]: one.partition(":")[2] for one in set})

    @app.get("/api/demo")
    def trained() -> dict[str, Any]:
        return demos.told()

    @app.post("/api/demo/{name}")
    def train(name: str) -> dict[str, Any]:
        return demos.begin(name)


def inside(page: str | bytes) -> Response:
    """A page that has its style inside, and asks for nothing else."""
    return Response(page, media_type="text/html; charset=utf-8", headers={"Content-Security-Policy": POLICY})


def colours() -> dict[str, list[str]]:
    """The scales of the pictures on a light and on a dark page, for weights and for numbers with a sign; zero is the ground."""
    weights, signed = ([shades(f"{kind}{level}") for level in range(LEVELS + 1)] for kind in "md")
    found = {"light": [one[0] for one in weights], "dark": [one[1] for one in weights]}
    return found | {"signed": [one[0] for one in signed], "signed_dark": [one[1] for one in signed]}
