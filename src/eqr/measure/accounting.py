"""What inference costs, from a config alone: segments, equivalent layers and floating-point operations.

NFE counts segments (outer iterations) over all starts of a puzzle, as the paper's appendix D.4 does; the
operations counted are those of the matrix products, two for each multiply-add.
"""

from eqr.model.config import ReasonerConfig


def flops_per_segment(config: ReasonerConfig) -> int:
    """Return the operations of one segment of one row, without the reading."""
    return config.layers_per_segment * flops_per_block(config)


def flops_per_block(config: ReasonerConfig) -> int:
    """Return the operations of one block on one row."""
    tokens, width = config.tokens, config.width
    hidden = config.hidden(width)
    channels = 3 * tokens * width * hidden + (2 * tokens * hidden if config.convolution else 0)
    return 2 * (config.mixer.multiply_adds(config) + channels)


def flops_per_reading(config: ReasonerConfig) -> int:
    """Return the operations of the two heads on one row."""
    scores = config.cells * (config.vocabulary if config.sites is None else config.symbols)
    return 2 * config.width * (scores + 2)


def equivalent_layers(config: ReasonerConfig, nfe: float) -> float:
    """Return the layer evaluations of `nfe` segments, NLE in the paper."""
    return nfe * config.layers_per_segment


def flops(config: ReasonerConfig, nfe: float) -> float:
    """Return the operations of `nfe` segments, each with its reading."""
    return nfe * (flops_per_segment(config) + flops_per_reading(config))
