# SPDX-License-Identifier: Apache-2.0
"""Benchmarks: all-reduces side by side, every shape verified.

providers.py says what runs, grounds.py where the data lies and whose clock counts, measure.py how
samples are taken and checked.
"""
