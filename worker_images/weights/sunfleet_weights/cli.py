"""Command line: ``python -m sunfleet_weights resolve|fetch URI --to PATH``.

Exit code 0: done. 1: it failed, and the report says why. 2: wrong usage. The report goes to standard output and, in a
pod, into the termination message.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sunfleet_api.weights import WeightsUri, parse_uri
from sunfleet_api.worker import ResolverReport
from sunfleet_weights.errors import InvalidUri, UnsupportedScheme, WeightsError
from sunfleet_weights.fetch import fetch
from sunfleet_weights.hub import HubRepository
from sunfleet_weights.inspect import encode, inspect, kind_at
from sunfleet_weights.local import LocalFolder
from sunfleet_weights.settings import WeightsSettings
from sunfleet_weights.source import Source

TERMINATION_LOG: Final = Path("/dev/termination-log")
_log = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    options = _parser().parse_args(arguments)
    _leave_on_sigterm()
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # one line per request otherwise
    try:
        _report(_run(options, WeightsSettings()), options.report)
    except WeightsError as error:
        _log.error("%s: %s", error.reason, error)
        _report(ResolverReport(error_reason=error.reason, error_message=str(error)), options.report)
        return 1
    return 0


def _leave_on_sigterm() -> None:
    """As process 1 of a container we would ignore it; what is half done is safe to leave (see ``fetch``)."""
    signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))


def _run(options: argparse.Namespace, settings: WeightsSettings) -> ResolverReport:
    kind = options.kind or kind_at(options.to)
    source = _source(options.uri, options, settings)
    if options.command == "resolve":
        return inspect(source, kind)
    if isinstance(source, LocalFolder) and options.uri.startswith("pvc://"):
        raise UnsupportedScheme(f"{options.uri}: a claim is mounted, never copied")
    fetch(source, Path(options.to), kind, settings.sunfleet_weights_workers)
    return ResolverReport(resolved_uri=source.uri)


def _source(text: str, options: argparse.Namespace, settings: WeightsSettings) -> Source:
    uri = _parsed(text)
    workers = settings.sunfleet_weights_workers
    match uri.scheme:
        case "hf":
            return HubRepository(
                uri.location, uri.revision, endpoint=settings.hf_endpoint.rstrip("/"),
                token=settings.hf_token.get_secret_value(), workers=workers,
            )  # fmt: skip
        case "pvc":
            return LocalFolder(text, Path(options.to), workers)
        case "file":
            return LocalFolder(text, Path(uri.location), workers)
        case scheme:
            raise UnsupportedScheme(f"{text}: {scheme}:// is not supported yet; use hf:// or pvc://")


def _parsed(text: str) -> WeightsUri:
    try:
        return parse_uri(text)
    except ValueError as error:
        raise InvalidUri(str(error)) from error


def _report(report: ResolverReport, path: Path | None) -> None:
    try:
        raw = encode(report)
    except WeightsError as error:
        raw = encode(ResolverReport(error_reason=error.reason, error_message=str(error)))
    if path is not None:
        path.write_bytes(raw)
    elif TERMINATION_LOG.exists():
        TERMINATION_LOG.write_bytes(raw)
    sys.stdout.write(raw.decode() + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m sunfleet_weights", description="Resolve or fetch model weights by URI.")
    commands = parser.add_subparsers(dest="command", required=True)
    for command, text, folder in (
        ("resolve", "say what a URI is: commit, digest, and what KV depends on", "where a pvc:// claim is mounted"),
        ("fetch", "bring the files into a folder, whole and checked", "the folder"),
    ):
        sub = commands.add_parser(command, help=text)
        sub.add_argument("uri", metavar="URI", help="hf://ORG/NAME[@REVISION], pvc://CLAIM[/PATH] or file:///PATH")
        sub.add_argument("--to", "--mounted", metavar="PATH", default="", required=command == "fetch", help=folder)
        sub.add_argument("--kind", choices=("model", "adapter"), help="default: by PATH, else what is found")
        sub.add_argument(
            "--report", metavar="PATH", type=Path, help="file for the report instead of the termination message"
        )
    return parser
