#!/usr/bin/env bash
# Finds or makes a control plane (etcd, kube-apiserver, kubectl) and prints the folder that holds it, as
# KUBEBUILDER_ASSETS wants it. Order: $KUBEBUILDER_ASSETS; this project's cache; setup-envtest (ten seconds to
# download); a build from Go modules in hack/controlplane (about ten minutes on two cores, once).
# Only the folder goes to standard output; progress goes to standard error.
set -euo pipefail

version=${ENVTEST_K8S_VERSION:-1.37.2}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
say() { printf 'envtest: %s\n' "$*" >&2; }
complete() { [ -x "$1/etcd" ] && [ -x "$1/kube-apiserver" ] && [ -x "$1/kubectl" ]; }

if [ -n "${KUBEBUILDER_ASSETS:-}" ]; then
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
  complete "$found" || return 1
  mkdir "$work/bin" && cp "$found"/* "$work/bin/"
}

# build NAME PACKAGE LDFLAGS: compiles one binary and says how far it is, one line in ten per cent.
build() {
  local name=$1 package=$2 flags=$3 total
  total=$(cd "$here/controlplane" && go list -deps "$package" | wc -l)
  say "building $name from $package ($total packages, those in Go's build cache are skipped)"
  (cd "$here/controlplane" && CGO_ENABLED=0 go build -v -trimpath -ldflags "-s -w $flags" -o "$work/bin/$name" "$package" 2>&1) |
    awk -v total="$total" -v name="$name" '
      /^go: downloading/ { next }
      /^[a-z0-9.]+(\/|$)/ { n++; p = int(n * 10 / total); if (p > last) { last = p; printf "envtest:   %s %d%%\n", name, p * 10 > "/dev/stderr" } next }
      { print > "/dev/stderr" }'
}

build_from_modules() {
  [ "$version" = 1.37.2 ] || {
    say "Kubernetes $version cannot be built here: hack/controlplane/go.mod names 1.37.2; set KUBEBUILDER_ASSETS"
    return 1
  }
  say "no download: building Kubernetes $version from Go modules, about ten minutes on two cores, once; the result is kept in $cache"
  mkdir -p "$work/bin"
  local v=k8s.io/component-base/version
  local stamp="-X $v.gitVersion=v$version -X $v.gitMajor=1 -X $v.gitMinor=37 -X $v.gitTreeState=clean -X $v.buildDate=1970-01-01T00:00:00Z"
  build etcd go.etcd.io/etcd/server/v3 ""
  build kube-apiserver k8s.io/kubernetes/cmd/kube-apiserver "$stamp"
  build kubectl k8s.io/kubernetes/cmd/kubectl "$stamp"
}

setup_envtest || build_from_modules
complete "$work/bin" || { say "the control plane is incomplete in $work/bin"; exit 1; }
rm -rf "$cache"
mv "$work/bin" "$cache"
say "kept in $cache"
echo "$cache"
