"""Security of the server: checks of host, origin and size of requests, security headers, and errors without tracebacks."""

import logging
from collections.abc import Awaitable, Callable

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response

from saccade.errors import SaccadeError, UsageError

MAX_REQUEST_BYTES = 24 * 2**20  # of a request: an image of 16 MB as base64, and text
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
    """The requested look is no longer cached; the page requests it again."""

    http_status = 410


def add_security(app: FastAPI) -> FastAPI:
    """Add the checks of requests, the security headers and the error handlers to an application."""

    @app.middleware("http")
    async def _(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        response = _refuse_request(request) or await call_next(request)
        for name, value in SECURITY_HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    @app.exception_handler(RequestValidationError)
    async def _(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"][1:]) or "the request"
        return error_response(400, f"{field}: {first['msg']}.")

    @app.exception_handler(SaccadeError)
    async def _(request: Request, error: Exception) -> Response:
        assert isinstance(error, SaccadeError)
        return error_response(error.http_status, str(error))

    @app.exception_handler(Exception)
    async def _(request: Request, error: Exception) -> Response:
        logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return error_response(
            500,
            "Internal error, which is a bug in saccade; the traceback is in the terminal where the server was started.",
        )

    return app


def error_response(code: int, text: str) -> Response:
    """A JSON response {"error": text}."""
    return JSONResponse({"error": text}, status_code=code)


def _refuse_request(request: Request) -> Response | None:
    """An error for requests that are not from this machine's own page (DNS rebinding, CSRF) or too large; else None."""
    host = request.headers.get("host", "").rsplit(":", 1)[0] if request.url.port else request.headers.get("host", "")
    if host not in LOCAL_HOSTS:
        return error_response(400, "This server only answers requests to 127.0.0.1 or localhost.")
    origin = request.headers.get("origin")
    if origin is not None and origin != f"{request.url.scheme}://{request.headers.get('host')}":
        return error_response(403, "This server does not answer requests from other web pages.")
    length = request.headers.get("content-length", "0")
    if request.method == "POST" and (not length.isdigit() or "content-length" not in request.headers):
        return error_response(411, "The request has no valid Content-Length header; add one.")
    if int(length if length.isdigit() else 0) > MAX_REQUEST_BYTES:
        return error_response(413, f"The request is too large; at most {MAX_REQUEST_BYTES // 2**20} MB are allowed.")
    return None
