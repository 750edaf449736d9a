"""Options of the commands that ask a router, and the way to it that they name."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import click

from sunfleet_cli.commands.completing import contexts
from sunfleet_cli.reach import Post, poster


def router_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Where the router is, and the key; :func:`poster_of` takes what they give."""
    options = (
        click.option("--url", envvar="SUNFLEET_URL", show_envvar=True,
                     help="Of a router. Default: through the API server."),
        click.option("--key-file", type=click.Path(exists=True, dir_okay=False, path_type=Path),
                     help="File with the API key. Default: the variable SUNFLEET_API_KEY."),
        click.option("--api-key", envvar="SUNFLEET_API_KEY", hidden=True, default=""),
        click.option("--system-namespace", default="sunfleet-system", show_default=True, help="Where the routers run."),
        click.option("--context", shell_complete=contexts, help="Context of the kubeconfig. Default: the current one."),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def poster_of(given: dict[str, Any]) -> AbstractContextManager[Post]:
    """Posts to the router that the options name, with their key."""
    try:
        key = given["key_file"].read_text().strip() if given["key_file"] else given["api_key"]
    except (OSError, UnicodeDecodeError) as error:
        raise click.ClickException(f"{given['key_file']}: {error}") from None
    return poster(given["context"], given["system_namespace"], given["url"], key)
