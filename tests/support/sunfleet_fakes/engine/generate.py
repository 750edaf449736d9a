"""One generation request from its body to its last byte: the prefill leg, the decode leg, and their faults."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace

from starlette.types import Receive, Scope, Send

from sunfleet_api import wire
from sunfleet_fakes.engine import answers, handover, logprobs, tokens
from sunfleet_fakes.engine.behaviour import Behaviour, Phase
from sunfleet_fakes.engine.ledger import KvEntry
from sunfleet_fakes.engine.request import ApiError, Generation, Kind, check_handover, check_prefill, parse
from sunfleet_fakes.engine.state import Engine, Record
from sunfleet_fakes.engine.writer import DiedError, Writer

_ENDLESS = 1 << 40


class Leg:
    """Work on one request; whoever awaits :meth:`run` cancels it when the client leaves."""

    def __init__(self, engine: Engine, behaviour: Behaviour, record: Record, writer: Writer) -> None:
        self._engine = engine
        self._behaviour = behaviour
        self._record = record
        self._writer = writer

    async def run(self, kind: Kind, raw: bytes) -> None:
        """Answer. Never raises but for cancellation: errors become answers."""
        try:
            await self._answer(kind, raw)
            self._record.outcome = "completed"
        except DiedError:
            self._record.outcome = "killed"
        except ApiError as error:
            self._record.outcome = "failed" if error.status >= 500 else "refused"
            self._record.detail = str(error)
            await self._report(error)

    async def _report(self, error: ApiError) -> None:
        if self._writer.streaming:
            await self._writer.event(answers.event(error.body))
            await self._writer.end()
        else:
            await self._writer.json(error.status, error.body)

    async def _answer(self, kind: Kind, raw: bytes) -> None:
        behaviour, engine = self._behaviour, self._engine
        await self._phase("accept", behaviour.accept_seconds)
        if not behaviour.fail_module:
            self._fail()
        if engine.draining:
            raise ApiError(503, "this pod is shutting down", code="sun_draining", kind="ServiceUnavailable")
        request = parse(kind, raw, engine.settings.max_model_len)
        if behaviour.resumed_only and not request.resumed:
            self._behaviour = behaviour = behaviour.healed()
        if request.model == behaviour.fail_module:
            self._fail()
        module = engine.module(request.model)
        decoder = engine.settings.role == "decode"
        if not decoder:
            check_prefill(request)
        elif not behaviour.recompute_prompt:
            check_handover(request)
        if engine.ledger.blocks_for(len(request.prompt) + request.reserve_tokens) > engine.ledger.capacity:
            raise ApiError(400, "the request needs more KV blocks than this engine has")
        async with engine.scheduled(self._record.id, len(request.prompt)):
            await (self._decode(request) if decoder else self._prefill(request, module))

    def _fail(self) -> None:
        behaviour = self._behaviour
        if behaviour.fail_status:
            raise ApiError(behaviour.fail_status, behaviour.fail_message, code=behaviour.fail_code, kind="Fault")

    async def _prefill(self, request: Generation, module: str) -> None:
        engine = self._engine
        behaviour = self._behaviour
        await self._phase(
            "prefill", behaviour.prefill_seconds + len(request.prompt) * behaviour.prefill_seconds_per_token
        )
        if self._behaviour.die_after_tokens == 0:
            await self._writer.die()
        engine.counters.prompt_tokens_by_source["local_compute"] += len(request.prompt)
        kv = tokens.kv_tag(module, request.prompt)
        first = tokens.first_token(kv, _ENDLESS if request.resumed else self._natural_length(request))
        answer = self._answer_to(request)
        finish = "stop" if first == tokens.EOS else "length"
        transfer = None
        if finish == "length" and request.transfer.get("do_remote_decode"):
            entry = KvEntry(kv, tokens.prompt_tag(request.prompt), engine.settings.kv_fingerprint)
            engine.lease(self._record.id, entry)
            transfer = handover.transfer_params(engine, self._record.id, self._behaviour.drop_transfer_fields)
            if request.logprobs is not None:
                transfer[wire.KEY_OUTPUT_LOGPROBS] = logprobs.rows([first], request.logprobs)
        self._count([first], finish)
        if self._behaviour.tell_other_prompt:
            answer = replace(answer, request=replace(request, prompt=(*request.prompt[:-1], request.prompt[-1] + 1)))
        await self._writer.json(200, self._without_dropped(answer.whole([first], finish, transfer)))

    async def _decode(self, request: Generation) -> None:
        behaviour = self._behaviour
        await self._phase("kv_load", behaviour.kv_load_seconds)
        kv, cached = await self._load(request)
        tag = self._tag_after(kv, request)
        seeds = list(request.seed_tokens) or [tokens.later_token(tag, 0, self._natural_length(request))]
        answer = self._answer_to(request, cached)
        if wire.KEY_CREATED in request.transfer:
            answer = replace(answer, created=request.transfer[wire.KEY_CREATED])
        await self._emit(answer, seeds, tag, behaviour.repeat_token_at)

    def _answer_to(self, request: Generation, cached: int = 0) -> answers.Answer:
        behaviour = self._behaviour
        return answers.Answer(
            request, self._record.answer_id, cached, behaviour.reasoning_tokens if request.kind == "chat" else 0,
            behaviour.calls_tools, behaviour.stop_reason,
        )  # fmt: skip

    async def _load(self, request: Generation) -> tuple[int, int]:
        """Tag of the prompt's KV, and how many prompt tokens of it came from elsewhere."""
        counters = self._engine.counters.prompt_tokens_by_source
        size = len(request.prompt)
        if self._behaviour.recompute_prompt:
            counters["local_compute"] += size
            return tokens.kv_tag(self._engine.identity, request.prompt), 0
        entry = await handover.load_kv(self._engine, request)
        counters["external_kv_transfer"] += size
        if entry.prompt_tag != tokens.prompt_tag(request.prompt):
            return tokens.spoiled_tag(entry.tag, "KV of another prompt"), size
        return entry.tag, size

    def _tag_after(self, kv: int, request: Generation) -> int:
        """Tag of the decoder's next tokens: spoiled unless the tokens so far are the ones that belong to this KV."""
        tag, natural = tokens.decode_tag(kv, self._engine.identity), self._natural_length(request)
        seeds = request.seed_tokens
        right = (
            tokens.first_token(kv, natural),
            *(tokens.later_token(tag, at, natural) for at in range(1, len(seeds))),
        )
        return tag if seeds == right[: len(seeds)] else tokens.spoiled_tag(tag, seeds)

    async def _emit(self, answer: answers.Answer, seeds: list[int], tag: int, repeat: int | None) -> None:
        """Send the seeds and every token after them, streamed or whole; of a resumed stream only what was not told."""
        request = answer.request
        output = seeds[: request.told]
        if request.stream and wire.KEY_TOLD_TOKENS not in request.transfer:
            await self._open(answer)
        async for token in self._tokens(request, seeds, tag, repeat):
            finish = _finish(token, len(output) + 1, request.max_tokens)
            if request.stream:
                await self._tell(answer.piece(output, [token], finish), request, [token])
            output.append(token)
            self._record.tokens = len(output) - request.told
            if finish:
                break
        finish = _finish(output[-1], len(output), request.max_tokens) or "stop"
        self._count(output[request.told :], finish)
        if request.stream:
            await self._close(answer, output)
        else:
            await self._writer.json(200, self._without_dropped(answer.whole(output, finish, None)))

    async def _open(self, answer: answers.Answer) -> None:
        if 0 in (self._behaviour.die_after_tokens, self._behaviour.fail_after_tokens):
            return  # nothing at all shall come before that
        for raw in answer.opening():
            await self._tell(raw, answer.request, [])
        if self._behaviour.die_after_opening:
            await self._writer.die()

    async def _close(self, answer: answers.Answer, output: list[int]) -> None:
        request = answer.request
        if self._behaviour.die_after_finish:
            await self._writer.die()
        for raw in answer.closing(len(output)):
            await self._tell(raw, request, [])
        if self._behaviour.die_after_done:
            await self._writer.die()
        await self._writer.end()

    async def _tell(self, raw: bytes, request: Generation, new: list[int]) -> None:
        rows = logprobs.rows(new, request.logprobs) if request.logprobs is not None and new else None
        progress = wire.Progress(tuple(new), rows).to_line() if request.progress and new else b""
        await self._writer.event(raw, progress)

    async def _tokens(self, request: Generation, seeds: list[int], tag: int, repeat: int | None) -> AsyncIterator[int]:
        """Tokens that are still to be told, in order, paced, with the faults that concern single tokens."""
        behaviour, owner = self._behaviour, self._record.id
        loop = asyncio.get_running_loop()
        due = loop.time()
        if request.told and _finish(seeds[-1], len(seeds), request.max_tokens):
            return
        for position, token in enumerate(_sequence(seeds, tag, self._natural_length(request), repeat)):
            sent = position - request.told
            if sent < 0:
                continue
            if sent == behaviour.die_after_tokens:
                await self._writer.die(b'{"id":"cut off')
            if sent == behaviour.fail_after_tokens:
                raise ApiError(503, behaviour.fail_message, code=behaviour.fail_code, kind="Fault")
            if position == len(seeds):
                await self._phase("first_token", behaviour.first_token_seconds)
            if behaviour.hang == "stream" and sent >= behaviour.hang_after_tokens:
                await _for_ever()
            if position >= len(seeds):
                if not self._engine.ledger.take(owner, len(request.prompt) + position):
                    self._engine.counters.preemptions += 1
                    raise ApiError(503, "preempted: no KV blocks left", code="sun_preempted", kind="ServiceUnavailable")
                if behaviour.tokens_per_second:
                    due += 1 / behaviour.tokens_per_second
                    await asyncio.sleep(due - loop.time())
            yield token

    async def _phase(self, name: Phase, seconds: float) -> None:
        if self._behaviour.hang == name:
            await _for_ever()
        if seconds:
            await asyncio.sleep(seconds)

    def _natural_length(self, request: Generation) -> int:
        return _ENDLESS if request.ignore_eos else max(self._behaviour.answer_tokens, request.min_tokens)

    def _count(self, output: list[int], finish: str) -> None:
        self._record.tokens = len(output)
        self._engine.counters.generation_tokens += len(output)
        self._engine.counters.success[finish] += 1

    def _without_dropped(self, body: dict[str, object]) -> dict[str, object]:
        for name in self._behaviour.drop_answer_fields:
            body.pop(name, None)
            choices = body.get("choices")
            for choice in choices if isinstance(choices, list) else []:
                choice.pop(name, None)
        return body


