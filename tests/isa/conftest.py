# SPDX-License-Identifier: Apache-2.0
"""The tools are scripts, not a package: here they are imported as modules."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "tools"))
