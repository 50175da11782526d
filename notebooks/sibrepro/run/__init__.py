"""The commands of `sib`: run, sweep and publish notebooks, verify published runs, and explain numbers."""

import sys

# nbformat imports jsonschema, which spends seconds on a grammar of IRIs if this package is installed. No notebook has
# an IRI to check.
sys.modules.setdefault("rfc3987_syntax", None)
