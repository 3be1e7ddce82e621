"""A halting rule of your own: stop when even the least certain cell is certain enough.

eqr --load examples/halting_rule.py solve sudoku-4x4 ".2.. ...3 ...1 4..." --halt confident:0.99
eqr --load examples/halting_rule.py solve sudoku-4x4 ".2.. ...3 ...1 4..." --halt confident+stable:1
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field
from torch import Tensor

from eqr.dynamics.halting import HaltingRule, Memory
from eqr.model.state import Reading
from eqr.registry import register


@register
class Confident(HaltingRule):
    """Halt when every cell gives its symbol at least a probability of `share`."""

    numbers: ClassVar[tuple[str, ...]] = ("share",)  # what may follow the word: confident:0.99
    kind: Literal["confident"] = "confident"
    share: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.9

    def update(self, memory: Memory, reading: Reading, depths: Tensor) -> tuple[Memory, Tensor]:
        """Nothing is remembered from segment to segment."""
        surest = reading.logits.float().softmax(dim=-1).amax(dim=-1)
        return memory, surest.amin(dim=1) >= self.share
