#!/usr/bin/env bash
# Finds or makes a control plane (etcd, kube-apiserver, kubectl) and prints the folder that holds it, as
# KUBEBUILDER_ASSETS wants it. Order: $KUBEBUILDER_ASSETS; this project's cache; setup-envtest (ten seconds to
# download); a build from Go modules in hack/controlplane (about ten minutes on two cores, once).
# `envtest.sh node` does the same for all that hack/node runs: the rest of Kubernetes from hack/controlplane, and DNS and
# enforcement of NetworkPolicies from hack/addons (about ten minutes more, once). It does not look at KUBEBUILDER_ASSETS.
# What is built stays as it is: after a change of either module, remove the folder.
# Only the folder goes to standard output; progress goes to standard error.
set -euo pipefail

version=${ENVTEST_K8S_VERSION:-1.37.2}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
say() { printf 'envtest: %s\n' "$*" >&2; }
plane="etcd kube-apiserver kubectl"
case ${1:-} in
  "") wanted=$plane ;;
  node) wanted="$plane kube-controller-manager kube-scheduler kubelet kube-proxy dns policy" ;;
  *) say "$1 is not known: give nothing for a control plane, or node for a whole node"; exit 1 ;;
esac
# has FOLDER NAME...: all of the programs are there.
has() { local folder=$1 name; shift; for name; do [ -x "$folder/$name" ] || return 1; done; }
complete() { has "$1" $wanted; } # the names hold no spaces

if [ -z "${1:-}" ] && [ -n "${KUBEBUILDER_ASSETS:-}" ]; then
  complete "$KUBEBUILDER_ASSETS" || {
    say "KUBEBUILDER_ASSETS=$KUBEBUILDER_ASSETS lacks etcd, kube-apiserver or kubectl; unset it to have one made"
    exit 1
  }
  echo "$KUBEBUILDER_ASSETS"
  exit 0
fi

os=$(go env GOOS) arch=$(go env GOARCH)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/tidewaiter/envtest/$version-$os-$arch
if complete "$cache"; then
  echo "$cache"
  exit 0
fi
mkdir -p "$(dirname "$cache")"

# Two runs at once (make test beside make demo) must not build twice or see half a build.
if command -v flock >/dev/null 2>&1; then
  exec 9>"$cache.lock"
  flock -n 9 || { say "another run is preparing $cache, waiting for it"; flock 9; }
  if complete "$cache"; then
    echo "$cache"
    exit 0
  fi
fi

work=$(mktemp -d "$cache.XXXXXX")
trap 'rm -rf "$work"' EXIT

setup_envtest() {
  say "trying to download Kubernetes $version with setup-envtest (ten seconds at most)"
  command -v timeout >/dev/null 2>&1 || return 1
  (cd "$here/tools" && go build -o "$work/setup-envtest" sigs.k8s.io/controller-runtime/tools/setup-envtest) >&2 || return 1
  local found
  found=$(timeout 10 "$work/setup-envtest" use "$version" --bin-dir "$work/download" -p path 2>/dev/null) || return 1
  has "$found" $plane || return 1
  cp "$found"/* "$work/bin/"
}

# build NAME MODULE PACKAGE LDFLAGS: compiles one program, says how far it is, one line in ten per cent, and keeps it, so
# that a run which is interrupted has not worked for nothing.
build() {
  local name=$1 module=$here/$2 package=$3 flags=${4:-} total
  has "$cache" "$name" && return
  total=$(cd "$module" && go list -deps "$package" | wc -l)
  say "building $name from $package ($total packages, those in Go's build cache are skipped)"
  (cd "$module" && CGO_ENABLED=0 go build -v -trimpath -ldflags "-s -w $flags" -o "$work/bin/$name" "$package" 2>&1) |
    awk -v total="$total" -v name="$name" '
      /^go: downloading/ { next }
      /^[a-z0-9.]+(\/|$)/ { n++; p = int(n * 10 / total); if (p > last) { last = p; printf "envtest:   %s %d%%\n", name, p * 10 > "/dev/stderr" } next }
      { print > "/dev/stderr" }'
  keep
}

# keep moves what is made into the cache.
keep() { mkdir -p "$cache" && mv "$work/bin/"* "$cache/"; }

build_from_modules() {
  [ "$version" = 1.37.2 ] || {
    say "Kubernetes $version cannot be built here: hack/controlplane/go.mod names 1.37.2; set KUBEBUILDER_ASSETS"
    return 1
  }
  say "building what is missing from Go modules, once: on two cores about ten minutes for a control plane, ten more for a node; the result is kept in $cache"
  local v=k8s.io/component-base/version name
  local stamp="-X $v.gitVersion=v$version -X $v.gitMajor=1 -X $v.gitMinor=37 -X $v.gitTreeState=clean -X $v.buildDate=1970-01-01T00:00:00Z"
  for name in $wanted; do
    case $name in
      etcd) build etcd controlplane go.etcd.io/etcd/server/v3 ;;
      dns | policy) build "$name" addons "./$name" ;;
      *) build "$name" controlplane "k8s.io/kubernetes/cmd/$name" "$stamp" ;;
    esac
  done
}

mkdir "$work/bin"
has "$cache" $plane || { setup_envtest && keep; } || true
complete "$cache" || build_from_modules
complete "$cache" || { say "something is still missing in $cache"; exit 1; }
say "kept in $cache"
echo "$cache"
