"""The engine's API process without an engine: tokens go in as the scheduler sends them, server-sent events come out.

Everything between is the engine's own (output processor, detokenizer, parsers, chat and completion servers), under our
classes. The tokenizer is made up: one token per byte, and a few longer ones.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
from tests.unit.worker.test_handover import complete
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from vllm.entrypoints.generate.base.protocol import RequestResponseMetadata
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.completion.protocol import CompletionRequest
from vllm.parser import ParserManager
from vllm.v1.engine import EngineCoreOutput, EngineCoreRequest, FinishReason
from vllm.v1.engine.output_processor import OutputProcessor, RequestOutputCollector
from vllm.v1.outputs import LogprobsLists

from sunfleet_api import wire
from sunfleet_worker.frontend.serving import SunChat, SunCompletion, feed_parser_stepwise
from sunfleet_worker.frontend.steps import step_by_step

EOS = 0
LONG = ["<think>", "</think>", "<tool_call>", "</tool_call>"]
PROMPT = [70, 71, 72]


def _tokenizer() -> PreTrainedTokenizerFast:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<eos>": EOS, **{letter: index + 1 for index, letter in enumerate(letters)}}
    made = Tokenizer(models.BPE(vocabulary, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    made.add_tokens([AddedToken(word, special=False, normalized=False) for word in LONG])
    made.add_special_tokens([AddedToken("<eos>", special=True)])
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<eos>")


TOKENIZER = _tokenizer()


def encode(text: str) -> list[int]:
    ids: list[int] = TOKENIZER.encode(text, add_special_tokens=False)
    return ids


@dataclass
class Written:
    """What one pod wrote: each event with the tokens that its line tells."""

    events: list[str] = field(default_factory=list)
    told: list[wire.Progress] = field(default_factory=list)

    def add(self, write: str) -> None:
        line, event = write.split("\n", 1) if write.startswith(": ") else ("", write)
        self.told.append(wire.Progress.from_line(line.encode()) if line else wire.Progress(()))
        self.events.append(event)

    @property
    def count(self) -> int:
        return sum(len(progress.token_ids) for progress in self.told)

    def rows(self) -> dict[str, Any]:
        """All rows of log-probabilities that were told, as a resume hands them over."""
        parts = [progress.logprobs for progress in self.told if progress.logprobs]
        return {key: [row for part in parts for row in part[key]] for key in ("token_ids", "logprobs", "ranks")}


@dataclass
class Answering:
    """A request with a fixed answer, streamed by pods that may stop at any event.

    ``asked`` are fields of the client's request, ``parsers`` the names that the pod was started with.
    """

    ids: list[int]
    asked: dict[str, Any] = field(default_factory=dict)
    kind: str = "chat"
    parsers: dict[str, str] = field(default_factory=dict)
    finish: FinishReason = FinishReason.LENGTH

    async def stream(
        self, *, seed: int = 1, told: int | None = None, rows: Any = None, ready: int = 1, progress: bool = True
    ) -> Written:
        """One pod's whole stream.

        Args:
            seed: how many tokens are handed over.
            told: how many of these the stream has told; ``None`` on its first pod.
            rows: their log-probabilities.
            ready: how many of the engine's outputs lie ready when the stream reads the next.
            progress: whether to ask for progress lines.
        """
        params = complete(sun_output_token_ids=self.ids[:seed]) | ({wire.KEY_PROGRESS: True} if progress else {})
        if told is not None:
            params |= {wire.KEY_TOLD_TOKENS: told, wire.KEY_CREATED: 1234, wire.KEY_OUTPUT_LOGPROBS: rows}
        request = self._request(params)
        if self.parsers:
            feed_parser_stepwise(request)
        written = Written()
        async for event in self._events(request, self._outputs(request, seed, ready)):
            written.add(event)
        return written

    def _request(self, params: dict[str, Any]) -> Any:
        body = {"model": "m", "stream": True, "max_tokens": 500, "kv_transfer_params": params, **self.asked}
        if self.kind == "chat":
            return ChatCompletionRequest(messages=[{"role": "user", "content": "?"}], **body)
        return CompletionRequest(prompt=PROMPT, **body)

    async def _outputs(self, request: Any, seed: int, ready: int) -> AsyncGenerator[Any, None]:
        sampling = request.to_sampling_params(500, {})
        processor = step_by_step(OutputProcessor(TOKENIZER, log_stats=False), lambda _: None)
        queue = RequestOutputCollector(sampling.output_kind, "r")
        core = EngineCoreRequest("r", PROMPT, None, sampling, None, 0.0, None, None, None, external_req_id="r")
        processor.add_request(core, None, None, 0, queue)
        waiting = [self.ids[:seed], *([token] for token in self.ids[seed:])]
        finished = False
        while not finished:
            for _ in range(ready):
                if waiting:
                    processor.process_outputs([self._output(sampling, waiting.pop(0), last=not waiting)])
            while not finished and (output := queue.get_nowait()) is not None:
                finished = output.finished
                yield output

    def _output(self, sampling: Any, ids: list[int], *, last: bool) -> EngineCoreOutput:
        logprobs = None if sampling.num_logprobs is None else _logprobs(ids, sampling.num_logprobs)
        return EngineCoreOutput("r", ids, new_logprobs=logprobs, finish_reason=self.finish if last else None)

    def _events(self, request: Any, outputs: AsyncGenerator[Any, None]) -> Any:
        metadata = RequestResponseMetadata(request_id="id")
        if self.kind == "chat":
            chat = _server(SunChat, self.parsers)
            return chat.chat_completion_stream_generator(request, outputs, "id", "m", [], TOKENIZER, metadata)
        numbered = ((0, output) async for output in outputs)
        return _server(SunCompletion, {}).completion_stream_generator(
            request, [{"prompt": "?"}], numbered, "id", 1234, "m",
            num_prompts=1, tokenizer=TOKENIZER, request_metadata=metadata,
        )  # fmt: skip


def _logprobs(ids: Sequence[int], alternatives: int) -> LogprobsLists:
    """Made up, but as the engine shapes them: the sampled token, then the best, which may include it."""
    tops = [[(token + shift) % 250 + 1 for shift in range(token % 2, alternatives + token % 2)] for token in ids]
    rows = [
        [token, *(other if other != token + 1 else token for other in top)]
        for token, top in zip(ids, tops, strict=True)
    ]
    values = [[-0.25 * (token % 5 + row.index(other)) for other in row] for token, row in zip(ids, rows, strict=True)]
    return LogprobsLists(np.asarray(rows), np.asarray(values, dtype=np.float32), np.asarray([1] * len(rows)))


def _server(kind: Any, parsers: dict[str, str]) -> Any:
    server = kind.__new__(kind)
    server.__dict__.update(
        role="decode", response_role="assistant", system_fingerprint=None, request_logger=None,
        enable_force_include_usage=False, enable_prompt_tokens_details=True, enable_per_request_metrics=False,
        enable_log_outputs=False, return_tokens_as_token_ids=False,
        model_config=SimpleNamespace(is_encoder_decoder=False),
        _include_reasoning_tokens_details="reasoning_parser_name" in parsers,
        parser_cls=_parser(parsers) if parsers else None,
    )  # fmt: skip
    return server


def _parser(names: dict[str, str]) -> Any:
    auto = "tool_parser_name" in names
    return ParserManager.get_parser(**names, enable_auto_tools=auto, model_name="m", tokenizer=TOKENIZER)


@dataclass
class Seen:
    """What a client has seen in the end, however it was cut into chunks."""

    roles: list[str] = field(default_factory=list)
    content: str = ""
    reasoning: str = ""
    tools: dict[int, list[str]] = field(default_factory=dict)  # names and arguments
    logprobs: list[Any] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    finish: list[tuple[str, Any]] = field(default_factory=list)
    usage: list[dict[str, Any]] = field(default_factory=list)
    ids: set[tuple[str, str]] = field(default_factory=set)
    done: int = 0


def seen(events: Sequence[str]) -> Seen:
    """Read a stream's events, of one pod or of several in turn."""
    client = Seen()
    for event in events:
        data = event.removeprefix("data: ").strip()
        if data == "[DONE]":
            client.done += 1
            continue
        chunk = json.loads(data)
        client.ids.add((chunk["id"], chunk["model"]))
        if not chunk["choices"]:
            client.usage.append(chunk["usage"])
        for choice in chunk["choices"]:
            _read_choice(client, choice)
    return client


def _read_choice(client: Seen, choice: dict[str, Any]) -> None:
    delta = choice.get("delta", {})
    client.roles += [delta["role"]] if "role" in delta else []
    client.content += delta.get("content") or choice.get("text") or ""
    client.reasoning += delta.get("reasoning") or ""
    for call in delta.get("tool_calls") or ():
        function = call.get("function", {})
        client.tools.setdefault(call["index"], ["", ""])
        client.tools[call["index"]][0] += function.get("name") or ""
        client.tools[call["index"]][1] += function.get("arguments") or ""
    logprobs = choice.get("logprobs") or {}
    client.logprobs += logprobs.get("content") or zip(
        logprobs.get("tokens", ()), logprobs.get("token_logprobs", ()), logprobs.get("top_logprobs", ()), strict=True
    )
    client.offsets += logprobs.get("text_offset", ())
    if choice["finish_reason"]:
        client.finish.append((choice["finish_reason"], choice.get("stop_reason")))
