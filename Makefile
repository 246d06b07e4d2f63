# Tidewaiter: everything a developer runs. `make help` lists it.
#
# On a fresh machine the first run builds a control plane from Go modules (about ten minutes on two cores, kept in the
# user's cache directory) and compiles the dependencies (about five more). Later runs take minutes.

SHELL := /usr/bin/env bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
export CGO_ENABLED ?= $(shell command -v $$(go env CC) >/dev/null 2>&1 && echo 1 || echo 0)

# The race detector needs a C compiler.
RACE := $(if $(filter 1,$(CGO_ENABLED)),-race,)
PACKAGES ?= ./...
BIN := $(CURDIR)/bin
CONTROLLER_GEN := cd hack/tools && go run sigs.k8s.io/controller-tools/cmd/controller-gen

##@ Use

.PHONY: demo
demo: build ## Run the whole governance cycle on a local control plane, narrated: less than a minute when warm. `make demo KEEP=1` leaves it running.
	@KUBEBUILDER_ASSETS="$$(hack/envtest.sh)" CGO_ENABLED=0 go run ./hack/demo $(if $(KEEP),--keep,)

.PHONY: demo-stop
demo-stop: ## End a demo that was kept.
	@CGO_ENABLED=0 go run ./hack/demo --stop

.PHONY: build
build: ## Build manager, gateway and the kubectl plugin into bin/.
	CGO_ENABLED=0 go build -o $(BIN)/ ./cmd/...
	@ln -sf kubectl-tidewaiter $(BIN)/kubectl-approve
	@ln -sf kubectl-tidewaiter $(BIN)/kubectl-deny
	@for verb in tidewaiter approve deny; do ln -sf kubectl-tidewaiter $(BIN)/kubectl_complete-$$verb; done

.PHONY: image
image: ## Build the images of manager, gateway and demo as OCI archives in dist/, without a daemon or a registry. PLATFORMS=linux/amd64,linux/arm64 for both, IMAGE_TAG for another tag than the manifests name.
	go run ./hack/image $(if $(IMAGE_TAG),--tag $(IMAGE_TAG)) $(if $(PLATFORMS),--platforms $(PLATFORMS))

.PHONY: install
install: ## Install the CRDs and the admission policies into the cluster of the current kubeconfig.
	kubectl apply --server-side -k config/crd
	kubectl apply --server-side -k config/admission

.PHONY: deploy
deploy: ## Install everything into the cluster of the current kubeconfig.
	kubectl apply --server-side -k config/default

##@ Develop

.PHONY: generate
generate: ## Generate deep copies.
	$(CONTROLLER_GEN) object:headerFile=../boilerplate.go.txt paths=../../api/...

