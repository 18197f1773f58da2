#!/usr/bin/env bash
# ./lockstep fuzz: policy_fuzz under libFuzzer, ASan and UBSan. Installs clang if it
# is missing; builds apart from the other commands, so that their build stays.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
out=$here/out/fuzz
cache=${XDG_CACHE_HOME:-$HOME/.cache}/lockstep

usage() {
  cat <<'TEXT'
usage: ./lockstep fuzz [--seconds N] [--replay FILE]

  --seconds N    how long to look, 60 by default
  --replay FILE  run one input that was kept, and nothing else

Ends with 0 if nothing was found. An input that breaks a promise is kept in
out/fuzz; inputs that reach new code are kept in out/fuzz/corpus for the next run.
TEXT
}

bad_usage() {
  echo "lockstep fuzz: $1" >&2
  usage >&2
  exit 2
}

seconds=60
replay=
while (($# > 0)); do
  case $1 in
    --seconds)
      [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || bad_usage "--seconds needs a positive number"
      seconds=$2
      shift
      ;;
    --replay)
      [[ -f ${2:-} ]] || bad_usage "--replay needs a file, not '${2:-}'"
      replay=$(realpath "$2")
      shift
      ;;
    --help | -h)
      usage
      exit 0
      ;;
    *) bad_usage "unknown option '$1'" ;;
  esac
  shift
done

"$here/tools/setup/setup.sh" clang-14 libclang-rt-14-dev libfuzzer-14-dev
cd "$here"
mkdir -p "$out/corpus"
# --batch: no second server stays in memory. --script_path: build, run later.
bazel --batch --output_user_root="$cache/fuzz" run --config=fuzz --symlink_prefix=/ \
  --disk_cache="$cache/bazel" --noshow_loading_progress --ui_event_filters=-info,-debug \
  --script_path="$out/policy_fuzz" //tests/fuzz:policy_fuzz

# Debian's protobuf, Abseil and RE2 are not instrumented. A container that they fill
# and our code reads must not be taken for an overflow.
export ASAN_OPTIONS=detect_container_overflow=0:${ASAN_OPTIONS:-}
export UBSAN_OPTIONS=print_stacktrace=1:${UBSAN_OPTIONS:-}
if [[ -n $replay ]]; then
  exec "$out/policy_fuzz" "$replay"
fi
# The log has every line; an input that reaches new code is not news.
status=0
"$out/policy_fuzz" -max_total_time="$seconds" -max_len=4096 -timeout=10 -rss_limit_mb=2048 \
  -dict="$here/tests/fuzz/policy.dict" -print_final_stats=1 -artifact_prefix="$out/" \
  "$out/corpus" "$here/tests/fuzz/corpus" 2>&1 | tee "$out/log" |
  grep --line-buffered --invert-match --extended-regexp '\s(NEW|REDUCE)\s|^"|^#####' ||
  status=${PIPESTATUS[0]}
((status == 0)) && exit 0
found=$(sed -n 's/.*Test unit written to //p' "$out/log" | tail -1)
echo "lockstep fuzz: found an input that fails, kept as ${found:-(none written)}" >&2
[[ -z $found ]] || echo "lockstep fuzz: run it again with ./lockstep fuzz --replay $found" >&2
exit "$status"
