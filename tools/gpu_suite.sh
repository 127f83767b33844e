#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Everything that needs GPUs, in one run with one log: builds the library, runs the tests of the
# collective on it, the demo, the self test, the probe, and NVIDIA's checkers where they are.
#
#   tools/gpu_suite.sh cuda|hip LOG_DIR
#
# Ends with 0 only if every step did. Python needs numpy, click, ml_dtypes, pytest and hypothesis.
set -u
backend=${1:?cuda or hip} out=${2:?folder for the logs}
cd "$(dirname "$0")/.."
mkdir -p "$out"
export PYTHONPATH=$PWD PYTHONUNBUFFERED=1
# Ranks that are threads of one process need streams that run beside each other, and kernels that are
# loaded before the first of them waits for a peer.
export CUDA_DEVICE_MAX_CONNECTIONS=32 CUDA_MODULE_LOADING=EAGER GPU_MAX_HW_QUEUES=16
python=${PYTHON:-python3}
failed=()

step() {  # step NAME SECONDS COMMAND...: a bounded step with a log of its own
    local name=$1 seconds=$2 start=$SECONDS
    shift 2
    if timeout -k 10 "$seconds" "$@" > "$out/$name.log" 2>&1; then
        echo "ok      $name ($((SECONDS - start)) s)"
    else
        echo "FAILED  $name (status $?, $((SECONDS - start)) s), the end of its log:"
        tail -n 25 "$out/$name.log" | cut -c1-400
        failed+=("$name")
    fi
}

if [ "$backend" = cuda ]; then
    gpus=$(nvidia-smi -L | grep -c '^GPU')
    nvidia-smi --query-gpu=name,driver_version,pci.bus_id --format=csv,noheader
else
    gpus=$(find /sys/class/kfd/kfd/topology/nodes -name properties -exec grep -l '^simd_count [1-9]' {} + | wc -l)
fi
echo "$gpus GPUs, $(date -u +%F)"
tests="env PYRDNAAR_TEST_BACKEND=$backend $python -m pytest -q -p no:cacheprovider --durations=10 --maxfail=6"
# On one GPU two processes take turns of milliseconds: threads share it at the same time.
if [ "$gpus" -gt 1 ]; then
    ranks="-n $gpus" together=""
else
    ranks="-n 2" together="--threads"
    export RDNAAR_SHARE_DEVICE=1
fi

step build 400 make -j8 "$backend"
step build-faults 400 make -j8 "$backend" FAULTS=1
step info 60 $python -m pyrdnaar info
# Ranks as threads, dealt over the GPUs there are; on one GPU they share it.
step tests 420 $tests tests/collective
PYRDNAAR_TEST_TRANSPORT=host step transport-host 200 $tests tests/collective -k 'operations or numbers or order'
if [ "$gpus" -gt 1 ] && $python -c 'import torch' 2> /dev/null; then
    step torch 300 $python -m pytest -q -p no:cacheprovider tests/torch/test_gpus.py
fi
step demo 120 $python -m pyrdnaar demo $ranks --backend "$backend"
step selftest 120 $python -m pyrdnaar selftest $ranks --backend "$backend"
step probe 120 $python -m pyrdnaar probe $ranks $together --backend "$backend"
if [ "$gpus" -gt 1 ]; then
    step latency 150 $python tools/gpu_latency.py "$backend" "$gpus" bf16
fi
if command -v compute-sanitizer > /dev/null; then
    # Asking whether a pointer is known is an error of the API when it is not.
    step memcheck 200 compute-sanitizer --tool memcheck --report-api-errors no --error-exitcode 9 \
        $tests tests/collective -k 'test_operations and (2 or 3)'
    # This tool runs the kernels of a process one after the other: so ranks are processes.
    step racecheck 200 compute-sanitizer --tool racecheck --target-processes all --error-exitcode 9 \
        $python -m pyrdnaar selftest -n 2 --backend "$backend" -e 8K
fi

for log in info demo selftest probe latency; do
    echo "---- $log"
    cat "$out/$log.log" 2> /dev/null
done
if [ ${#failed[@]} -gt 0 ]; then
    echo "failed: ${failed[*]}"
    exit 1
fi
echo "all steps passed"
