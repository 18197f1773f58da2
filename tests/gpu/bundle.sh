#!/usr/bin/env bash
# Makes what check.sh needs on a host with GPUs that cannot build Lockstep: README.md.
#
#   bundle.sh [DIR]        default: tests/gpu/bundle
#
#   gpu_conformance        needs glibc alone, as it loads NCCL and CUDA itself
#   lib, source, include   what gpu_step is compiled from, with the GPU host's own PyTorch
#
# Which objects and headers these are is asked of the build, not listed here.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
bundle=$(realpath -m "${1:-$here/bundle}")
cd "$here/../.."
debian=/usr/lib/x86_64-linux-gnu
bazel build --disk_cache="$HOME/.cache/lockstep/bazel" //tests/gpu:gpu_conformance \
  //tests/gpu:gpu_step
root=$(bazel info execution_root 2> /dev/null)

rm -rf "$bundle"
mkdir -p "$bundle/lib" "$bundle/source" "$bundle/include"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Debian has no static spdlog: its headers do instead.
g++ -std=c++20 -O2 -I. -DFMT_HEADER_ONLY -c common/base/log.cc -o "$work/log.o"

# objects_of PROGRAM [PATTERN]: those that it is linked from, but for the log and PATTERN.
objects_of() {
  grep '\.o$' "bazel-bin/tests/gpu/$1-2.params" | grep -v '/common/base/_objs/log/' \
    | grep -Ev "${2:-^$}" | sed "s|^|$root/|"
}

# What gpu_step needs besides LibTorch. Objects of equal names are different ones, so none is
# replaced.
objects_of gpu_step '/worker/torch/|/tests/gpu/' | xargs ar qc "$work/libstep.a" "$work/log.o"
printf '%s\n' "CREATE $bundle/lib/liblockstep.a" "ADDLIB $work/libstep.a" \
  "ADDLIB $debian/libxxhash.a" "ADDLIB $debian/libre2.a" > "$work/script"
printf 'ADDLIB %s\n' "$debian"/libabsl_*.a >> "$work/script"
printf '%s\n' SAVE END >> "$work/script"
ar -M < "$work/script"

mapfile -t objects < <(objects_of gpu_conformance)
g++ -o "$bundle/gpu_conformance" "${objects[@]}" "$work/log.o" "$debian"/lib{gmock,gtest}.a \
  "$bundle/lib/liblockstep.a" -static-libstdc++ -static-libgcc -pthread -ldl -Wl,--gc-sections -s

# The sources that include LibTorch, and every header of theirs that is neither LibTorch's nor
# the compiler's.
wheels=$root/external/libtorch
grep -E '\.o$' bazel-bin/tests/gpu/gpu_step-2.params | grep -E '/worker/torch/|/tests/gpu/' \
  | sed -E 's|^.*/bin/(.*)/_objs/[^/]*/(.*)\.o$|\1/\2.cc|' > "$work/sources"
while read -r source; do
  install -D -m 644 "$source" "$bundle/source/$source"
  g++ -std=c++20 -M -fno-canonical-system-headers -I. -isystem "$wheels/nvidia/nccl/include" \
    -isystem "$wheels/nvidia/cu13/include" -isystem "$wheels/nvidia/cu13/include/cccl" \
    -isystem "$wheels/torch/include" "$source"
done < "$work/sources" | tr -s ' \\' '\n' | sort -u > "$work/headers"
while read -r header; do
  case $header in
    "$wheels"/torch/* | *: | *.cc | '') continue ;;
    "$wheels"/nvidia/*/include/cccl/*) to=include/${header##*/include/cccl/} ;;
    "$wheels"/nvidia/*/include/*) to=include/${header##*/include/} ;;
    /usr/include/absl/* | /usr/include/CLI/*) to=include/${header#/usr/include/} ;;
    /*) continue ;;
    *) to=source/$header ;;
  esac
  install -D -m 644 "$header" "$bundle/$to"
done < "$work/headers"

echo "$bundle: $(du -sh "$bundle" | cut -f 1)"
