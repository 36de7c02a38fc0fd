"""The draft block of the Markov head (Eq. 4, 5), sampled from left to right; the logits are never written down.

At position ``k`` the logits are ``U[:, k] + W1[x_{k-1}] W2``. Two kernels a position, no synchronisation:

1. `markov_scan` walks the vocabulary in blocks of `BLOCK` tokens and keeps two numbers a row and block: the greatest
   logit and the sum of ``exp((logit - greatest) / temperature)``. For Gumbel-max also the best noisy token.
2. `markov_pick` finds, one program a row, the block that the uniform falls in, computes its logits again and picks.
   Its logits may differ from phase 1's in the last bits; whatever they are, it picks a token of that block.

What is summed in one go is always a block, a group of `BLOCK` blocks, or the groups, whatever the tiles of a launch
are: tiles only say which program does which blocks, so they change no bit of the result. Prefix sums are monotone,
since each is the same tree of additions with more of its leaves set to zero; a parallel scan promises no such thing.

Tokens less likely than ``exp(-60)`` times the likeliest (``exp(-60.7)`` in a block with likelier ones) have probability
0 for the sampler, which in float32 they nearly have anyway: together they weigh less than 1e-20. So the ``p_draft`` of
a sampled token is never subnormal.

Rows without a law give token -1, ``p_draft`` 0 and ``lse`` NaN, and leave other rows alone: a NaN or +inf among the
logits, no logit above -inf, a previous token outside the vocabulary (as -1 is: the rest of the block follows), a
temperature that is neither 0 nor within [1e-6, 1e6], a uniform outside [0, 1). These are values on the device, which
cannot be looked at without waiting for it; verification rejects such ids.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton

from .common import FLOATS, IDS, KernelError, check_tensor, check_whole, interpreting
from .common import tiles as tiles_of
from .markov_kernels import BLOCK, GREEDY, GUMBEL, INVERSE_CDF, markov_pick, markov_scan
from .registry import Configuration, Kernel

METHODS = ("inverse_cdf", "gumbel", "greedy")
"""In the order of the kernels' numbers."""

# Tokens of a block, blocks of a group, groups: phase 2 holds a number for each block of a row at once, 64 by 64.
LARGEST_VOCABULARY = BLOCK.value**3

PICK_CHUNK = 64
"""Of the rank, multiplied in one go in phase 2."""


@dataclass(frozen=True)
class DraftBlock:
    """Drafted tokens.

    Attributes:
        tokens: ``[R, g]`` int32; -1 in rows without a law.
        p_draft: ``[R, g]`` float32, probability of each token under the law it was drawn from; 1 where greedy.
        lse: ``[R, g]`` float32, log of the sum of ``exp(logit / temperature)``, in nats; temperature 1 where greedy.
    """

    tokens: torch.Tensor
    p_draft: torch.Tensor
    lse: torch.Tensor

    @classmethod
    def allocate(cls, rows: int, gamma: int, device: torch.device | str) -> DraftBlock:
        """Return uninitialised outputs."""
        floats = [torch.empty(rows, gamma, dtype=torch.float32, device=device) for _ in range(2)]
        return cls(torch.empty(rows, gamma, dtype=torch.int32, device=device), *floats)


@dataclass(frozen=True)
class MarkovWorkspace:
    """What phase 1 leaves for phase 2: numbers a row and block of the vocabulary, ``[R, blocks]``.

    Attributes:
        maxima: float32, greatest logit of a block.
        sums: float32, of ``exp((logit - greatest) / temperature)``.
        best: float32, greatest noisy logit; empty unless Gumbel.
        best_tokens: int32, where.
    """

    maxima: torch.Tensor
    sums: torch.Tensor
    best: torch.Tensor
    best_tokens: torch.Tensor

    @classmethod
    def allocate(
        cls, rows: int, vocabulary: int, device: torch.device | str, method: str = "inverse_cdf"
    ) -> MarkovWorkspace:
        """Return an uninitialised workspace; one of ``gumbel`` serves the other methods too."""
        blocks = tiles_of(vocabulary, BLOCK.value)
        # Without columns where nothing is kept, and still tensors, since a kernel's pointers need them.
        noisy = blocks if method == "gumbel" else 0
        sizes = ((blocks, torch.float32), (blocks, torch.float32), (noisy, torch.float32), (noisy, torch.int32))
        return cls(*(torch.empty(rows, size, dtype=dtype, device=device) for size, dtype in sizes))


