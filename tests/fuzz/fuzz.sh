#!/usr/bin/env bash
# ./lockstep fuzz: the targets under libFuzzer, ASan and UBSan. Installs clang if it
# is missing; builds apart from the other commands, so that their build stays.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
out=$here/out/fuzz
cache=${XDG_CACHE_HOME:-$HOME/.cache}/lockstep
# A folder of seeds makes a target; see fuzz_target.bzl.
mapfile -t all < <(cd "$here/tests/fuzz/corpus" && ls)

usage() {
  cat <<TEXT
usage: ./lockstep fuzz [TARGET...] [--seconds N] [--replay FILE]

  TARGET         one of: ${all[*]}; all of them by default
  --seconds N    how long to look with each target, 60 by default
  --replay FILE  run one input that was kept, with one target, and nothing else

Says for each target how many inputs were run, how many reached new code, and what
was found. Ends with 0 if nothing was found, else with 1. An input that breaks a
promise is kept in out/fuzz/TARGET; inputs that reach new code are kept in
out/fuzz/TARGET/corpus for the next run.
TEXT
}

bad_usage() {
  echo "lockstep fuzz: $1" >&2
  usage >&2
  exit 2
}

seconds=60
replay=
targets=()
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
    -*) bad_usage "unknown option '$1'" ;;
    *)
      [[ " ${all[*]} " == *" $1 "* ]] || bad_usage "there is no target '$1'"
      targets+=("$1")
      ;;
  esac
  shift
done
[[ -z $replay || ${#targets[@]} == 1 ]] || bad_usage "--replay needs the target of the file"
((${#targets[@]} > 0)) || targets=("${all[@]}")

"$here/tools/setup/setup.sh" clang-14 libclang-rt-14-dev libfuzzer-14-dev
cd "$here"
# --batch: no second server stays in memory.
build() {
  bazel --batch --output_user_root="$cache/fuzz" "$1" --config=fuzz --symlink_prefix=/ \
    --disk_cache="$cache/bazel" --noshow_loading_progress --ui_event_filters=-info,-debug "${@:2}"
}
labels=("${targets[@]/#/tests/fuzz:}")
build build "${labels[@]/%/_fuzz}"
bin=$(build info bazel-bin)/tests/fuzz

# Debian's protobuf, Abseil and RE2 are not instrumented. A container that they fill
# and our code reads must not be taken for an overflow.
export ASAN_OPTIONS=detect_container_overflow=0:${ASAN_OPTIONS:-}
export UBSAN_OPTIONS=print_stacktrace=1:${UBSAN_OPTIONS:-}
if [[ -n $replay ]]; then
  exec "$bin/${targets[0]}_fuzz" "$replay"
fi

stat_of() {
  sed -n "s/^stat::$2: *//p" "$1" | tail -1
}

# Looks with one target; says what came of it.
look() {
  local kept=$out/$1 log=$out/$1/log status=0 found=0
  # Entropic scheduling would take more than half of the time of those with many branches.
  local options=(-max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -malloc_limit_mb=512
    -entropic=0 -print_final_stats=1 -artifact_prefix="$kept/")
  [[ ! -f tests/fuzz/$1.dict ]] || options+=(-dict="tests/fuzz/$1.dict")
  mkdir -p "$kept/corpus"
  echo "lockstep fuzz: $1, for $seconds s" >&2
  "$bin/$1_fuzz" "${options[@]}" "$kept/corpus" "tests/fuzz/corpus/$1" >"$log" 2>&1 || status=$?
  if ((status != 0)); then
    found=1
    # An input that reaches new code is not news.
    grep --invert-match --extended-regexp '\s(NEW|REDUCE|pulse|RELOAD)\s|^"|^#####|^INFO' "$log" |
      tail -60 >&2
  fi
  echo "$1: $(stat_of "$log" number_of_executed_units) runs," \
    "$(stat_of "$log" new_units_added) new inputs, findings: $found"
  ((status != 0)) || return 0
  local input
  input=$(sed -n 's/.*Test unit written to //p' "$log" | tail -1)
  echo "lockstep fuzz: the log is $log" >&2
  [[ -z $input ]] || echo "lockstep fuzz: run it again: ./lockstep fuzz $1 --replay $input" >&2
  return 1
}

status=0
for target in "${targets[@]}"; do
  look "$target" || status=1
done
exit "$status"
