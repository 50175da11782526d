"""Running notebooks: one, all of them, or one over a grid of parameters."""

import sys

# jsonschema, which nbformat imports, would build a grammar of IRIs if it can. No notebook has any; it takes seconds.
sys.modules.setdefault("rfc3987_syntax", None)
