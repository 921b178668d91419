#!/usr/bin/env bash
# Make a cluster with kind, install the chart there, play the story of `make demo`. ENGINE builds the image (docker,
# podman, buildah), IMAGE is what is built and loaded. Run again it goes on with the cluster that is there; `kind delete
# cluster --name muster` ends it.
set -euo pipefail
cd "$(dirname "$0")/../.."
engine=${ENGINE:-docker} image=${IMAGE:-muster:0.2.0} context=kind-muster

missing() {
  echo "make kind: $1" >&2
  exit 1
}

"$engine" info > /dev/null 2>&1 || missing "no container engine ($engine) answers here; start one, or see Muster without: make demo"
for tool in kind kubectl; do
  command -v "$tool" > /dev/null || missing "$tool isn't installed"
done
make .venv/.installed
tool() { .venv/bin/python -c "import sys; sys.path.insert(0, 'tests/controlplane'); import binaries; print(binaries.find('$1') or '$1')"; }
helm=$(tool helm) kwok=$(tool kwok)
for each in "$helm" "$kwok"; do
  command -v "$each" > /dev/null || missing "$each isn't installed; make controlplane builds it"
done

make image IMAGE="$image" ENGINE="$engine"
kind get clusters | grep -qx muster || kind create cluster --config deploy/kind/kind.yaml --wait 120s
archive=$(mktemp -d)
trap 'rm -rf "$archive"' EXIT
# podman and buildah call an image without a registry one of localhost; pushed into an archive it has the name that the
# chart asks for. buildah has no `save`.
case $("$engine" --version) in
  podman* | buildah*) "$engine" push "$image" "docker-archive:$archive/image.tar:$image" ;;
  *) "$engine" save --output "$archive/image.tar" "$image" ;;
esac
kind load image-archive "$archive/image.tar" --name muster

"$helm" upgrade --install muster deploy/helm/muster --kube-context "$context" --namespace muster-system --create-namespace \
  --set image.repository="${image%:*}",image.tag="${image##*:}",image.pullPolicy=Never --wait --timeout 5m
kubectl --context "$context" wait queue/default --for=create --timeout=60s

# The story is about nodes of 4 cpu: kwok simulates those, and the real ones stand aside meanwhile.
kind get kubeconfig --name muster > "$archive/kubeconfig"
"$kwok" --kubeconfig "$archive/kubeconfig" --config tests/controlplane/stages.yaml --manage-all-nodes=false \
  --manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake > "$archive/kwok.log" 2>&1 &
simulating=$!
nodes=$(kubectl --context "$context" get nodes --output name)
again() {
  kill "$simulating" 2> /dev/null || true
  # shellcheck disable=SC2086 - several names
  kubectl --context "$context" uncordon $nodes > /dev/null
  rm -rf "$archive"
}
trap again EXIT
# shellcheck disable=SC2086 - several names
kubectl --context "$context" cordon $nodes > /dev/null
.venv/bin/muster demo --installed --kubeconfig "$archive/kubeconfig"
echo "the cluster stays: kubectl --context $context get pods --all-namespaces; kind delete cluster --name muster ends it"
