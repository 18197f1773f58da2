#!/usr/bin/env bash
# Installs what packages.txt lists, and the packages named as arguments, as far as
# this machine lacks them. Idempotent, and quick when nothing is missing. npm is
# installed only if no npm is there already.
set -euo pipefail
cd "$(dirname "$0")"

fail() {
  echo "lockstep setup: $*" >&2
  exit 1
}

missing=()
while read -r package; do
  [[ -z $package || $package == \#* ]] && continue
  if [[ $(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null) != installed ]]; then
    missing+=("$package")
  fi
done < <(cat packages.txt; (($# == 0)) || printf '%s\n' "$@")
command -v npm >/dev/null || missing+=(npm)
((${#missing[@]} == 0)) && exit 0

command -v apt-get >/dev/null || fail "needs Debian 12's apt-get to install: ${missing[*]}"
as_root=()
if ((EUID != 0)); then
  command -v sudo >/dev/null || fail "needs root to install: ${missing[*]}"
  as_root=(sudo)
fi
log=$(mktemp)
echo "lockstep setup: installing ${#missing[@]} Debian packages: ${missing[*]}" >&2
if ! { "${as_root[@]}" apt-get update &&
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install --yes --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
  tail -20 "$log" >&2
  fail "apt-get failed; the whole log is in $log"
fi
rm -f "$log"
