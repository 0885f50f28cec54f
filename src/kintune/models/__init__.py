"""Models: what a person names, read and checked, and imported into the compiler.

Only `kintune.models.importer` and the modules it imports (`import_onnx`, `import_torch`, `signature`) need TVM.
"""

from kintune.models.model import ImportedModel
from kintune.models.ref import parse_ref

__all__ = ["ImportedModel", "parse_ref"]
