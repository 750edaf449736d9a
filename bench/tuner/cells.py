"""What is trained and what is measured, as data. A cell is one piece of work with one result file."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

# ft: ordinary fine-tuning of all weights, both phases. full, lora: prefill-only against the 16-bit base. q4, q3:
# prefill-only (full weights) against the base in so many bits.
Method = Literal["ft", "full", "lora", "q4", "q3"]
METHODS: Final[tuple[Method, ...]] = ("ft", "full", "lora", "q4", "q3")

BASE: Final = "base"


@dataclass(frozen=True)
class Recipe:
    """Steps of ``batch_rows`` rows; ``held_out`` questions to measure with."""

    steps: int
    batch_rows: int
    held_out: int


@dataclass(frozen=True)
class Plan:
    """A whole bench: every task with every seed and method."""

    tasks: dict[str, Recipe]
    seeds: tuple[int, ...]
    methods: tuple[Method, ...]


FULL: Final = Plan(
    {"arith": Recipe(60, 16, 128), "sorting": Recipe(40, 16, 128), "toolcall": Recipe(30, 8, 96)}, (0, 1), METHODS
)
QUICK: Final = Plan({"arith": Recipe(8, 8, 8)}, (0,), ("ft", "full", "lora", "q4"))


@dataclass(frozen=True)
class Training:
    """One module, tuned; it is left in a folder of the cell's name."""

    task: str
    seed: int
    method: Method
    recipe: Recipe

    @property
    def name(self) -> str:
        return f"{self.task}-{self.seed}-{self.method}"


@dataclass(frozen=True)
class Row:
    """A line of the table: which module reads the prompt, which one writes. ``{t}`` stands for the trained ones."""

    label: str
    prefill: str  # a method, or "base"
    decode: str  # "base", "base-q4", "base-q3", or a method: the module itself; "ft-q4": quantised after tuning
    needs: tuple[Method, ...]


ROWS: Final = (
    Row("base", BASE, BASE, ()),
    Row("Full-FT", "ft", "ft", ("ft",)),
    Row("naive sharing", "ft", BASE, ("ft",)),
    Row("SUN full", "full", BASE, ("full",)),
    Row("SUN LoRA", "lora", BASE, ("lora",)),
    Row("SUN full, 4-bit decoder, not re-tuned", "full", "base-q4", ("full",)),
    Row("QSUN, 4-bit decoder", "q4", "base-q4", ("q4",)),
    Row("SUN full, 3-bit decoder, not re-tuned", "full", "base-q3", ("full", "q3")),
    Row("QSUN, 3-bit decoder", "q3", "base-q3", ("q3",)),
    Row("Full-FT, both phases 4-bit", "ft-q4", "ft-q4", ("ft",)),
)


@dataclass(frozen=True)
class Measurement:
    """One row of the table for one task and seed."""

    task: str
    seed: int
    row: Row
    recipe: Recipe

    @property
    def name(self) -> str:
        return f"{self.task}-{self.seed}-eval-{self.row.prefill}-{self.row.decode}"


Cell = Training | Measurement


def cells(plan: Plan) -> list[Cell]:
    """Everything to do, modules before what measures them; every task with the first seed, then with the next."""
    found: list[Cell] = []
    for seed in plan.seeds:
        for task, recipe in plan.tasks.items():
            found += [Training(task, seed, method, recipe) for method in plan.methods]
            found += [Measurement(task, seed, row, recipe) for row in ROWS if set(row.needs) <= set(plan.methods)]
    return found


def to_json(cell: Cell) -> dict[str, Any]:
    return {"kind": type(cell).__name__, **asdict(cell)}


def from_json(given: dict[str, Any]) -> Cell:
    fields = {**given, "recipe": Recipe(**given["recipe"])}
    if fields.pop("kind") == Training.__name__:
        return Training(**fields)
    return Measurement(**{**fields, "row": Row(**{**fields["row"], "needs": tuple(fields["row"]["needs"])})})
