#!/usr/bin/env bash
# A certificate authority for development: makes one, and certificates with roles. Its key lies
# unprotected in DIR: for clusters that matter use the authority that you have.
#
#   tools/dev_ca.sh DIR server HOST [HOST...]     the coordinator's: names and addresses of its host
#   tools/dev_ca.sh DIR ROLE NAME [job=JOB...] [worker=WORKER...]
#                                                 a viewer's, worker's or operator's; bound to these
#                                                 jobs, and to attend under these names
#
# DIR/ca.pem: what the other side is checked with (--tls-authorities); DIR/NAME.pem and
# DIR/NAME.key: --tls-certificate and --tls-key. The server's NAME is "server".
set -euo pipefail

usage() {
  sed -n '2,11s/^# \{0,1\}//p' "$0" >&2
  exit 2
}
(($# >= 3)) || usage
dir=$1 role=$2
shift 2
case $role in
  server) name=server ;;
  viewer | worker | operator)
    name=$1
    shift
    ;;
  *) usage ;;
esac

mkdir -p "$dir"
umask 077
if [[ ! -e $dir/ca.pem ]]; then
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -sha256 \
    -subj "/CN=Lockstep development authority" -keyout "$dir/ca.key" -out "$dir/ca.pem" 2>/dev/null
fi
names=()
if [[ $role == server ]]; then
  for host in "$@"; do
    if [[ $host =~ ^[0-9.]+$|: ]]; then names+=("IP:$host"); else names+=("DNS:$host"); fi
  done
  usage_of_key=serverAuth
else
  names=("DNS:$role.role.lockstep")
  for binding in "$@"; do
    case $binding in
      job=?* | worker=?*) names+=("DNS:${binding#*=}.${binding%%=*}.lockstep") ;;
      *) usage ;;
    esac
  done
  usage_of_key=clientAuth
fi
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$name" \
  -keyout "$dir/$name.key.new" -out "$dir/$name.csr" 2>/dev/null
openssl x509 -req -in "$dir/$name.csr" -CA "$dir/ca.pem" -CAkey "$dir/ca.key" -CAcreateserial \
  -days "${DAYS:-365}" -sha256 -out "$dir/$name.pem.new" 2>/dev/null -extfile <(
    printf 'basicConstraints=critical,CA:false\nkeyUsage=critical,digitalSignature\n'
    printf 'extendedKeyUsage=%s\nsubjectAltName=%s\n' "$usage_of_key" "$(IFS=,; echo "${names[*]}")"
  )
rm -f "$dir/$name.csr"
# Key and certificate change one right after the other; a reader that meets only one of
# them tries again.
mv "$dir/$name.key.new" "$dir/$name.key"
mv "$dir/$name.pem.new" "$dir/$name.pem"
