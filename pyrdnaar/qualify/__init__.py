# SPDX-License-Identifier: Apache-2.0
"""Checks of a running OpenAI-compatible server, before and after its all-reduce is switched.

    transport   HTTP, bounded in time and size
    sse, chat   from bytes to events to replies, strictly
    prompts     what is asked, made from a seed
    work        requests at the same time, and what went wrong with them
    greedy, tools, needle, speed    the checks
    baseline    the report of an earlier run
    report      all checks, one report

Nothing here loads a library or looks at a device: only the server's answers count.
"""
