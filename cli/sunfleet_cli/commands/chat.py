"""``chat``: ask a task, once or in a conversation."""

from __future__ import annotations

import sys
from typing import Any

import click

from sunfleet_api.sun_model import SUN_MODEL
from sunfleet_cli.chatting import PATH, ChatError, Conversation, Reply, read, refusal
from sunfleet_cli.cluster import Cluster, current_namespace
from sunfleet_cli.commands import completing
from sunfleet_cli.commands.routers import poster_of, router_options
from sunfleet_cli.options import Finite
from sunfleet_cli.output import FORMATS, show
from sunfleet_cli.reach import Post


@click.command()
@click.argument("task", shell_complete=completing.task)
@click.argument("message", nargs=-1)
@click.option("-n", "--namespace", help="Of sun/NAME. Default: the context's.")
@click.option("--system", help="System message.")
@click.option("--max-tokens", type=click.IntRange(1), help="Longest answer. Default: the task's.")
@click.option("--temperature", type=Finite(0), help="0: always the likeliest token. Default: the task's.")
@router_options
@click.option("-o", "--output", type=click.Choice(("text", *FORMATS[1:])), default="text", show_default=True,
              help="Text as it comes, or the whole answer for programs.")  # fmt: skip
def chat(task: str, message: tuple[str, ...], output: str, **given: Any) -> None:
    """Ask TASK: a model's name, or sun/NAME for a SunModel. MESSAGE, or what comes through a pipe, is asked once;
    without either it is a conversation, which ends with Ctrl-D.
    """
    talk = Conversation(_model(task, given["namespace"], given["context"]), _options(given), _beginning(given))
    with poster_of(given) as post:
        if message or not sys.stdin.isatty():
            _once(post, talk, " ".join(message) or sys.stdin.read().strip(), output)
        else:
            _converse(post, talk)


def _model(task: str, namespace: str | None, context: str | None) -> str:
    """``sun/NAME`` is looked up; everything else is a model's name, which may hold slashes too."""
    word, _, name = task.partition("/")
    if word not in {*SUN_MODEL.short_names, SUN_MODEL.singular, SUN_MODEL.plural} or not name:
        return task
    live = Cluster(context).get(SUN_MODEL.plural, namespace or current_namespace(context), name)
    return str(live["spec"].get("modelName") or name)


def _options(given: dict[str, Any]) -> dict[str, Any]:
    return {name: given[name] for name in ("max_tokens", "temperature") if given[name] is not None}


def _beginning(given: dict[str, Any]) -> list[dict[str, str]]:
    return [{"role": "system", "content": given["system"]}] if given["system"] else []


def _once(post: Post, talk: Conversation, text: str, output: str) -> None:
    if not text:
        raise click.UsageError("nothing to ask: give a MESSAGE, or pipe one in")
    try:
        reply = _ask(post, talk, text, aloud=output == "text")
    except ChatError as error:
        raise click.ClickException(str(error)) from None
    if output != "text":
        data = {"model": talk.model, "content": reply.text, "finish_reason": reply.finish_reason, "usage": reply.usage}
        show(output, data, lambda: "")


def _converse(post: Post, talk: Conversation) -> None:
    """A question that failed is forgotten; the conversation goes on."""
    while True:
        try:
            text = click.prompt(">", prompt_suffix=" ", err=True)
        except click.Abort:
            click.echo(err=True)
            return
        try:
            _ask(post, talk, text, aloud=True)
        except (ChatError, click.ClickException) as error:  # refused; or nobody answers, or no more
            click.echo(f"Error: {error}", err=True)


def _ask(post: Post, talk: Conversation, text: str, *, aloud: bool) -> Reply:
    reply = Reply()
    with post(PATH, talk.ask(text)) as answer:
        if answer.status != 200:
            raise refusal(answer.status, b"".join(answer.chunks))
        try:
            for piece in read(answer.chunks, reply):
                if aloud:
                    click.echo(piece, nl=False)
        finally:
            if aloud and reply.text:
                click.echo()
    talk.answered(text, reply)
    return reply