async def serve(
    engine: Engine, kind: Kind, raw: bytes, record: Record, scope: Scope, receive: Receive, send: Send,
    reset: Callable[[Scope], None],
) -> None:  # fmt: skip
    """Answer one request, and stop at once when the client leaves, streamed or not."""
    behaviour = engine.behaviour_for_request()
    writer = Writer(send, behaviour, lambda: reset(scope))
    leg = asyncio.create_task(Leg(engine, behaviour, record, writer).run(kind, raw))
    gone = asyncio.create_task(_disconnected(receive))
    try:
        await asyncio.wait({leg, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not leg.done():
            record.outcome = "disconnected"
            leg.cancel()
        await asyncio.gather(leg, return_exceptions=not leg.done())
    finally:
        gone.cancel()
        record.status = writer.status


def _sequence(seeds: list[int], tag: int, natural: int, repeat: int | None) -> Iterator[int]:
    position = 0
    while True:
        token = seeds[position] if position < len(seeds) else tokens.later_token(tag, position, natural)
        yield token
        if position == repeat:
            yield token
        if token == tokens.EOS:
            return
        position += 1


def _finish(token: int, count: int, max_tokens: int) -> str | None:
    if token == tokens.EOS:
        return "stop"
    return "length" if count >= max_tokens else None


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _for_ever() -> None:
    await asyncio.Event().wait()
