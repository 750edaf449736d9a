"""``sunfleet chat`` against a router on a real socket."""

from __future__ import annotations

import asyncio
import json
from hashlib import sha256
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from sunfleet_cli.main import cli
from sunfleet_router_harness import Engines, Router, RouterFactory, fleet_file


async def chat(router: Router, *arguments: str, said: str = "", **env: str) -> Result:
    command = ["chat", "--url", router.url, *arguments]
    return await asyncio.to_thread(CliRunner().invoke, cli, command, input=said, env=env)


async def test_a_question_is_answered_in_a_stream_or_as_a_whole(router: Router) -> None:
    told = await chat(router, "acme/maths", "six", "times", "two?", "--max-tokens", "5")
    assert told.exit_code == 0, told.output
    whole = await chat(router, "acme/maths", "--max-tokens", "5", "-o", "json", said="six times two?\n")
    data = json.loads(whole.stdout)
    assert data["content"] + "\n" == told.stdout
    assert (data["finish_reason"], data["usage"]["completion_tokens"]) == ("length", 5)


async def test_what_the_router_refuses_is_one_line(router: Router) -> None:
    refused = await chat(router, "nobody", "hello")
    assert refused.exit_code == 1
    assert refused.stderr.startswith("Error: 404:")
    assert "model_not_found" in refused.stderr


async def test_a_stream_that_fails_midway_is_an_error_and_what_came_is_shown(
    start_router: RouterFactory, engines: Engines
) -> None:
    router = await start_router(settings={"resume_limit": 2})
    engines.configure_decoders(die_after_tokens=1, die="truncate")
    broken = await chat(router, "acme/maths", "hello", "--max-tokens", "8")
    assert broken.exit_code == 1
    assert broken.stdout.strip()
    assert "stream_interrupted" in broken.stderr


async def test_the_key_comes_from_a_file_or_from_the_environment(
    start_router: RouterFactory, engines: Engines, tmp_path: Path
) -> None:
    keys = [{"name": "alice", "sha256": sha256(b"right").hexdigest(), "tasks": "*"}]
    fleet = {**fleet_file(engines), "keys": keys}
    router = await start_router(fleet=fleet, settings={"authentication": "keys"})
    assert "401" in (await chat(router, "acme/maths", "hello")).stderr
    file = tmp_path / "key"
    file.write_text("right\n")
    from_file = await chat(router, "acme/maths", "hello", "--max-tokens", "3", "--key-file", str(file))
    assert from_file.exit_code == 0, from_file.output
    from_env = await chat(router, "acme/maths", "hello", "--max-tokens", "3", SUNFLEET_API_KEY="right")
    assert from_env.stdout == from_file.stdout


async def test_what_is_measured_is_what_simulate_takes(
    start_router: RouterFactory, engines: Engines, tmp_path: Path
) -> None:
    router = await start_router()
    engines.configure_prefills(prefill_seconds_per_token=0.005)
    engines.configure_decoders(tokens_per_second=20)
    few = ["--prompts", "20,200", "--streams", "1,2", "--tokens", "6", "--repeat", "1", "--kv-tokens", "16384"]
    command = ["measure", "acme/maths", "--url", router.url, *few]
    found = await asyncio.to_thread(CliRunner().invoke, cli, command)
    assert found.exit_code == 0, found.output
    made = yaml.safe_load(found.stdout)
    assert made["prefill_tokens_per_second"] == pytest.approx(200, rel=0.5)
    assert made["decode_seconds"] + made["decode_stream_seconds"] == pytest.approx(0.05, rel=0.5)
    (tmp_path / "costs.yaml").write_text(found.stdout)
    given = ["--zipf", "1", "--minutes", "2", "--costs", str(tmp_path / "costs.yaml"), "-o", "json"]
    replayed = await asyncio.to_thread(CliRunner().invoke, cli, ["simulate", *given])
    assert "measured through the router on acme/maths" in json.loads(replayed.stdout)["costs"]