@dataclass(frozen=True)
class Tiles:
    """How phase 1 is split into programs; changes no result.

    Attributes:
        rows: of a program, a power of two of at least 16.
        steps: blocks of the vocabulary that a program does one after the other.
        num_warps: 4 keeps one order of additions; see `markov_scan`.
        num_stages: blocks of W2 in flight.
    """

    rows: int
    steps: int
    num_warps: int = 4
    num_stages: int = 2

    def __post_init__(self) -> None:
        if self.rows < 16 or self.rows & (self.rows - 1):
            raise KernelError(f"`rows` of tiles must be a power of two of at least 16, got {self.rows}")
        if self.steps < 1:
            raise KernelError(f"`steps` of tiles must be at least 1, got {self.steps}")


def default_tiles(rows: int, dtype: torch.dtype, method: str = "inverse_cdf") -> Tiles:
    """Return tiles for a number of rows.

    A program keeps what multiplies W2 for its rows on chip while W2 streams by. More rows to a program mean less
    traffic from the cache, up to what registers hold: noise takes many, and float32 has no tensor cores to spare them.
    """
    if rows <= 16 or dtype == torch.float32:
        return Tiles(16, 4)
    return Tiles(32, 4) if rows <= 32 or method == "gumbel" else Tiles(64, 8)


@dataclass(frozen=True)
class Sampler:
    """A checked block, sampled one position after the other by whichever head; made by `sampler`."""

    U: torch.Tensor
    W2T: torch.Tensor
    x0: torch.Tensor
    temperature: torch.Tensor
    uniforms: torch.Tensor
    seed: torch.Tensor
    method: int
    out: DraftBlock
    workspace: MarkovWorkspace
    tiles: Tiles

    def previous(self, position: int) -> torch.Tensor:
        """Return the tokens ``[R]`` before a position."""
        return self.out.tokens[:, position - 1] if position else self.x0

    def sample(self, position: int, source: torch.Tensor, gather: bool) -> None:
        """Launch both phases of one position.

        Args:
            position: from 0; those before it have been sampled.
            source: what multiplies W2: ``W1 [V, r]`` where ``gather``, else hidden states ``[R, r]``.
            gather: whether rows of ``source`` are named by the previous tokens.
        """
        rows, _, vocabulary = self.U.shape
        blocks, rank = tiles_of(vocabulary, BLOCK.value), self.W2T.shape[1]
        # Views, not copies: nothing is allocated within a step.
        base, previous, space = self.U[:, position], self.previous(position), self.workspace
        shared = (
            base, base.stride(0), source, source.stride(0), self.W2T, self.W2T.stride(0), previous, previous.stride(0),
            self.temperature,
        )  # fmt: skip
        kept = (space.maxima, space.sums, space.best, space.best_tokens)
        constants = {"RANK": rank, "METHOD": self.method, "GATHER": gather}
        grid = (tiles_of(rows, self.tiles.rows), tiles_of(blocks, self.tiles.steps))
        # Both phases go to one stream, which is all the order they need; so does the next position, which reads this
        # token.
        markov_scan[grid](
            *shared, *kept, self.seed, position, rows, vocabulary, blocks, **constants,
            CHUNK=chunk(rank, self.W2T.dtype), ROWS=self.tiles.rows, STEPS=self.tiles.steps,
            INTERPRETING=interpreting(), num_warps=self.tiles.num_warps, num_stages=self.tiles.num_stages,
        )  # fmt: skip
        outputs = [each[:, position] for each in (self.out.tokens, self.out.p_draft, self.out.lse)]
        uniforms = self.uniforms[:, position]
        markov_pick[(rows,)](
            *shared, uniforms, uniforms.stride(0), *kept, *outputs, outputs[0].stride(0), vocabulary, blocks,
            # Always 4 warps, for they are part of the order of additions in a row.
            **constants, CHUNK=min(PICK_CHUNK, chunk(rank, self.W2T.dtype)), GROUPS=groups(blocks), num_warps=4,
            num_stages=3,
        )  # fmt: skip


