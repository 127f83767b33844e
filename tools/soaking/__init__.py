# SPDX-License-Identifier: Apache-2.0
"""The parts of tools/soak.py: one file for each kind of load."""
