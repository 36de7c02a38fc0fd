"""The public names of the kernel lab: what a serving engine calls, and what the calls take and return.

Every other module of this room may move. Importing this one needs torch and Triton (extra ``kernels``).
"""

from __future__ import annotations

from .admit import Admission, Layout, admit, layout
from .attention import Attention, AttentionTiles, AttentionWorkspace, varlen_attention
from .common import KernelError
from .confidence import Confidence, confidence, survival
from .markov import DraftBlock, MarkovWorkspace, Tiles, draft_block
from .rnn import RnnStep, RnnWeights, rnn_draft_block, rnn_step
from .verify import Verified, VerifyWorkspace, verify_chain

__all__ = [
    "Admission",
    "Attention",
    "AttentionTiles",
    "AttentionWorkspace",
    "Confidence",
    "DraftBlock",
    "KernelError",
    "Layout",
    "MarkovWorkspace",
    "RnnStep",
    "RnnWeights",
    "Tiles",
    "Verified",
    "VerifyWorkspace",
    "admit",
    "confidence",
    "draft_block",
    "layout",
    "rnn_draft_block",
    "rnn_step",
    "survival",
    "varlen_attention",
    "verify_chain",
]