def chunk(rank: int, dtype: torch.dtype) -> int:
    """Return how much of the rank is multiplied in one go: what fits on chip, in registers for float32."""
    return min(32 if dtype == torch.float32 else 256, max(16, int(triton.next_power_of_2(rank))))


def groups(blocks: int) -> int:
    """Return how many groups, a power of two, hold a number of blocks."""
    return int(triton.next_power_of_2(tiles_of(blocks, BLOCK.value)))


def sampler(
    U: torch.Tensor,
    W2T: torch.Tensor,
    x0: torch.Tensor,
    temperature: torch.Tensor | None,
    uniforms: torch.Tensor | None,
    method: str = "inverse_cdf",
    *,
    seed: torch.Tensor | int | None = None,
    tiles: Tiles | None = None,
    out: DraftBlock | None = None,
    workspace: MarkovWorkspace | None = None,
) -> Sampler:
    """Return a checked block, for `draft_block` or another head; arguments as there.

    Raises:
        KernelError: naming the argument, the rule, what was given and the remedy.
    """
    check_tensor("U", U, (None, None, None), FLOATS)
    (rows, gamma, vocabulary), device = U.shape, U.device
    check_tensor("W2T", W2T, (vocabulary, None), FLOATS, device)
    check_tensor("x0", x0, (rows,), IDS, device)
    _check_sizes(gamma, vocabulary, W2T.shape[1], device)
    if method not in METHODS:
        raise KernelError(f"`method` must be one of {', '.join(METHODS)}, got {method!r}")
    out = out or DraftBlock.allocate(rows, gamma, device)
    workspace = workspace or MarkovWorkspace.allocate(rows, vocabulary, device, method)
    _check_out(out, rows, gamma, device)
    _check_workspace(workspace, rows, vocabulary, method, device)
    return Sampler(
        U=U,
        W2T=W2T,
        x0=x0,
        # What a method doesn't read still needs a tensor of its type: outputs stand in, and are overwritten unread.
        temperature=out.p_draft if method == "greedy" else _given("temperature", temperature, (rows,), device, method),
        uniforms=_given("uniforms", uniforms, (rows, gamma), device, method)
        if method == "inverse_cdf"
        else out.p_draft,
        seed=_seed(seed, device) if method == "gumbel" else out.tokens,
        method=METHODS.index(method),
        out=out,
        workspace=workspace,
        tiles=tiles or default_tiles(rows, W2T.dtype, method),
    )


