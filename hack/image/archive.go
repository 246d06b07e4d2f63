// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user that the images run as, unless the pod says otherwise.
const user = 65532

// cyclonedx is the media type of a bill of materials.
const cyclonedx = types.MediaType("application/vnd.cyclonedx+json")

// program is a command that has an image.
type program struct{ name, folder, description string }

// archive writes an OCI archive (image layout 1.0 in a tar file) with the image of each platform and returns the digest of
// their index. name is what container engines call it once it is loaded. There is a whole archive or none.
func (p program) archive(path, name string, binaries map[string]string, from commit) (v1.Hash, error) {
	work, err := os.MkdirTemp("", "tidewaiter-layout-")
	if err != nil {
		return v1.Hash{}, fmt.Errorf("make a folder for the layout: %w", err)
	}
	defer os.RemoveAll(work) //nolint:errcheck // of the system's folder for what is not kept
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	var bills []v1.Image
	for _, platform := range slices.Sorted(maps.Keys(binaries)) {
		image, err := p.image(platform, binaries[platform], from)
		if err != nil {
			return v1.Hash{}, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: platformOf(platform)}})
		bill, err := billImage(image, binaries[platform], p, from.time)
		if err != nil {
			return v1.Hash{}, err
		}
		bills = append(bills, bill)
	}
	at, err := layout.Write(work, empty.Index)
	if err != nil {
		return v1.Hash{}, fmt.Errorf("begin the layout: %w", err)
	}
	named := layout.WithAnnotations(map[string]string{"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name})
	if err := at.AppendIndex(index, named); err != nil {
		return v1.Hash{}, fmt.Errorf("add the images to the layout: %w", err)
	}
	for _, bill := range bills {
		if err := at.AppendImage(bill); err != nil {
			return v1.Hash{}, fmt.Errorf("add a bill of materials to the layout: %w", err)
		}
	}
	if err := pack(path, work, from.time); err != nil {
		return v1.Hash{}, err
	}
	return index.Digest()
}

// image makes the image of one platform.
func (p program) image(platform, binary string, from commit) (v1.Image, error) {
	files, err := rootfs(p.name, binary, from.time)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files)), nil }, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, fmt.Errorf("make the layer: %w", err)
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: from.time}, CreatedBy: "hack/image"}})
	if err != nil {
		return nil, fmt.Errorf("add the layer: %w", err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", platform, v1.Time{Time: from.time}
	config.Config = v1.Config{
		Entrypoint: []string{"/" + p.name}, User: fmt.Sprintf("%d:%d", user, user), WorkingDir: "/",
		Labels: map[string]string{
			"org.opencontainers.image.title": "tidewaiter-" + p.name, "org.opencontainers.image.description": p.description,
			"org.opencontainers.image.licenses": "Apache-2.0", "org.opencontainers.image.revision": from.hash,
			"org.opencontainers.image.source": "https://github.com/tidewaiter/tidewaiter",
		},
	}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return nil, fmt.Errorf("set the configuration: %w", err)
	}
	return image, nil
}

// billImage wraps the bill of materials of an image as an OCI artifact that refers to it (image specification 1.1, subject).
func billImage(image v1.Image, binary string, p program, created time.Time) (v1.Image, error) {
	bill, err := billOf(binary, p, created)
	if err != nil {
		return nil, err
	}
	subject, err := partial.Descriptor(image)
	if err != nil {
		return nil, fmt.Errorf("describe the image: %w", err)
	}
	artifact := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), cyclonedx)
	if artifact, err = mutate.AppendLayers(artifact, static.NewLayer(bill, cyclonedx)); err != nil {
		return nil, fmt.Errorf("add the bill of materials: %w", err)
	}
	referring, ok := mutate.Subject(artifact, *subject).(v1.Image)
	if !ok {
		return nil, fmt.Errorf("refer to %s: not an image any more", subject.Digest)
	}
	return referring, nil
}

func platformOf(architecture string) *v1.Platform {
	return &v1.Platform{OS: "linux", Architecture: architecture}
}

// rootfs is the layer of an image: all that the program finds when it starts.
func rootfs(name, binary string, created time.Time) ([]byte, error) {
	program, err := os.ReadFile(binary)
	if err != nil {
		return nil, fmt.Errorf("read the program: %w", err)
	}
	passwd := fmt.Sprintf("root:x:0:0:root:/:/sbin/nologin\nnonroot:x:%d:%d:nonroot:/tmp:/sbin/nologin\n", user, user)
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, file := range []struct {
		name string
		mode int64
		data []byte
	}{
		{"etc/", 0o755, nil}, {"etc/passwd", 0o644, []byte(passwd)}, {"tmp/", 0o1777, nil}, {name, 0o755, program},
	} {
		header := &tar.Header{Name: file.name, Mode: file.mode, Size: int64(len(file.data)), ModTime: created, Typeflag: tar.TypeReg}
		if file.data == nil {
			header.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("write the layer: %w", err)
		}
		if _, err := w.Write(file.data); err != nil {
			return nil, fmt.Errorf("write the layer: %w", err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("write the layer: %w", err)
	}
	return out.Bytes(), nil
}

// pack writes a folder as a tar file whose bytes depend on nothing but names and contents.
func pack(path, folder string, created time.Time) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make the folder of the archive: %w", err)
	}
	out, err := os.CreateTemp(filepath.Dir(path), ".tidewaiter-*.tar")
	if err != nil {
		return fmt.Errorf("make the archive: %w", err)
	}
	defer os.Remove(out.Name()) //nolint:errcheck // renamed by then, or of no use
	w := tar.NewWriter(out)
	err = filepath.WalkDir(folder, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(folder, file)
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Name: filepath.ToSlash(name), Mode: 0o644, Size: int64(len(data)), ModTime: created, Typeflag: tar.TypeReg}); err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	})
	for _, end := range []func() error{w.Close, out.Sync, func() error { return out.Chmod(0o644) }, out.Close} {
		if endErr := end(); err == nil {
			err = endErr
		}
	}
	if err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	if err := os.Rename(out.Name(), path); err != nil {
		return fmt.Errorf("put the archive in its place: %w", err)
	}
	return nil
}
