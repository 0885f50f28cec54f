import pytest

from kintune.core.candidate import Candidate, Choice, Sketch, Tile
from kintune.search.access_patterns import AccessPatterns, OperandAccess

ROWS, COLUMNS, DEPTH = 64, 256, 128


def a_product() -> AccessPatterns:
    """A matrix product: a[64, 128] @ b[128, 256], b packed."""
    return AccessPatterns(
        block="product",
        extents=(ROWS, COLUMNS, DEPTH),
        reduces=(False, False, True),
        accesses=(
            OperandAccess((ROWS, DEPTH), ((1, 0, 0), (0, 0, 1)), 4),
            OperandAccess((DEPTH, COLUMNS), ((0, 0, 1), (0, 1, 0)), 4, weight=True),
            OperandAccess((ROWS, COLUMNS), ((1, 0, 0), (0, 1, 0)), 4, written=True),
        ),
    )


def a_sketch() -> Sketch:
    """The sketch that tiles it at all levels."""
    axes = (
        Tile(ROWS, 4, 64, "s0:i"),
        Tile(COLUMNS, 4, 64, "s1:j"),
        Tile(DEPTH, 2, 64, "r2:k"),
        Choice((0, 16, 64, 512), (0.25,) * 4),
    )
    return Sketch("product", "tiled", b"", axes)


@pytest.fixture
def product() -> AccessPatterns:
    return a_product()


@pytest.fixture
def sketch() -> Sketch:
    return a_sketch()


def tiled(rows: tuple[int, ...], columns: tuple[int, ...], depth: tuple[int, ...], unroll: int = 2) -> Candidate:
    return Candidate("product", "tiled", (rows, columns, depth, (unroll,)))
