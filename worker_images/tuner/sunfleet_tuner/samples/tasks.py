"""Three small tasks whose answers can be checked exactly, made from a seed: held-out rows never appear in training."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sunfleet_tuner.judges import Judge, same_json, same_text

Messages = tuple[dict[str, str], ...]


@dataclass(frozen=True)
class Example:
    """A request and the one right answer to it."""

    messages: Messages
    answer: str


@dataclass(frozen=True)
class Task:
    """How to make examples and how to judge an answer."""

    name: str
    summary: str
    make: Callable[[int, int], list[Example]]  # (number of rows, seed) -> examples, training and held-out alike
    correct: Judge


def split(task: Task, training: int, held_out: int, seed: int) -> tuple[list[Example], list[Example]]:
    """Training and held-out examples without a common request; the held-out ones are distinct among themselves."""
    test = _distinct(task.make(held_out * 2, seed + 1))[:held_out]
    if len(test) < held_out:
        raise ValueError(f"task {task.name} has only {len(test)} distinct examples, {held_out} wanted")
    known = {example.messages[-1]["content"] for example in test}
    drawn = task.make(training * 2, seed)
    train = [example for example in drawn if example.messages[-1]["content"] not in known][:training]
    return train, test


def _distinct(examples: Sequence[Example]) -> list[Example]:
    return list({example.messages[-1]["content"]: example for example in examples}.values())


def _sums(rows: int, seed: int) -> list[Example]:
    from reasoning_gym import create_dataset  # noqa: PLC0415 - slow to import, and only needed to make data

    data = create_dataset("chain_sum", size=rows, seed=seed, min_terms=2, max_terms=2, min_digits=1, max_digits=2)
    return [Example(({"role": "user", "content": row["question"]},), row["answer"]) for row in data]


def _sorted(rows: int, seed: int) -> list[Example]:
    from reasoning_gym import create_dataset  # noqa: PLC0415 - as above

    data = create_dataset(
        "number_sorting", size=rows, seed=seed, min_numbers=3, max_numbers=4, min_decimals=0, max_decimals=0,
        min_value=0, max_value=99,
    )  # fmt: skip
    return [_sorting(row["metadata"]) for row in data]


def _sorting(facts: dict[str, Any]) -> Example:
    """The numbers come as 75.0, and the dataset's own question is mostly about how to write its list."""
    given, right = (", ".join(f"{float(n):.0f}" for n in facts[f"{kind}_numbers"]) for kind in ("original", "sorted"))
    return Example(({"role": "user", "content": f"Sort these numbers in {facts['direction']} order: {given}"},), right)


CITIES: Final = (
    "Lisbon", "Oslo", "Kyoto", "Lima", "Cairo", "Prague", "Dublin", "Boston", "Turin", "Hanoi", "Quito", "Zagreb",
    "Perth", "Geneva", "Nairobi", "Austin", "Seville", "Riga", "Tampa", "Delhi", "Cologne", "Bergen", "Havana", "Tunis",
)  # fmt: skip
DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
PEOPLE: Final = ("Anna", "Omar", "Yuki", "Carlos", "Priya", "Lena", "Tom", "Fatima", "Ivan", "Grace", "Noah", "Mei")
CURRENCIES: Final = ("USD", "EUR", "JPY", "GBP", "CHF", "INR", "BRL", "SEK")
LABELS: Final = ("tea", "pasta", "laundry", "bread", "yoga", "parking", "rice", "homework")

# Per function: its phrasings. A placeholder is an argument of the call; its values come from VALUES.
FUNCTIONS: Final[dict[str, tuple[str, ...]]] = {
    "get_weather": ("What is the weather in {city} on {day}?", "Will it rain in {city} this {day}?"),
    "book_table": (
        "Book a table for {people} in {city} on {day}.",
        "We are {people} and want to eat out in {city} on {day}.",
    ),
    "set_timer": (
        "Set a timer of {minutes} minutes for the {label}.",
        "Remind me of the {label} in {minutes} minutes.",
    ),
    "convert_currency": ("How much is {amount} {source} in {target}?", "Change {amount} {source} to {target}, please."),
    "call_contact": ("Call {person} on {day}.", "I need to phone {person} this {day}."),
    "find_train": (
        "Find a train from {origin} to {city} on {day}.",
        "How do I get from {origin} to {city} by rail on {day}?",
    ),
}
NUMBERS: Final = {"people": (2, 12), "minutes": (3, 90), "amount": (10, 999)}
VALUES: Final = {
    "city": CITIES, "origin": CITIES, "day": DAYS, "person": PEOPLE, "label": LABELS,
    "source": CURRENCIES, "target": CURRENCIES,
}  # fmt: skip


def _arguments(function: str) -> list[str]:
    """Names of the arguments, in the order of the first phrasing."""
    return re.findall(r"{(\w+)}", FUNCTIONS[function][0])


SYSTEM: Final = "Answer with one function call in JSON. Functions: " + ", ".join(
    f"{name}({', '.join(_arguments(name))})" for name in FUNCTIONS
)


def _calls(rows: int, seed: int) -> list[Example]:
    rng = random.Random(seed)  # noqa: S311 - sample data
    return [_call(rng) for _ in range(rows)]


def _call(rng: random.Random) -> Example:
    name = rng.choice(list(FUNCTIONS))
    arguments: dict[str, Any] = {}
    for argument in _arguments(name):
        low_high = NUMBERS.get(argument)
        taken = arguments.values()
        arguments[argument] = (
            rng.randint(*low_high) if low_high else rng.choice([v for v in VALUES[argument] if v not in taken])
        )
    request = rng.choice(FUNCTIONS[name]).format(**arguments)
    messages = ({"role": "system", "content": SYSTEM}, {"role": "user", "content": request})
    return Example(messages, json.dumps({"name": name, "arguments": arguments}))


TASKS: Final = {
    "arith": Task(
        "arith", "two-term sums of reasoning-gym's chain_sum, answered by the number alone", _sums, same_text
    ),
    "sorting": Task("sorting", "three or four numbers in the asked order, from reasoning-gym", _sorted, same_text),
    "toolcall": Task("toolcall", "requests answered by one JSON function call, from templates", _calls, same_json),
}
