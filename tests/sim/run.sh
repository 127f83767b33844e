#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs the tests of the simulator in two halves beside each other, since each uses one core most of
# the time, and prints both reports, that with the table of mutants last.
#
#   tests/sim/run.sh PYTEST
set -u
pytest="$1 -q -p no:cacheprovider"
report=$(mktemp)
trap 'rm -f "$report"' EXIT
$pytest tests/sim --ignore=tests/sim/test_collective.py >"$report" 2>&1 &
core=$!
$pytest tests/sim/test_collective.py
status=$?
wait $core || status=$?
cat "$report"
exit $status
