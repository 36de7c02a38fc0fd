#!/usr/bin/env bash
# Everything that needs a GPU, in one go of under 8 minutes on one H200: the compile gate, correctness and times of the
# kernels with the ceilings of the device, step-cost profiles, the three predictions of docs/kernels.md.
#
#   benchmarks/gpu.sh [OUT]         measure; results in OUT (default: runs/gpu), raw, with device and versions
#   benchmarks/gpu.sh --dry [OUT]   every step without a GPU: what can be judged is judged, no kernel is timed
#
# A step that fails or runs out of time does not stop the others; the exit code is 1 if any did. PYTHON names an
# interpreter in which specsched[kernels] is installed.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

dry=""
if [ "${1:-}" = "--dry" ]; then
    dry=1
    shift
fi
out="${1:-runs/gpu}"
python="${PYTHON:-python3}"
kernels=("$python" -c 'from specsched.experiments.cli.main import main; main()' kernels)
if [ -e "$out" ]; then
    echo "error: $out exists; name another folder" >&2
    exit 2
fi
mkdir -p "$out" || exit 2
printf 'step\texit_code\tseconds\n' >"$out/steps.tsv"
failed=0

trap 'echo "stopped; what was measured is in $out" >&2; exit 130' INT TERM

# step NAME SECONDS COMMAND..: run a command for at most so many seconds; OUT/NAME.txt has its output as well.
step() {
    local name="$1" limit="$2" began="$SECONDS" code
    shift 2
    echo
    echo "--- $name (at $began s, at most $limit s)"
    timeout --foreground --kill-after=10 "$limit" "$@" 2>&1 | tee "$out/$name.txt"
    code="${PIPESTATUS[0]}"
    printf '%s\t%s\t%s\n' "$name" "$code" "$((SECONDS - began))" >>"$out/steps.tsv"
    if [ "$code" != 0 ]; then
        echo "step $name: exit code $code"
    fi
    return "$code"
}

# spend NAME MOST COMMAND..: a step of at most MOST seconds, or of those that are left of 460.
spend() {
    local name="$1" most="$2" left=$((460 - SECONDS))
    shift 2
    if [ "$left" -lt 20 ]; then
        echo "step $name: left out, $left s are left"
        printf '%s\tleft out\t0\n' "$name" >>"$out/steps.tsv"
        return 1
    fi
    step "$name" "$((left < most ? left : most))" "$@"
}

if [ -z "$dry" ]; then
    step device 20 nvidia-smi -q || failed=1
    step gate 60 "${kernels[@]}" compile --arch sm_90 || failed=1
    step small 60 "${kernels[@]}" bench --shapes ci --providers ours,torch -o "$out/small" || failed=1
    step bench 110 "${kernels[@]}" bench --shapes real --providers ours,torch,flashinfer,flash-attn -o "$out/bench" ||
        failed=1
    # A profile that is cut off leaves its samples. The others are quick ones: fewer sizes, fewer runs.
    spend profile-dense-8b 200 "${kernels[@]}" profile -q --model dense-8b -o "$out/dense-8b.json" || failed=1
    for model in moe-30b-a3b-like dense-70b-tp-shard; do
        spend "profile-$model" 60 "${kernels[@]}" profile -q --quick --model "$model" -o "$out/$model.json" || failed=1
    done
    # Compiling takes most of it, so it is apart from what the predictions need.
    spend compiled 90 "${kernels[@]}" bench --shapes real --providers compile -o "$out/compiled" || failed=1
else
    step gate 120 "${kernels[@]}" compile --arch sm_90 --first 1 --op admit || failed=1
    step small 240 "${kernels[@]}" bench --dry --shapes ci -o "$out/small" || failed=1
    step bench 240 "${kernels[@]}" bench --dry --shapes real --providers ours,compile -o "$out/bench" || failed=1
    # A toy on this CPU, for the way through the profiler. Exit code 1, passes that disagree, is an answer here too.
    OMP_NUM_THREADS=1 step profile-tiny-cpu 240 "${kernels[@]}" profile -q --quick --limit 64 --model tiny-cpu \
        -o "$out/tiny-cpu.json"
    [ "$?" -gt 1 ] && failed=1
fi
step predictions 20 "$python" benchmarks/gpu_predictions.py "$out/bench" || failed=1
echo
cat "$out/steps.tsv"
echo "results: $out ($SECONDS s)"
exit "$failed"
