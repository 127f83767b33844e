#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs the tests of the collective on a library built with sanitizers.
#
#   tests/sanitize.sh BUILD_DIR "asan ubsan"|tsan PYTEST [ARGUMENT...]
#
# The interpreter is not instrumented, so the sanitizers' runtimes are preloaded. Reports go to files:
# a process that was started by a test, or one that a test expects to fail, must not hide one. Injected
# faults are in a library of their own, which is not instrumented: what a sanitizer says of it is not true.
set -u
build=$1 sanitizers=$2 pytest=$3
shift 3
reports=$build/reports
rm -rf "$reports"
mkdir -p "$reports"
preload=
for name in $sanitizers; do preload="$preload $(${CXX:-g++} -print-file-name=lib$name.so)"; done

export ASAN_OPTIONS="detect_leaks=0:verify_asan_link_order=0:log_path=$reports/asan"
export UBSAN_OPTIONS="print_stacktrace=1:log_path=$reports/ubsan"
export TSAN_OPTIONS="log_path=$reports/tsan"
RDNAAR_LIBRARY=$(realpath "$build")/libhiprdnaar_host.so LD_PRELOAD="$preload" \
    "$pytest" -q -p no:cacheprovider tests/collective --ignore=tests/collective/test_faults.py "$@"
status=$?
if [ -n "$(ls "$reports")" ]; then
    cat "$reports"/*
    echo "sanitizer reports: see above, and $reports"
    exit 1
fi
exit $status
