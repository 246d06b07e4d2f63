// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Command image builds the container images of manager, gateway and demo as OCI archives, with no daemon, no registry and no
// base image: a static binary, which brings its CA certificates along, the file that names its user, and an empty /tmp. The
// same commit gives the same bytes. Each archive holds an index over the platforms, and a bill of materials (CycloneDX) that
// refers to the image of each.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// programs are the commands that have an image, with what each is.
var programs = []program{
	{"manager", "./cmd/manager", "Discovers and classifies the tools of MCP servers, and signs votes"},
	{"gateway", "./cmd/gateway", "Enforces policy on every call of an agent to an MCP server"},
	{"demo", "./hack/demo/pod", "An MCP server with invoices, and an agent that calls it, to try Tidewaiter with"},
}

// architectures that images can be built for, all with linux.
var architectures = []string{"amd64", "arm64"}

type options struct{ out, repository, tag, platforms string }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	var o options
	flag.StringVar(&o.out, "out", "dist", "folder that the archives are written to")
	flag.StringVar(&o.repository, "repository", "ghcr.io/tidewaiter", "what the images' names begin with, as in the manifests")
	flag.StringVar(&o.tag, "tag", "", "tag of the images; default: the version of the chart's app, which the manifests name")
	flag.StringVar(&o.platforms, "platforms", "linux/"+runtime.GOARCH, "platforms to build for, with commas between: linux/amd64, linux/arm64")
	flag.Parse()
	err := run(ctx, o, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// run builds every program for every platform and writes an archive of each program.
func run(ctx context.Context, o options, stdout io.Writer) error {
	wanted, err := parsePlatforms(o.platforms)
	if err != nil {
		return fmt.Errorf("--platforms: %w", err)
	}
	from, err := lastCommit(ctx)
	if err != nil {
		return err
	}
	if o.tag == "" {
		if o.tag, err = appVersion("charts/tidewaiter/Chart.yaml"); err != nil {
			return err
		}
	}
	work, err := os.MkdirTemp("", "tidewaiter-image-")
	if err != nil {
		return fmt.Errorf("make a folder for binaries: %w", err)
	}
	defer os.RemoveAll(work) //nolint:errcheck // of the system's folder for what is not kept
	for _, p := range programs {
		binaries := map[string]string{}
		for _, platform := range wanted {
			binary := filepath.Join(work, platform, p.name)
			if err := build(ctx, p.folder, platform, binary); err != nil {
				return err
			}
			binaries[platform] = binary
		}
		path := filepath.Join(o.out, "tidewaiter-"+p.name+".oci.tar")
		digest, err := p.archive(path, o.repository+"/tidewaiter-"+p.name+":"+o.tag, binaries, from)
		if err != nil {
			return fmt.Errorf("write %s: %w", path, err)
		}
		fmt.Fprintf(stdout, "%s %s\n", path, digest)
	}
	return nil
}

// build compiles a program without cgo, so that it needs nothing else in its image.
func build(ctx context.Context, folder, platform, binary string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", binary, folder)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+platform)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s for %s: %w\n%s", folder, platform, err, out)
	}
	return nil
}

// appVersion is that of a chart.
func appVersion(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("find the version: %w; run this at the root of the repository, or give --tag", err)
	}
	var chart struct {
		AppVersion string `json:"appVersion"`
	}
	if err := yaml.Unmarshal(text, &chart); err != nil {
		return "", fmt.Errorf("read %s: %w", file, err)
	}
	if chart.AppVersion == "" {
		return "", fmt.Errorf("%s has no appVersion", file)
	}
	return chart.AppVersion, nil
}

// parsePlatforms reads a list such as linux/amd64,linux/arm64.
func parsePlatforms(list string) ([]string, error) {
	var wanted []string
	for platform := range strings.SplitSeq(list, ",") {
		architecture, isLinux := strings.CutPrefix(platform, "linux/")
		if !isLinux || !slices.Contains(architectures, architecture) {
			return nil, fmt.Errorf("%q is not built; there are linux/%s", platform, strings.Join(architectures, ", linux/"))
		}
		if slices.Contains(wanted, architecture) {
			return nil, fmt.Errorf("%s is named twice", platform)
		}
		wanted = append(wanted, architecture)
	}
	return wanted, nil
}

// commit that an image is built from: everything in the image has its time, so that it depends on the commit alone.
type commit struct {
	hash string
	time time.Time
}

func lastCommit(ctx context.Context) (commit, error) {
	out, err := exec.CommandContext(ctx, "git", "log", "-1", "--format=%H %ct").Output()
	if err != nil {
		return commit{}, fmt.Errorf("ask git for the last commit: %w; run this in a clone of the repository", err)
	}
	var from commit
	var seconds int64
	if _, err := fmt.Sscan(string(out), &from.hash, &seconds); err != nil {
		return commit{}, fmt.Errorf("read the last commit: %w", err)
	}
	from.time = time.Unix(seconds, 0).UTC()
	return from, nil
}
