"""Command line: ``python -m sunfleet_weights resolve URI [--to PATH]``, ``fetch URI --to PATH | --cache PATH`` and
``verify URI --prefill URL --decode URL [--to PATH]``.

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
from tempfile import TemporaryDirectory
from typing import Final, TypeAlias

from sunfleet_api import wire
from sunfleet_api.download import bytes_of
from sunfleet_api.worker import ResolverReport, VerificationReport
from sunfleet_weights.cache import Cache
from sunfleet_weights.errors import UnsupportedScheme, WeightsError, of_system
from sunfleet_weights.fetch import fetch
from sunfleet_weights.inspect import encode, inspect, kind_at
from sunfleet_weights.settings import WeightsSettings, from_environment
from sunfleet_weights.source import Source
from sunfleet_weights.sources import opened
from sunfleet_weights.trust import trust
from sunfleet_weights.verify import run as golden

_Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
TERMINATION_LOG: Final = Path("/dev/termination-log")
_log = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.command == "fetch" and options.cache and not (options.digest and options.size and options.cache_limit):
        parser.error("--cache wants --digest, --size and --cache-limit")
    _leave_on_sigterm()
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # one line per request otherwise
    try:
        _report(_run(options, from_environment()), options.report)
    except (WeightsError, OSError) as error:
        told = (
            error if isinstance(error, WeightsError) else of_system(error, options.to or vars(options).get("cache", ""))
        )
        _log.error("%s: %s", told.reason, told)
        _report(ResolverReport(error_reason=told.reason, error_message=str(told)), options.report)
        return 1
    return 0


def _leave_on_sigterm() -> None:
    """As process 1 of a container we would ignore it; what is half done is safe to leave (see ``fetch``)."""
    signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))


def _run(options: argparse.Namespace, settings: WeightsSettings) -> ResolverReport | VerificationReport:
    with TemporaryDirectory() as scratch:
        if settings.sunfleet_weights_ca_file is not None:
            trust(settings.sunfleet_weights_ca_file, settings.ssl_cert_file, Path(scratch))
        with opened(options.uri, "" if options.command == "fetch" else options.to, settings) as source:
            if options.command == "resolve":
                return inspect(source, options.kind or kind_at(options.to))
            if options.command == "verify":
                key = settings.sunfleet_weights_engine_key.get_secret_value()
                prompts = golden.read(source, options.expect)
                asked = (options.prefill, options.decode, options.salt, options.decoder)
                authority = settings.sunfleet_weights_engine_ca_file
                return golden.verify(prompts, *asked, module=options.module, key=key, authority=authority)
            return _fetch(options, source, settings.sunfleet_weights_workers)


def _fetch(options: argparse.Namespace, source: Source, workers: int) -> ResolverReport:
    if options.uri.startswith("pvc://"):
        raise UnsupportedScheme(f"{options.uri}: a claim is mounted, never copied")
    kind = options.kind or kind_at(options.to)
    if not options.cache:
        fetch(source, Path(options.to), kind, workers, options.digest)
        return ResolverReport(resolved_uri=options.uri if options.digest else source.uri)
    cache = Cache(Path(options.cache), options.cache_limit)
    cache.fill(options.digest, options.size, lambda folder: fetch(source, folder, kind, workers, options.digest))
    return ResolverReport(resolved_uri=options.uri)


def _report(report: ResolverReport | VerificationReport, path: Path | None) -> None:
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
    parser = argparse.ArgumentParser(
        "python -m sunfleet_weights", description="Resolve, fetch or verify model weights by URI."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    resolve = _command(commands, "resolve", "say what a URI is: its revision, its digest, and what KV depends on")
    resolve.add_argument("--to", "--mounted", metavar="PATH", default="", help="where a claim or a volume is mounted")
    checker = _command(commands, "verify", "answer golden prompts through engine pods and compare, token by token")
    checker.add_argument("--to", metavar="PATH", default="", help="where a claim or a volume is mounted")
    checker.add_argument("--prefill", metavar="URL", action="append", required=True, help="a prefill pod; repeatable")
    checker.add_argument("--decode", metavar="URL", action="append", required=True, help="a decode pod; repeatable")
    checker.add_argument(
        "--module", metavar="NAME", default=wire.ENGINE_MODEL, help="an adapter of a PrefillPool's pods"
    )
    checker.add_argument("--salt", default="verification", help="keeps KV apart from that of clients' requests")
    checker.add_argument("--decoder", metavar="sha256:HEX", default="", help="digest of the decoder that is asked")
    checker.add_argument("--expect", metavar="HEX", default="", help="SHA-256 that golden.json must have")
    fetcher = _command(commands, "fetch", "bring the files into a folder or a shared cache, whole and checked")
    where = fetcher.add_mutually_exclusive_group(required=True)
    where.add_argument("--to", metavar="PATH", default="", help="the folder")
    where.add_argument("--cache", metavar="PATH", default="", help="the cache; wants --digest, --size, --cache-limit")
    fetcher.add_argument("--digest", metavar="sha256:HEX", default="", help="what resolve said: the files must have it")
    fetcher.add_argument("--size", metavar="BYTES", type=int, default=0, help="what resolve said")
    fetcher.add_argument(
        "--cache-limit", metavar="SIZE", type=bytes_of, default=0, help="such as 500Gi: more is never kept"
    )
    return parser


def _command(commands: _Commands, name: str, text: str) -> argparse.ArgumentParser:
    sub = commands.add_parser(name, help=text)
    sub.add_argument("uri", metavar="URI", help="hf://, s3://, gs://, oci://, pvc:// or file://; see docs/weights.md")
    sub.add_argument("--kind", choices=("model", "adapter"), help="default: by PATH, else what is found")
    sub.add_argument("--report", metavar="PATH", type=Path, help="file for the report, not the termination message")
    return sub
