"""Logs as JSON lines, with the id of the request that they are about; never with a prompt or an answer."""

from __future__ import annotations

import logging
import time
from contextvars import ContextVar
from typing import Final, Literal

import orjson

# The request that the current task serves; "" where there is none.
REQUEST: Final[ContextVar[str]] = ContextVar("request", default="")

_TEXT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class JsonLines(logging.Formatter):
    """``time`` (RFC 3339), ``level``, ``logger``, ``message``, ``request_id`` if there is one, ``exception`` if any."""

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, str] = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if request := REQUEST.get():
            line["request_id"] = request
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(line).decode()


def set_up(level: str, shape: Literal["json", "text"]) -> None:
    """Log to standard error from here on."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if shape == "json" else logging.Formatter(_TEXT))
    logging.basicConfig(level=level.upper(), handlers=[handler])