def draft_block(
    U: torch.Tensor,
    W1: torch.Tensor,
    W2T: torch.Tensor,
    x0: torch.Tensor,
    temperature: torch.Tensor | None,
    uniforms: torch.Tensor | None,
    method: str = "inverse_cdf",
    *,
    seed: torch.Tensor | int | None = None,
    tiles: Tiles | None = None,
    out: DraftBlock | None = None,
    workspace: MarkovWorkspace | None = None,
) -> DraftBlock:
    """Draft a block with the Markov head: ``softmax((U[:, k] + W1[x_{k-1}] W2) / temperature)``, Eq. 4 and 5.

    Args:
        U: base logits ``[R, g, V]``, float32, float16 or bfloat16; -inf rules a token out. V up to 262,144.
        W1: ``[V, r]``, of the type of ``W2T``.
        W2T: W2 transposed, ``[V, r]``: the weights of a token lie side by side.
        x0: anchor tokens ``[R]``, int32 or int64.
        temperature: ``[R]`` float32; 0 is greedy (the leftmost of the greatest logits). Not used by ``greedy``.
        uniforms: ``[R, g]`` float32 within [0, 1), for ``inverse_cdf`` only: the token is the first whose cumulative
            probability, by token id, is above it. Draw them apart from those of verification.
        method: ``inverse_cdf``; ``gumbel`` (noise keyed by seed, row, position and token; ties go left); ``greedy``.
        seed: for ``gumbel`` only; int64 ``[1]`` on the device where launches are captured, since an int is copied.
        tiles: of phase 1; changes no result.
        out: outputs to write to.
        workspace: to use; see `MarkovWorkspace.allocate`.

    Returns:
        Tokens, their probabilities and the rows' log-sum-exp; see the top of this file for rows without a law.

    Raises:
        KernelError: naming the argument, the rule, what was given and the remedy.
    """
    block = sampler(
        U, W2T, x0, temperature, uniforms, method, seed=seed, tiles=tiles, out=out, workspace=workspace
    )  # fmt: skip
    check_tensor("W1", W1, W2T.shape, (W2T.dtype,), U.device)
    # Left to right by its nature: the bias of a position needs the token before it (Eq. 4).
    for position in range(U.shape[1] if len(U) else 0):
        block.sample(position, W1, gather=True)
    return block.out


def _check_sizes(gamma: int, vocabulary: int, rank: int, device: torch.device) -> None:
    if not gamma:
        raise KernelError("`U` must hold at least one position, got none; drafting nothing needs no call")
    if not 1 <= vocabulary <= LARGEST_VOCABULARY:
        raise KernelError(f"the vocabulary must hold 1 to {LARGEST_VOCABULARY} tokens, got {vocabulary}; split `U`")
    if not rank:
        raise KernelError("the rank of `W2T` must be at least 1, got 0; without a head, sample from `U` itself")
    if device.type == "cpu" and not interpreting():
        raise KernelError("`U` must be on a GPU, got cpu; move it there, or set TRITON_INTERPRET=1 before the import")


_REMEDY = "use its class's `allocate`"


def _check_out(out: DraftBlock, rows: int, gamma: int, device: torch.device) -> None:
    kinds = {"tokens": torch.int32, "p_draft": torch.float32, "lse": torch.float32}
    for name, dtype in kinds.items():
        check_whole(f"out.{name}", getattr(out, name), (rows, gamma), dtype, device, _REMEDY)


def _check_workspace(
    workspace: MarkovWorkspace, rows: int, vocabulary: int, method: str, device: torch.device
) -> None:  # fmt: skip
    kinds = {"maxima": torch.float32, "sums": torch.float32}
    if method == "gumbel":
        kinds |= {"best": torch.float32, "best_tokens": torch.int32}
    for name, dtype in kinds.items():
        shape = (rows, tiles_of(vocabulary, BLOCK.value))
        check_whole(f"workspace.{name}", getattr(workspace, name), shape, dtype, device, _REMEDY)


def _given(
    name: str, tensor: torch.Tensor | None, shape: tuple[int, ...], device: torch.device, method: str
) -> torch.Tensor:
    if tensor is None:
        raise KernelError(f"`{name}` must be given for method {method}, got None")
    return check_tensor(name, tensor, shape, (torch.float32,), device)


def _seed(seed: torch.Tensor | int | None, device: torch.device) -> torch.Tensor:
    if seed is None:
        raise KernelError("`seed` must be given for method gumbel, got None; give an int or an int64 tensor of one")
    if isinstance(seed, int):
        # A copy from the host, which has no place in a captured graph: there the seed comes as a tensor.
        return torch.tensor([seed], dtype=torch.int64, device=device)
    return check_tensor("seed", seed, (1,), (torch.int64,), device)


