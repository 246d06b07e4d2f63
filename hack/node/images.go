// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// user that images run as, unless the pod says otherwise.
const user = "65532:65532"

func (n *node) podArchive() string { return n.path("images", "pod.tar") }

// buildPod builds the node's own image, of hack/node/pod.
func (n *node) buildPod(ctx context.Context) error {
	root, err := repository(ctx)
	if err != nil {
		return err
	}
	program := n.path("images", "pod")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, "./hack/node/pod")
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the image of pods: %w\n%s", err, out)
	}
	return writeImage(n.podArchive(), podImage, program)
}

// writeImage writes an archive with an image of one static program, which is its entrypoint.
func writeImage(archive, called, program string) error {
	ref, err := name.NewTag(called)
	if err != nil {
		return fmt.Errorf("name an image: %w", err)
	}
	files, err := rootfs(program)
	if err != nil {
		return err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files)), nil })
	if err != nil {
		return fmt.Errorf("make the layer of %s: %w", called, err)
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return fmt.Errorf("add the layer of %s: %w", called, err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return fmt.Errorf("read the configuration of %s: %w", called, err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config = v1.Config{Entrypoint: []string{"/" + filepath.Base(program)}, User: user, WorkingDir: "/"}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return fmt.Errorf("configure %s: %w", called, err)
	}
	if err := tarball.WriteToFile(archive, ref, image); err != nil {
		return fmt.Errorf("write %s: %w", archive, err)
	}
	return nil
}

// rootfs is a program and an empty /tmp, as a tar stream.
func rootfs(program string) ([]byte, error) {
	data, err := os.ReadFile(program)
	if err != nil {
		return nil, fmt.Errorf("read a program: %w", err)
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	err = errors.Join(
		w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777}),
		w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: filepath.Base(program), Mode: 0o755, Size: int64(len(data))}),
	)
	if err == nil {
		_, err = w.Write(data)
	}
	if err := errors.Join(err, w.Close()); err != nil {
		return nil, fmt.Errorf("write the layer of %s: %w", program, err)
	}
	return out.Bytes(), nil
}

// importAll imports archives into containerd, where the kubelet finds their images by name.
func (n *node) importAll(ctx context.Context, files []string) error {
	for _, file := range files {
		if err := n.importFile(ctx, file); err != nil {
			return err
		}
		n.say("imported %s", file)
	}
	return nil
}

// importFile reaches the node's containerd by the file system that its pid 1 sees.
func (n *node) importFile(ctx context.Context, file string) error {
	pid := n.pid()
	if pid == 0 {
		return errors.New("the node is not up: run node up")
	}
	socket := filepath.Join("/proc", strconv.Itoa(pid), "root", containerd)
	out, err := exec.CommandContext(ctx, "ctr", "--address", socket, "--connect-timeout", "1s", "--namespace", "k8s.io", "images", "import", file).CombinedOutput()
	if err != nil {
		return fmt.Errorf("import %s: %w: %s", file, err, strings.TrimSpace(string(out)))
	}
	return nil
}
