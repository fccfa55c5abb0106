"""What stands between a socket and the model: who may ask, how much, and what an answer may never tell."""

import logging
from collections.abc import Awaitable, Callable

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response

from saccade.errors import SaccadeError, UsageError

MAX_REQUEST_BYTES = 24 * 2**20  # bytes of a request: a picture of 16 MB as base64, and its words
LOCAL_HOSTS = ("127.0.0.1", "localhost", "[::1]")
SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
logger = logging.getLogger("saccade.serving")


class LookExpired(UsageError):
    """What is asked for was there, and is not kept any more; the page asks for it anew."""

    http_status = 410


def add_security(app: FastAPI) -> FastAPI:
    """Answer only those who call this machine by its own name, with bounded requests, and never with a traceback."""

    @app.middleware("http")
    async def _(request: Request, go_on: Callable[[Request], Awaitable[Response]]) -> Response:
        answer = _refuse_request(request) or await go_on(request)
        for name, value in SECURITY_HEADERS.items():
            answer.headers.setdefault(name, value)
        return answer

    @app.exception_handler(RequestValidationError)
    async def _(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:]) or "the request"
        return error_response(400, f"{where}: {first['msg']}.")

    @app.exception_handler(SaccadeError)
    async def _(request: Request, error: Exception) -> Response:
        assert isinstance(error, SaccadeError)
        return error_response(error.http_status, str(error))

    @app.exception_handler(Exception)
    async def _(request: Request, error: Exception) -> Response:
        logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return error_response(500, "This is a bug of ours; what happened stands where the server was started.")

    return app


def error_response(code: int, text: str) -> Response:
    """An error in words."""
    return JSONResponse({"error": text}, status_code=code)


def _refuse_request(request: Request) -> Response | None:
    """Another name for this machine means that a foreign page asks through its reader's browser."""
    host = request.headers.get("host", "").rsplit(":", 1)[0] if request.url.port else request.headers.get("host", "")
    if host not in LOCAL_HOSTS:
        return error_response(400, "This server answers to 127.0.0.1 and localhost alone.")
    origin = request.headers.get("origin")
    if origin is not None and origin != f"{request.url.scheme}://{request.headers.get('host')}":
        return error_response(403, "Other pages may not ask this server.")
    length = request.headers.get("content-length", "0")
    if request.method == "POST" and (not length.isdigit() or "content-length" not in request.headers):
        return error_response(411, "Say with Content-Length how long the request is.")
    if int(length if length.isdigit() else 0) > MAX_REQUEST_BYTES:
        return error_response(413, f"A request has at most {MAX_REQUEST_BYTES // 2**20} MB.")
    return None