def _scan_configuration(dtype: str, method: int, shape: Tiles, gather: bool = True) -> Configuration:
    """Return phase 1 at rank 256, V 129,280 and blocks of 7."""
    # Arguments are what changes from step to step; all else is compiled in, as `Sampler.sample` launches it.
    signature = {
        "U": f"*{dtype}", "source": f"*{dtype}", "W2T": f"*{dtype}", "previous": "*i32", "previous_stride": "i32",
        "temperature": "*fp32", "maxima": "*fp32", "sums": "*fp32", "best": "*fp32", "best_tokens": "*i32",
        "seed": "*i64", "position": "i32", "R": "i32", "blocks": "i32",
    }  # fmt: skip
    constants = {
        "u_stride": 7 * 129280, "source_stride": 256, "w_stride": 256, "V": 129280,
        "RANK": 256, "CHUNK": 32 if dtype == "fp32" else 256, "METHOD": method, "GATHER": gather,
        "ROWS": shape.rows, "STEPS": shape.steps, "INTERPRETING": False,
    }  # fmt: skip
    label = f"{dtype} {METHODS[method]} {'W1' if gather else 'hidden'} rows {shape.rows} steps {shape.steps}"
    return Configuration(
        # `previous` is a column of the tokens drafted so far.
        label, signature, constants, shape.num_warps, shape.num_stages, dtype != "fp32", unaligned=("previous",)
    )  # fmt: skip


def _pick_configuration(dtype: str, method: int, gather: bool = True) -> Configuration:
    """Return phase 2 of the same."""
    scan = _scan_configuration(dtype, method, Tiles(16, 1), gather)
    left_out = ("seed", "position", "R")
    signature = {name: kind for name, kind in scan.signature.items() if name not in left_out}
    signature |= {
        "uniforms": "*fp32", "uniform_stride": "i32", "tokens_out": "*i32", "p_out": "*fp32", "lse_out": "*fp32",
        "out_stride": "i32",
    }  # fmt: skip
    kept = ("u_stride", "source_stride", "w_stride", "V", "RANK", "METHOD", "GATHER")
    constants = {name: scan.constants[name] for name in kept}
    constants |= {"CHUNK": min(PICK_CHUNK, scan.constants["CHUNK"]), "GROUPS": groups(tiles_of(129280, BLOCK.value))}
    label = f"{dtype} {METHODS[method]} {'W1' if gather else 'hidden'}"
    # Columns of [R, g] tensors: the second position begins 4 bytes further on.
    views = ("previous", "uniforms", "tokens_out", "p_out", "lse_out")
    return Configuration(label, signature, constants, 4, 3, unaligned=views)


KERNELS = (
    Kernel(
        "markov",
        "markov_scan",
        markov_scan,
        (
            _scan_configuration("bf16", INVERSE_CDF.value, default_tiles(1, torch.bfloat16)),
            _scan_configuration("bf16", INVERSE_CDF.value, default_tiles(32, torch.bfloat16)),
            _scan_configuration("bf16", INVERSE_CDF.value, default_tiles(256, torch.bfloat16)),
            _scan_configuration("bf16", INVERSE_CDF.value, default_tiles(256, torch.bfloat16), gather=False),
            _scan_configuration("bf16", GUMBEL.value, default_tiles(256, torch.bfloat16, "gumbel")),
            _scan_configuration("bf16", GREEDY.value, default_tiles(256, torch.bfloat16)),
            _scan_configuration("fp16", INVERSE_CDF.value, default_tiles(256, torch.float16)),
            _scan_configuration("fp32", INVERSE_CDF.value, default_tiles(256, torch.float32)),
        ),
    ),
    Kernel(
        "markov",
        "markov_pick",
        markov_pick,
        (
            _pick_configuration("bf16", INVERSE_CDF.value),
            _pick_configuration("bf16", INVERSE_CDF.value, gather=False),
            _pick_configuration("bf16", GUMBEL.value),
            _pick_configuration("bf16", GREEDY.value),
            _pick_configuration("fp16", INVERSE_CDF.value),
            _pick_configuration("fp32", INVERSE_CDF.value),
        ),
    ),
)
