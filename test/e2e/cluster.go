// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// unsupportedError says what this machine lacks.
type unsupportedError struct{ lacks string }

func (e *unsupportedError) Error() string { return e.lacks }

const (
	// programs is where everything is built.
	programs = "bin/e2e"
	// kindName is the name of the cluster of kind.
	kindName = "tidewaiter-e2e"
)

// archives are the images, as make image writes them.
var archives = []string{"dist/tidewaiter-manager.oci.tar", "dist/tidewaiter-gateway.oci.tar", "dist/tidewaiter-demo.oci.tar"}

// cluster is where the pods run.
type cluster struct {
	about string
	// up makes it, where it has to be made, and returns the path of its kubeconfig.
	up func(ctx context.Context) (kubeconfig string, err error)
	// load brings the images in, and says what it did.
	load func(ctx context.Context) (seen string, err error)
	// down gives it back, and says what it looked at.
	down func(ctx context.Context) (seen string, err error)
}

// choose finds out which cluster is meant, and whether it can be had here.
func (e *e2e) choose(ctx context.Context, kind string) (cluster, error) {
	given := os.Getenv("KUBECONFIG")
	if kind == "" {
		kind = "node"
		if given != "" {
			kind = "kubeconfig"
		}
	}
	switch kind {
	case "node":
		return e.node(ctx)
	case "kubeconfig":
		if given == "" {
			return cluster{}, &unsupportedError{"unsupported: cluster: KUBECONFIG is not set: set it, or leave -cluster out to have a node started"}
		}
		return existing(given), nil
	case "kind":
		if out, err := e.run(ctx, "", "kind", "version"); err != nil {
			return cluster{}, &unsupportedError{"unsupported: kind: " + strings.TrimSpace(out+err.Error())}
		}
		return e.kind(), nil
	}
	return cluster{}, fmt.Errorf("-cluster=%s is not known: node, kubeconfig or kind", kind)
}

// node is a node of our own on this machine. Its own program says whether it can run here.
func (e *e2e) node(ctx context.Context) (cluster, error) {
	if err := e.build(ctx, "./hack/node", "node"); err != nil {
		return cluster{}, err
	}
	program := filepath.Join(programs, "node")
	flags := []string{}
	if e.install {
		flags = append(flags, "--install")
	}
	if out, err := e.run(ctx, "", program, append(flags, "probe")...); err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == unsupported {
			return cluster{}, &unsupportedError{strings.TrimPrefix(strings.TrimSpace(out), "node: ")}
		}
		return cluster{}, fmt.Errorf("ask whether a node can run here: %w: %s", err, out)
	}
	e.nodeProgram = program
	return cluster{
		about: "a node of its own on this machine (hack/node), which is removed at the end",
		up: func(ctx context.Context) (string, error) {
			out, err := e.watched(ctx, program, append(flags, "up")...)
			if err != nil { // what has started of it goes
				gone, downErr := e.run(context.WithoutCancel(ctx), "", program, "down")
				return "", errors.Join(fmt.Errorf("start the node: %w: %s%s", err, out, gone), downErr)
			}
			return lastWord(out), nil
		},
		load: func(ctx context.Context) (string, error) {
			return e.run(ctx, "", program, append([]string{"import"}, archives...)...)
		},
		down: func(ctx context.Context) (string, error) { return e.run(ctx, "", program, "down") },
	}, nil
}

// existing is a cluster that somebody asked to have used.
func existing(kubeconfig string) cluster {
	return cluster{
		about: "the cluster of KUBECONFIG, because that is set: " + kubeconfig,
		up:    func(context.Context) (string, error) { return filepath.Abs(kubeconfig) },
		load: func(context.Context) (string, error) {
			return "nothing was loaded: its nodes need the images of make image, or have to be able to pull them under their names", nil
		},
		down: func(context.Context) (string, error) { return "the cluster is not ours, and stays", nil },
	}
}

// kind is a cluster in a container.
func (e *e2e) kind() cluster {
	kubeconfig := filepath.Join(programs, "kind.kubeconfig")
	return cluster{
		about: "a cluster of kind in a container, named " + kindName + ", which is removed at the end",
		up: func(ctx context.Context) (string, error) {
			if out, err := e.run(ctx, "", "kind", "create", "cluster", "--name="+kindName, "--kubeconfig="+kubeconfig, "--wait=2m"); err != nil {
				return "", fmt.Errorf("create a cluster: %w: %s", err, out)
			}
			return filepath.Abs(kubeconfig)
		},
		load: func(ctx context.Context) (string, error) {
			for _, archive := range archives {
				if out, err := e.run(ctx, "", "kind", "load", "image-archive", archive, "--name="+kindName); err != nil {
					return out, err
				}
			}
			return strings.Join(archives, ", "), nil
		},
		down: func(ctx context.Context) (string, error) {
			return e.run(ctx, "", "kind", "delete", "cluster", "--name="+kindName, "--kubeconfig="+kubeconfig)
		},
	}
}
