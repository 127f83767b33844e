# SPDX-License-Identifier: Apache-2.0
"""In vLLM and its forks: a plugin for the former, a class for the slot of the latter.

`register` is what the entry point `vllm.general_plugins` names; see docs/serving.md.
"""

from .plugin import register

__all__ = ["register"]
