"""Rules of the kernels' source that the interpreter cannot see broken: it computes some things wrong without a word."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

BANNED = {
    "dot": "multiply with `common.dot`, which keeps bf16 from the interpreter",
    "dot_scaled": "multiply with `common.dot`, which keeps bf16 from the interpreter",
    "cumprod": "multiply in a static loop: a parallel scan of floats can rise where it must not",
    "associative_scan": "custom combine functions run per element in the interpreter, and scans of floats reorder",
    "reduce": "custom combine functions run per element in the interpreter; use `tl.sum`, `tl.max`",
    "make_block_ptr": "gone in Triton 3.9; use pointers or descriptors",
    "advance": "gone in Triton 3.9; use pointers or descriptors",
}
INTEGERS = {"int1", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"}
WIDE = INTEGERS | {"float32", "float64"}
SHAPING = {
    "trans",
    "permute",
    "reshape",
    "view",
    "ravel",
    "broadcast_to",
    "expand_dims",
    "where",
    "join",
    "split",
    "cat",
}
STORING = {"store", "atomic_add", "atomic_xchg", "device_print"}

POINTER = "pointer"
NARROW = "narrow"
Kind = str | tuple["Kind", ...] | None


def banned(source: str, dot_home: bool = False) -> list[str]:
    """Return what a file may not contain, as `line: what`; only in ``dot_home`` may `dot` be made of `tl.dot`."""
    tree = ast.parse(source)
    excused = {
        id(node)
        for function in _jitted(tree)
        if dot_home and function.name == "dot"
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute) and node.attr == "dot"
    }
    within = {id(node) for function in _jitted(tree) for node in ast.walk(function)}
    found = []
    for node in ast.walk(tree):
        if id(node) not in excused:
            found += [f"{line}: {text}" for line, text in _banned_here(node, id(node) in within)]
    return sorted(found)


def narrow_arithmetic(functions: Mapping[str, ast.FunctionDef], kernel: str, pointers: Sequence[str]) -> list[str]:
    """Return where a kernel computes with bf16 values that it has not widened, as `line: what`.

    Args:
        functions: jitted functions that the kernel may call, by name, and itself.
        kernel: its name.
        pointers: its arguments that may point to bf16.
    """
    flow = _Flow(functions)
    flow.call(kernel, dict.fromkeys(pointers, POINTER))
    return sorted(flow.problems)


def jitted(source: str) -> dict[str, ast.FunctionDef]:
    """Return a file's jitted functions by name."""
    return {function.name: function for function in _jitted(ast.parse(source))}