.PHONY: manifests
manifests: ## Generate CRDs and the admission policies with one rule a target, and copy what the chart takes from config/.
	$(CONTROLLER_GEN) crd paths=../../api/... output:crd:dir=../../config/crd/bases
	go run ./hack/genadmission > config/admission/policies.yaml.new && mv config/admission/policies.yaml.new config/admission/policies.yaml
	rm -rf charts/tidewaiter/files && mkdir -p charts/tidewaiter/files/crds && cp config/crd/bases/*.yaml charts/tidewaiter/files/crds/
	for folder in rbac admission webhook certmanager monitoring; do cp -R config/$$folder charts/tidewaiter/files/ && rm charts/tidewaiter/files/$$folder/kustomization.yaml; done

.PHONY: fmt
fmt: ## Format the code.
	gofmt -w $$(git ls-files '*.go')

.PHONY: vet
vet: ## Look for mistakes that the compiler lets pass.
	go vet ./...

.PHONY: envtest
envtest: ## Print where etcd, kube-apiserver and kubectl are, after finding, downloading or building them.
	@hack/envtest.sh

.PHONY: test
test: ## Run all tests: about ten to fifteen minutes when warm, half an hour on a fresh machine with two cores. TIDEWAITER_CORPUS=DIR measures the classifier too.
	@echo "test: race detector $(if $(RACE),on,left out: no C compiler was found)"
	@[ -n "$${TIDEWAITER_CORPUS:-}" ] || echo "test: TIDEWAITER_CORPUS is not set: the classifier's figures on real tools are not measured"
	@command -v npm >/dev/null && command -v node >/dev/null || echo "test: npm or node was not found: the tests with servers and clients that are not ours are not run"
	KUBEBUILDER_ASSETS="$$(hack/envtest.sh)" go test $(RACE) -shuffle=on -timeout 20m $(PACKAGES)

.PHONY: test-oldest
test-oldest: ## Run the tests on the oldest Kubernetes that is supported; needs a download of it, or KUBEBUILDER_ASSETS.
	KUBEBUILDER_ASSETS="$$(ENVTEST_K8S_VERSION=1.32.0 hack/envtest.sh)" go test $(RACE) -shuffle=on -timeout 20m ./test/... ./controllers/...

.PHONY: conformance
conformance: ## Run the MCP conformance suite and clients that are not ours, directly and through the gateway, and print both columns. Needs npm.
	KUBEBUILDER_ASSETS="$$(hack/envtest.sh)" go test $(RACE) -count=1 -v -timeout 20m -run TestTheSuiteFindsNothingWorse ./test/conformance

.PHONY: bench
bench: ## Measure classify, decide, hash, scan, a call through the gateway beside the same call direct and through a plain proxy, and 100 gateways: revocations, start, memory, requests. About a quarter of an hour.
	go test -run '^$$' -bench . -benchmem $$(git grep -l '^func Benchmark' -- 'internal/*_test.go' | xargs -n1 dirname | sort -u | sed 's|^|./|')
	KUBEBUILDER_ASSETS="$$(hack/envtest.sh)" go test -run '^$$' -bench Revocation -benchtime 20x ./test/scale
	KUBEBUILDER_ASSETS="$$(hack/envtest.sh)" go test -run '^$$' -bench 'Steady|Estate' -benchtime 1x -timeout 30m ./test/scale

.PHONY: bench-gate
bench-gate: ## Fail where a read through the gateway has become much dearer than through a plain proxy: time, throughput, allocations. A minute.
	TIDEWAITER_BENCH_LIMIT=1.5 go test -run '^$$' -bench '^BenchmarkRead$$' -benchtime 20x ./internal/gateway

.PHONY: soak
soak: ## Call, vote and kill at random for ten minutes, then account for every call; see docs/design/soak.md. SOAK='-seed 7 -duration 1m' sets more.
	CGO_ENABLED=0 go build -tags failpoints -o $(BIN)/soak/ ./cmd/manager ./cmd/gateway ./test/soak
	KUBEBUILDER_ASSETS="$$(hack/envtest.sh)" $(BIN)/soak/soak $(SOAK)

.PHONY: node
node: ## Start a real Kubernetes node here, as root, in namespaces of its own, or start it again: ten seconds once its programs are built, which takes as long as a control plane does. Prints its kubeconfig.
	@CGO_ENABLED=0 go build -o $(BIN)/e2e/node ./hack/node
	@$(BIN)/e2e/node $(if $(INSTALL),--install,) up

.PHONY: node-down
node-down: ## Remove the node, and check that the machine is as it was.
	@CGO_ENABLED=0 go build -o $(BIN)/e2e/node ./hack/node
	@$(BIN)/e2e/node down

.PHONY: e2e
e2e: ## Install Tidewaiter into a real cluster with real pods, and prove what only that shows: on a node of its own here, or where KUBECONFIG leads. About four minutes when warm. E2E='-keep -run stdio' sets more. See docs/design/e2e.md.
	CGO_ENABLED=0 go build -o $(BIN)/e2e/e2e ./test/e2e
	@code=0; $(BIN)/e2e/e2e -install $(E2E) || code=$$?; echo "make: e2e exited with $$code (0 passed, 1 failed, 3 not supported here)"; exit $$code

.PHONY: lint
lint: ## Check style, and the API types against the Kubernetes conventions.
	cd hack/tools/lint && go build -o $(BIN)/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	cd hack/tools/apilint && go build -o $(BIN)/kube-api-linter sigs.k8s.io/kube-api-linter/cmd/golangci-lint-kube-api-linter
	$(BIN)/golangci-lint run
	$(BIN)/kube-api-linter run --config .kube-api-linter.yml ./api/...

.PHONY: verify
verify: generate manifests ## Fail when generated files are not what the sources say.
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo "verify: not formatted, run make fmt:"; gofmt -l $$(git ls-files '*.go'); exit 1; }
	@go mod tidy -diff || { echo "verify: run go mod tidy"; exit 1; }
	@test -z "$$(git status --porcelain)" || { echo "verify: generated files differ, or the tree is not clean:"; git status --short; git diff; exit 1; }
	@echo "verify: generated files are up to date"

.PHONY: help
help: ## Show this help.
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
