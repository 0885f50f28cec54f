"""Models: what the user names is read, checked and imported into the compiler.

Reading and checking do not need TVM; `kintune.models.importer` and the modules that convert graphs do.
"""

from kintune.models.model import ImportedModel
from kintune.models.ref import parse_ref

__all__ = ["ImportedModel", "parse_ref"]