def _jitted(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and any("jit" in ast.unparse(each) for each in node.decorator_list):
            yield node


def _banned_here(node: ast.AST, in_kernel: bool) -> Iterator[tuple[int, str]]:
    if _hides_language(node):
        yield node.lineno, "write `import triton.language as tl`, so that its uses can be seen"  # type: ignore[attr-defined]
    if isinstance(node, ast.Attribute) and node.attr in BANNED and (in_kernel or _root(node) in ("tl", "triton")):
        yield node.lineno, f"`{ast.unparse(node)}`: {BANNED[node.attr]}"
    if in_kernel and isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        yield node.lineno, f"`@`: {BANNED['dot']}"
    if in_kernel and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "cumsum":
        summed = node.args[0] if _root(node.func) == "tl" and node.args else node.func.value
        if not (_is_cast(summed) and _name(summed.args[0]) in INTEGERS):  # type: ignore[attr-defined]
            yield node.lineno, "`cumsum` of what is not visibly an integer: write `tl.cumsum(x.to(tl.int32), 0)`"


def _hides_language(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        names = {f"{node.module}.{each.name}" for each in node.names}
        return any(f"{name}.".startswith("triton.language.") for name in names)
    return isinstance(node, ast.Import) and any(
        f"{each.name}.".startswith("triton.language.") and (each.name, each.asname) != ("triton.language", "tl")
        for each in node.names
    )


def _root(node: ast.AST) -> str | None:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def _is_cast(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "to"
        and any(node.args)
    )


def _name(node: ast.AST) -> str | None:
    return node.attr if isinstance(node, ast.Attribute) else None


def _narrow(kind: Kind) -> bool:
    return kind == NARROW or (isinstance(kind, tuple) and any(map(_narrow, kind)))


def _join(kinds: Sequence[Kind]) -> Kind:
    for each in (NARROW, POINTER):
        if each in kinds:
            return each
    return next((kind for kind in kinds if kind is not None), None)


@dataclass
class _Flow:
    """Follows bf16 values from their loads to what is done with them, through calls of jitted functions."""

    functions: Mapping[str, ast.FunctionDef]
    problems: set[str] = field(default_factory=set)
    running: set[str] = field(default_factory=set)

    def call(self, name: str, arguments: Mapping[str, Kind]) -> Kind:
        if name in self.running:
            return None
        self.running.add(name)
        known: dict[str, Kind] = dict(arguments)
        returned: list[Kind] = []
        self.block(self.functions[name].body, known, returned)
        self.running.discard(name)
        return _join(returned)

    def block(self, body: Sequence[ast.stmt], known: dict[str, Kind], returned: list[Kind]) -> None:
        for statement in body:
            self.statement(statement, known, returned)

    def statement(self, node: ast.stmt, known: dict[str, Kind], returned: list[Kind]) -> None:
        if isinstance(node, ast.Assign):
            kind = self.kind(node.value, known)
            for target in node.targets:
                self.assign(target, kind, known)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self.assign(node.target, self.kind(node.value, known), known)
        elif isinstance(node, ast.AugAssign):
            self.compute(node, [self.kind(node.target, known), self.kind(node.value, known)])
        elif isinstance(node, ast.Return) and node.value is not None:
            returned.append(self.kind(node.value, known))
        elif isinstance(node, ast.Expr):
            self.kind(node.value, known)
        elif isinstance(node, ast.If | ast.For | ast.While):
            self.kind(node.iter if isinstance(node, ast.For) else node.test, known)
            # Twice, for what the end of a loop hands to its start.
            for body in (node.body, node.body, node.orelse):
                before = dict(known)
                self.block(body, known, returned)
                known.update({name: _join([known[name], kind]) for name, kind in before.items() if kind is not None})

    def assign(self, target: ast.expr, kind: Kind, known: dict[str, Kind]) -> None:
        if isinstance(target, ast.Name):
            known[target.id] = kind
        elif isinstance(target, ast.Tuple | ast.List):
            parts = kind if isinstance(kind, tuple) else (kind,) * len(target.elts)
            for each, part in zip(target.elts, parts, strict=True):
                self.assign(each, part, known)

    def compute(self, node: ast.AST, kinds: Sequence[Kind]) -> Kind:
        if any(map(_narrow, kinds)):
            self.problems.add(f"{node.lineno}: `{ast.unparse(node)}`")  # type: ignore[attr-defined]
            return None
        return POINTER if POINTER in kinds else None

    def kind(self, node: ast.AST, known: dict[str, Kind]) -> Kind:
        """Return what an expression is, having looked into all of it."""
        if isinstance(node, ast.Name):
            return known.get(node.id)
        if isinstance(node, ast.Call):
            return self.called(node, known)
        if isinstance(node, ast.Tuple | ast.List):
            return tuple(self.kind(each, known) for each in node.elts)
        if isinstance(node, ast.Attribute):
            value = self.kind(node.value, known)
            return value if node.attr == "T" else None
        kinds = [self.kind(each, known) for each in ast.iter_child_nodes(node)]
        if isinstance(node, ast.Subscript):
            return kinds[0]
        if isinstance(node, ast.IfExp):
            return _join(kinds[1:])
        if isinstance(node, ast.Compare):
            self.compute(node, kinds)
            return None
        return self.compute(node, kinds) if isinstance(node, ast.BinOp | ast.UnaryOp | ast.BoolOp) else _join(kinds)

    def called(self, node: ast.Call, known: dict[str, Kind]) -> Kind:
        arguments = [self.kind(each, known) for each in (*node.args, *(each.value for each in node.keywords))]
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
        method = isinstance(node.func, ast.Attribute) and _root(node.func) != "tl"
        if method:
            arguments.insert(0, self.kind(node.func.value, known))  # type: ignore[attr-defined]
        if name == "to" or name == "cast":
            return None if _name(node.args[0 if method else 1]) in WIDE else NARROW
        if name == "load":
            return NARROW if arguments[0] == POINTER else None
        if name in SHAPING or name == "make_tensor_descriptor":
            return _join(arguments)
        if name in STORING or name == "dot":
            return None
        if name in self.functions:
            return self.call(name, self.bind(node, known))
        self.compute(node, arguments)
        return None

    def bind(self, node: ast.Call, known: dict[str, Kind]) -> dict[str, Kind]:
        assert isinstance(node.func, ast.Name | ast.Attribute)
        function = self.functions[node.func.id if isinstance(node.func, ast.Name) else node.func.attr]
        names = [each.arg for each in function.args.args]
        bound = {name: self.kind(each, known) for name, each in zip(names, node.args, strict=False)}
        return bound | {each.arg: self.kind(each.value, known) for each in node.keywords if each.arg}
