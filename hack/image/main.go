// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Command image builds the container images of manager and gateway as OCI archives, with no daemon, no registry and no
// base image: a static binary, the file that names its user, and an empty /tmp. The same commit gives the same bytes. Each
// archive holds an index over all platforms, and a bill of materials (CycloneDX) that refers to the image of each.
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
	"strconv"
	"strings"
	"time"
)

// programs are the commands that have an image, with what each is.
var programs = []program{
	{"manager", "Discovers and classifies the tools of MCP servers, and signs votes"},
	{"gateway", "Enforces policy on every call of an agent to an MCP server"},
}

// platforms that images are built for.
var platforms = []string{"amd64", "arm64"}

type options struct{ out, repository, tag string }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	var o options
	flag.StringVar(&o.out, "out", "dist", "folder that the archives are written to")
	flag.StringVar(&o.repository, "repository", "localhost/tidewaiter", "what the images' names begin with")
	flag.StringVar(&o.tag, "tag", "dev", "tag of the images")
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
	created, err := commitTime(ctx)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "tidewaiter-image-")
	if err != nil {
		return fmt.Errorf("make a folder for binaries: %w", err)
	}
	defer os.RemoveAll(work) //nolint:errcheck // of the system's folder for what is not kept
	for _, p := range programs {
		binaries := map[string]string{}
		for _, platform := range platforms {
			binary := filepath.Join(work, platform, p.name)
			if err := build(ctx, p.name, platform, binary); err != nil {
				return err
			}
			binaries[platform] = binary
		}
		path := filepath.Join(o.out, "tidewaiter-"+p.name+".oci.tar")
		digest, err := p.archive(path, o.repository+"/"+p.name+":"+o.tag, binaries, created)
		if err != nil {
			return fmt.Errorf("write %s: %w", path, err)
		}
		fmt.Fprintf(stdout, "%s %s\n", path, digest)
	}
	return nil
}

// build compiles a program without cgo, so that it needs nothing else in its image.
func build(ctx context.Context, name, platform, binary string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", binary, "./cmd/"+name)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+platform)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s for %s: %w\n%s", name, platform, err, out)
	}
	return nil
}

// commitTime is the time of everything in an image, so that it depends on the commit alone.
func commitTime(ctx context.Context) (time.Time, error) {
	out, err := exec.CommandContext(ctx, "git", "log", "-1", "--format=%ct").Output()
	if err != nil {
		return time.Time{}, fmt.Errorf("ask git for the time of the commit: %w; run this in a clone of the repository", err)
	}
	seconds, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("read the time of the commit: %w", err)
	}
	return time.Unix(seconds, 0).UTC(), nil
}
