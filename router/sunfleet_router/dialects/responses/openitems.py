"""The items of a streamed response while they are being said: what each tells when it begins and when it ends. Pure."""

from __future__ import annotations

from sunfleet_router.dialects import Json
from sunfleet_router.dialects.responses import answer as parts
from sunfleet_router.dialects.responses.tools import Named, custom_input


class Saying:
    """An item that is being said. ``event`` is the name of its deltas."""

    prefix: str
    event: str

    def __init__(self, item_id: str) -> None:
        self.id = item_id
        self.said = ""

    def of_part(self, fields: Json) -> Json:
        return {"item_id": self.id, "content_index": 0, **fields}


class Reasoning(Saying):
    prefix, event = "rs", "response.reasoning_text"

    def begun(self) -> Json:
        return {"type": "reasoning", "id": self.id, "summary": [], "status": "in_progress"}

    def part(self, *, done: bool) -> Json:
        return {"type": "reasoning_text", "text": self.said if done else ""}

    def add(self, said: str, _: list[Json] | None) -> Json:
        self.said += said
        return {"delta": said}

    def ending(self) -> list[tuple[str, Json]]:
        return [
            (f"{self.event}.done", self.of_part({"text": self.said})),
            ("response.content_part.done", self.of_part({"part": self.part(done=True)})),
        ]

    def done(self) -> Json:
        return parts.reasoning_item(self.id, self.said)


class Text(Saying):
    prefix, event = "msg", "response.output_text"

    def __init__(self, item_id: str) -> None:
        super().__init__(item_id)
        self.logprobs: list[Json] = []

    def begun(self) -> Json:
        return {"type": "message", "id": self.id, "role": "assistant", "status": "in_progress", "content": []}

    def part(self, *, done: bool) -> Json:
        return parts.text_part(self.said, self.logprobs or None) if done else parts.text_part("", [])

    def add(self, said: str, logprobs: list[Json] | None) -> Json:
        self.said += said
        self.logprobs += logprobs or ()
        return {"delta": said, "logprobs": logprobs or []}

    def ending(self) -> list[tuple[str, Json]]:
        return [
            (f"{self.event}.done", self.of_part({"text": self.said, "logprobs": []})),
            ("response.content_part.done", self.of_part({"part": self.part(done=True)})),
        ]

    def done(self) -> Json:
        return parts.message_item(self.id, self.said, self.logprobs or None)


class Call:
    """A tool call; ``number`` is its index in the chat."""

    @staticmethod
    def prefix(named: Named) -> str:
        """Of its id."""
        return "ctc" if named.custom else "fc"

    def __init__(self, item_id: str, call_id: object, named: Named, number: object) -> None:
        self.id = item_id
        self.call_id = call_id
        self.named = named
        self.number = number
        self.arguments = ""

    def begun(self) -> Json:
        item = parts.call_item(self.id, self.call_id, self.named, "")
        return item if self.named.custom else {**item, "status": "in_progress"}

    def ending(self) -> list[tuple[str, Json]]:
        if not self.named.custom:
            fields = {"item_id": self.id, "arguments": self.arguments, "name": self.named.name}
            return [("response.function_call_arguments.done", fields)]
        given = custom_input(self.arguments)
        return [
            ("response.custom_tool_call_input.delta", {"item_id": self.id, "delta": given}),
            ("response.custom_tool_call_input.done", {"item_id": self.id, "input": given}),
        ]

    def done(self) -> Json:
        return parts.call_item(self.id, self.call_id, self.named, self.arguments)
