"""The OpenAPI document of the client's port. Pure.

It names the fields that this service itself looks at or that most clients send; whatever else the pinned engine knows
passes through, which is why every request object is open.
"""

from __future__ import annotations

from typing import Any, Final

Json = dict[str, Any]

_VERSION: Final = "1"
_STRING: Final[Json] = {"type": "string"}
_NAME: Final[Json] = {"type": "string", "minLength": 1}
_FLAG: Final[Json] = {"type": ["boolean", "null"]}
_NUMBER: Final[Json] = {"type": ["number", "null"]}
_INTEGER: Final[Json] = {"type": ["integer", "null"]}
_COUNT: Final[Json] = {"type": ["integer", "null"], "minimum": 1}
_OBJECT: Final[Json] = {"type": "object"}
_OBJECTS: Final[Json] = {"type": ["array", "null"], "items": _OBJECT}
_TOKENS: Final[Json] = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
_TEXT_OR_PARTS: Final[Json] = {"anyOf": [_STRING, {"type": "array", "items": _OBJECT}]}
_STOP: Final[Json] = {"anyOf": [_STRING, {"type": "array", "items": _STRING}, {"type": "null"}]}
_SAMPLING: Final[Json] = {
    "temperature": _NUMBER, "top_p": _NUMBER, "top_k": _INTEGER, "min_p": _NUMBER, "seed": _INTEGER, "stop": _STOP,
    "presence_penalty": _NUMBER, "frequency_penalty": _NUMBER, "repetition_penalty": _NUMBER,
}  # fmt: skip
_EVENT: Final[Json] = {  # each of a stream's
    "type": "object", "required": ["data"], "properties": {"event": _STRING, "data": _STRING},
}  # fmt: skip
_STREAM: Final[Json] = {"stream": _FLAG}
_MODEL: Final[Json] = {"model": {**_NAME, "description": "A model of GET /v1/models."}}


def _object(required: tuple[str, ...], properties: Json) -> Json:
    return {"type": "object", "required": list(required), "properties": properties}


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _message(*roles: str) -> Json:
    role: Json = {"enum": list(roles)} if roles else _STRING
    return _object(("role", "content"), {"role": role, "content": _TEXT_OR_PARTS})


_PROMPT: Final[Json] = {
    "description": "One prompt, as text or token ids, or a batch of them.",
    "anyOf": [
        {"type": "string"},
        _TOKENS,
        {"type": "array", "items": {"anyOf": [_STRING, _TOKENS]}, "minItems": 1},
    ],
}
_SCHEMAS: Final[Json] = {
    "ChatRequest": _object(("model", "messages"), {
        **_MODEL, "messages": {"type": "array", "items": _message(), "minItems": 1}, "n": _COUNT,
        "max_completion_tokens": _COUNT, "max_tokens": _COUNT, **_STREAM, **_SAMPLING, "tools": _OBJECTS,
        "logprobs": _FLAG, "top_logprobs": _INTEGER,
    }),
    "CompletionRequest": _object(("model", "prompt"), {
        **_MODEL, "prompt": _PROMPT, "n": _COUNT, "max_tokens": _COUNT, **_STREAM, **_SAMPLING, "logprobs": _INTEGER,
    }),
    "ResponseRequest": _object(("model", "input"), {
        **_MODEL, "instructions": {"type": ["string", "null"]}, **_STREAM,
        "input": {"anyOf": [_STRING, {
            "type": "array", "items": _message("user", "system", "developer"), "minItems": 1,
        }]},
        "max_output_tokens": _COUNT, "temperature": _NUMBER, "top_p": _NUMBER, "tools": _OBJECTS, "text": _OBJECT,
        "store": {"description": "Nothing is stored.", "enum": [False, None]},
    }),
    "MessageRequest": _object(("model", "messages", "max_tokens"), {
        **_MODEL, "messages": {"type": "array", "items": _message("user", "assistant"), "minItems": 1},
        "max_tokens": {"type": "integer", "minimum": 1}, "system": _TEXT_OR_PARTS, **_STREAM, "temperature": _NUMBER,
        "top_p": _NUMBER, "top_k": _INTEGER, "stop_sequences": {"type": "array", "items": _STRING},
        "tools": _OBJECTS,
    }),
    "CountRequest": _object(("model", "messages"), {
        **_MODEL, "messages": {"type": "array", "items": _message("user", "assistant"), "minItems": 1},
        "system": _TEXT_OR_PARTS, "tools": _OBJECTS,
    }),
    "TokenizeRequest": {"anyOf": [
        _object(("model", "prompt"), {**_MODEL, "prompt": _STRING, "add_special_tokens": _FLAG}),
        _object(("model", "messages"), {**_MODEL, "messages": {"type": "array", "items": _message(), "minItems": 1}}),
    ]},
    "DetokenizeRequest": _object(("model", "tokens"), {**_MODEL, "tokens": _TOKENS}),
    "Model": _object(("id", "object", "created", "owned_by"), {
        "id": _NAME, "object": {"const": "model"}, "created": {"type": "integer"}, "owned_by": _STRING,
        "max_model_len": {"type": "integer"},
    }),
    "Models": _object(("object", "data"), {
        "object": {"const": "list"}, "data": {"type": "array", "items": _ref("Model")},
    }),
    "Answer": _object(("id", "object", "created", "model", "choices", "usage"), {
        "id": _STRING, "object": _STRING, "created": {"type": "integer"}, "model": _STRING, "usage": _OBJECT,
        "choices": {"type": "array", "minItems": 1, "items": _object(("index", "finish_reason"), {})},
    }),
    "Response": _object(("id", "object", "status", "output", "usage"), {
        "id": _STRING, "object": {"const": "response"}, "status": {"enum": ["completed", "incomplete"]},
        "output": {"type": "array", "items": _object(("type", "id"), {})}, "usage": _OBJECT,
    }),
    "Message": _object(("id", "type", "role", "content", "stop_reason", "usage"), {
        "id": _STRING, "type": {"const": "message"}, "role": {"const": "assistant"}, "usage": _OBJECT,
        "content": {"type": "array", "minItems": 1, "items": _object(("type",), {})},
    }),
    "Count": _object(("input_tokens",), {"input_tokens": {"type": "integer"}}),
    "Tokens": _object(("count", "max_model_len", "tokens"), {
        "count": {"type": "integer"}, "max_model_len": {"type": "integer"}, "tokens": {"type": "array"},
    }),
    "Text": _object(("prompt",), {"prompt": _STRING}),
    "Error": _object(("error",), {"error": _object(("message", "type", "code"), {
        "message": _STRING, "type": _STRING, "param": {"type": ["string", "null"]},
        "code": {"type": ["string", "integer", "null"]},
    })}),
    "MessagesError": _object(("type", "error"), {
        "type": {"const": "error"}, "error": _object(("type", "message"), {"type": _STRING, "message": _STRING}),
    }),
}  # fmt: skip

