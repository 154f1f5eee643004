"""Mutants of a module: its source with one small change each. The changes are the operators of mutmut."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest

import libcst as cst
import libcst.matchers as m
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators, operator_string

UNTOUCHED = (
    m.Annotation()
    | m.Decorator()
    | m.Raise()
    | m.Import()
    | m.ImportFrom()
    | m.FunctionDef(name=m.Name("__repr__"))
    | m.If(test=m.Name("TYPE_CHECKING"))
    | m.Expr(value=m.SimpleString() | m.ConcatenatedString())
    | m.Arg(keyword=m.Name("device") | m.Name("strict") | m.Name("max_logits"))
    | m.Call(func=m.Name("print") | m.Name("len") | m.Name("isinstance") | m.Name("TypeVar") | m.Name("cast"))
    | m.Call(func=m.Name(value=m.MatchIfTrue(lambda name: name.endswith("Error"))))
    | m.Call(func=m.Attribute(attr=m.Name("warn")))
)
"""Code without behaviour of its own, or whose behaviour a test on a CPU cannot see. It is not mutated."""


@dataclass(frozen=True)
class Mutant:
    """A change of one statement: its first and last line, and the first line of code that differs."""

    first: int
    last: int
    in_function: bool
    before: str
    after: str
    source: str

    @property
    def lines(self) -> range:
        """The numbers of all lines of the statement."""
        return range(self.first, self.last + 1)


@dataclass(frozen=True)
class _Change:
    """A node, what replaces it, and the statement around it."""

    old: cst.CSTNode
    new: cst.CSTNode
    first: int
    last: int
    in_function: bool


class _Collector(cst.CSTVisitor):
    """Collects the changes of a module."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, constants: frozenset[str]) -> None:
        super().__init__()
        self.constants = constants
        self.changes: list[_Change] = []
        self.statement = (1, 1)
        self.depth = 0
        self.bodies = 0

    def visit_FunctionDef_body(self, node: cst.FunctionDef) -> None:
        self.bodies += 1

    def leave_FunctionDef_body(self, node: cst.FunctionDef) -> None:
        self.bodies -= 1

    def on_visit(self, node: cst.CSTNode) -> bool:
        if m.matches(node, UNTOUCHED) or self.is_constant(node) or self.is_alias(node):
            return False
        if isinstance(node, cst.SimpleStatementLine | cst.BaseCompoundStatement):
            self.statement = self.lines_of(node)
        self.depth += isinstance(node, cst.FunctionDef | cst.ClassDef)
        for kind, operator in mutation_operators:
            if isinstance(node, kind):
                made = list(operator(node))
                # A change of case tells no more than a change of letters, so one change of a string is enough.
                for new in made[:1] if operator is operator_string else made:
                    if not changes_untouched_argument(node, new):
                        self.changes.append(_Change(node, new, *self.statement, self.bodies > 0))
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        if not m.matches(original_node, UNTOUCHED):
            self.depth -= isinstance(original_node, cst.FunctionDef | cst.ClassDef)

    def is_constant(self, node: cst.CSTNode) -> bool:
        """Whether a statement defines one of the constants that are not mutated."""
        target = m.Assign(targets=[m.AssignTarget(m.Name(value=m.MatchIfTrue(self.constants.__contains__)))])
        return m.matches(node, target)

    def is_alias(self, node: cst.CSTNode) -> bool:
        """Whether a statement of the module names a type."""
        return self.depth == 0 and m.matches(
            node, m.Assign(value=m.Subscript() | m.BinaryOperation(m.Subscript()))
        )

    def lines_of(self, node: cst.CSTNode) -> tuple[int, int]:
        """First and last line of a statement, or of the head of a compound one."""
        place = self.get_metadata(PositionProvider, node)
        if isinstance(node, cst.SimpleStatementLine):
            return place.start.line, place.end.line
        inside = self.get_metadata(PositionProvider, node.body)
        return place.start.line, max(place.start.line, inside.start.line - 1)


def changes_untouched_argument(old: cst.CSTNode, new: cst.CSTNode) -> bool:
    """Whether a changed call differs in an argument that is not mutated."""
    if not (isinstance(old, cst.Call) and isinstance(new, cst.Call)):
        return False
    kept = {id(arg) for arg in new.args}
    return any(m.matches(arg, UNTOUCHED) for arg in old.args if id(arg) not in kept)


def first_difference(old: str, new: str) -> tuple[str, str]:
    """The first line that differs, before and after."""
    pairs = zip_longest(old.split("\n"), new.split("\n"), fillvalue="")
    before, after = next((a, b) for a, b in pairs if a != b)
    return before.strip(), after.strip()


def collect_changes(source: str, constants: frozenset[str] = frozenset()) -> tuple[cst.Module, list[_Change]]:
    """The parsed module and all its changes, in the order of its code."""
    wrapper = MetadataWrapper(cst.parse_module(source), unsafe_skip_copy=True)
    collector = _Collector(constants)
    wrapper.visit(collector)
    return wrapper.module, collector.changes


def make(module: cst.Module, change: _Change) -> Mutant:
    """The module with a change."""
    mutated = module.deep_replace(change.old, change.new).code
    place = (change.first, change.last, change.in_function)
    return Mutant(*place, *first_difference(module.code, mutated), mutated)
