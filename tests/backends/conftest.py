"""What the tests of kernels share."""

from collections.abc import Iterator

import pytest

from eqr.backends.cpu.operators import MEANS
from eqr.model.definitions import computed_by


@pytest.fixture
def kernels_on() -> Iterator[None]:
    """Compute definitions by the cpu's kernels, as the cpu backend does."""
    with computed_by(MEANS):
        yield