_ERRORS: Final = {
    400: "The request; 'param' names the field.",
    404: "There is no such model or path.",
    413: "The body is too large.",
    429: "Too much at once; wait 'retry-after' seconds.",
    500: "A fault of the router.",
    502: "An engine's answer cannot be used.",
    503: "Nothing can serve it now; wait 'retry-after' seconds.",
    504: "A phase took too long.",
}


def document() -> Json:
    """The whole document, of OpenAPI 3.1."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "Sunfleet router", "version": _VERSION},
        "paths": {
            "/v1/chat/completions": _post("A chat", "ChatRequest", "Answer", streams=True),
            "/v1/completions": _post("Completions of prompts", "CompletionRequest", "Answer", streams=True),
            "/v1/responses": _post("A response, kept nowhere", "ResponseRequest", "Response", streams=True),
            "/v1/messages": _post("A message", "MessageRequest", "Message", "MessagesError", streams=True),
            "/v1/messages/count_tokens": _post("A prompt's tokens", "CountRequest", "Count", "MessagesError"),
            "/tokenize": _post("Tokens of a prompt or chat", "TokenizeRequest", "Tokens"),
            "/detokenize": _post("Text of tokens", "DetokenizeRequest", "Text"),
            "/v1/models": {"get": {"summary": "All models", **_answers("Models", "Error")}},
            "/v1/models/{model}": {
                "get": {
                    "summary": "One model",
                    "parameters": [{"name": "model", "in": "path", "required": True, "schema": _NAME}],
                    **_answers("Model", "Error"),
                }
            },
        },
        "components": {"schemas": _SCHEMAS},
    }


def _post(summary: str, request: str, answer: str, error: str = "Error", *, streams: bool = False) -> Json:
    body = {"required": True, "content": {"application/json": {"schema": _ref(request)}}}
    return {"post": {"summary": summary, "requestBody": body, **_answers(answer, error, streams=streams)}}


def _answers(answer: str, error: str, *, streams: bool = False) -> Json:
    content: Json = {"application/json": {"schema": _ref(answer)}}
    if streams:
        content["text/event-stream"] = {"schema": _EVENT}
    failed = {"application/json": {"schema": _ref(error)}}
    return {
        "responses": {
            "200": {"description": "The answer.", "content": content},
            **{str(status): {"description": text, "content": failed} for status, text in _ERRORS.items()},
        }
    }
