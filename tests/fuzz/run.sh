#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs fuzz harnesses for some seconds each, from fresh seeds, and counts the inputs that were run.
#
#   tests/fuzz/run.sh BUILD_DIR SECONDS HARNESS...
set -u
build=$1 seconds=$2
shift 2
rm -rf "$build/corpus"
mkdir -p "$build/found"
"$build/seeds" "$build/corpus" || exit 1
for name in "$@"; do
    log=$build/$name.log
    "$build/${name}_fuzz" -max_total_time="$seconds" -max_len=2048 -rss_limit_mb=1024 -timeout=20 \
        -print_final_stats=1 -artifact_prefix="$build/found/$name-" "$build/corpus/$name" \
        >"$log" 2>&1
    status=$?
    executed=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    if [ $status -ne 0 ]; then
        tail -40 "$log"
        echo "fuzz $name: FAILED after ${executed:-?} inputs; see $log and $build/found"
        exit 1
    fi
    echo "fuzz $name: ${executed} inputs in $seconds s, no failure"
done
