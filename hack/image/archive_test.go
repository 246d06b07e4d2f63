// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

var (
	created = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	from    = commit{hash: "562f3b368f49339ac9d2d0b0210cce9944fa5fef", time: created}
)

// written is an archive of the test's own binary, taken apart again.
func written(t *testing.T) (path string, index v1.ImageIndex, manifest *v1.IndexManifest) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "dist", "gateway.oci.tar")
	p := program{"gateway", "./cmd/gateway", "Enforces policy"}
	if _, err := p.archive(path, "ghcr.io/tidewaiter/tidewaiter-gateway:dev", map[string]string{"amd64": self, "arm64": self}, from); err != nil {
		t.Fatal(err)
	}
	index, err = layout.ImageIndexFromPath(unpacked(t, path))
	if err != nil {
		t.Fatal(err)
	}
	if manifest, err = index.IndexManifest(); err != nil {
		t.Fatal(err)
	}
	return path, index, manifest
}

func unpacked(t *testing.T, path string) string {
	t.Helper()
	folder := t.TempDir()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for name, data := range entries(t, file) {
		to := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// entries returns the files of a tar stream; everything in it is of the time of the commit and owned by root.
func entries(t *testing.T, from io.Reader) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	r := tar.NewReader(from)
	for {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if !header.ModTime.Equal(created) || header.Uid != 0 || header.Gid != 0 {
			t.Errorf("%s is of %s and belongs to %d:%d", header.Name, header.ModTime, header.Uid, header.Gid)
		}
		if files[header.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

// TestArchive makes two archives of one binary, since that is what takes the time.
func TestArchive(t *testing.T) {
	t.Parallel()
	first, index, manifest := written(t)
	second, _, _ := written(t)
	t.Run("the same binaries give the same archive", func(t *testing.T) { wantSame(t, first, second) })
	t.Run("it holds an image for each platform", func(t *testing.T) { wantImages(t, index, manifest) })
	t.Run("every image has a bill of materials", func(t *testing.T) { wantBills(t, index, manifest) })
}

func wantSame(t *testing.T, first, second string) {
	t.Helper()
	a, err := os.ReadFile(first)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(second)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a, b) {
		t.Error("two archives of the same binaries differ")
	}
}

func wantImages(t *testing.T, index v1.ImageIndex, manifest *v1.IndexManifest) {
	t.Helper()
	images := manifest.Manifests[0]
	if images.MediaType != types.OCIImageIndex || images.Annotations["io.containerd.image.name"] != "ghcr.io/tidewaiter/tidewaiter-gateway:dev" {
		t.Fatalf("the first entry is %v", images)
	}
	platforms, err := index.ImageIndex(images.Digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(platforms); err != nil {
		t.Error(err)
	}
	list, err := platforms.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Manifests) != 2 {
		t.Fatalf("%d images", len(list.Manifests))
	}
	for _, entry := range list.Manifests {
		image, err := platforms.Image(entry.Digest)
		if err != nil {
			t.Fatal(err)
		}
		config, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if config.Architecture != entry.Platform.Architecture || config.OS != "linux" || !config.Created.Equal(created) ||
			config.Config.User != "65532:65532" || len(config.Config.Entrypoint) != 1 || config.Config.Entrypoint[0] != "/gateway" ||
			config.Config.Labels["org.opencontainers.image.title"] != "tidewaiter-gateway" || config.Config.Labels["org.opencontainers.image.revision"] != from.hash {
			t.Errorf("configuration: %+v", config)
		}
		layers, err := image.Layers()
		if err != nil || len(layers) != 1 {
			t.Fatalf("%d layers, %v", len(layers), err)
		}
		content, err := layers[0].Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		files := entries(t, content)
		self, _ := os.Executable()
		if program, err := os.ReadFile(self); err != nil || !bytes.Equal(files["gateway"], program) {
			t.Errorf("the program is not what was given (%v)", err)
		}
		if !strings.Contains(string(files["etc/passwd"]), "nonroot:x:65532:") || len(files) != 4 {
			t.Errorf("%d files; passwd: %s", len(files), files["etc/passwd"])
		}
	}
}

func wantBills(t *testing.T, index v1.ImageIndex, manifest *v1.IndexManifest) {
	t.Helper()
	platforms, err := index.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	list, err := platforms.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	about := map[v1.Hash]bool{}
	for _, entry := range manifest.Manifests[1:] {
		artifact, err := index.Image(entry.Digest)
		if err != nil {
			t.Fatal(err)
		}
		m, err := artifact.Manifest()
		if err != nil {
			t.Fatal(err)
		}
		if m.Subject == nil || m.Config.MediaType != cyclonedx || len(m.Layers) != 1 || m.Layers[0].MediaType != cyclonedx {
			t.Fatalf("the manifest of a bill: %+v", m)
		}
		about[m.Subject.Digest] = true
		layers, err := artifact.Layers()
		if err != nil {
			t.Fatal(err)
		}
		text, err := layers[0].Compressed()
		if err != nil {
			t.Fatal(err)
		}
		var bill cdx.BOM
		if err := cdx.NewBOMDecoder(text, cdx.BOMFileFormatJSON).Decode(&bill); err != nil {
			t.Fatal(err)
		}
		versions := map[string]string{}
		for _, component := range *bill.Components {
			versions[component.Name] = component.Version
		}
		if !strings.HasPrefix(versions["go"], "go1.") || versions["github.com/google/go-containerregistry"] == "" {
			t.Errorf("the bill lists %v", versions)
		}
	}
	for _, entry := range list.Manifests {
		if !about[entry.Digest] {
			t.Errorf("no bill is about %s", entry.Digest)
		}
	}
}

func TestWithoutABinaryThereIsNoArchive(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gateway.oci.tar")
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("no program"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, binary := range map[string]string{"absent": filepath.Join(t.TempDir(), "none"), "not of Go": text} {
		if _, err := (program{name: "gateway"}).archive(path, "x:y", map[string]string{"amd64": binary}, from); err == nil {
			t.Errorf("%s: an archive is made", name)
		}
		if left, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*")); err != nil || len(left) > 0 {
			t.Errorf("%s: left %v, %v", name, left, err)
		}
	}
}

func TestPlatforms(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		list string
		want []string
		err  string
	}{
		"one":                           {list: "linux/arm64", want: []string{"arm64"}},
		"both":                          {list: "linux/amd64,linux/arm64", want: []string{"amd64", "arm64"}},
		"none is refused":               {list: "", err: `"" is not built; there are linux/amd64, linux/arm64`},
		"another system is refused":     {list: "darwin/arm64", err: `"darwin/arm64" is not built; there are linux/amd64, linux/arm64`},
		"an unknown machine is refused": {list: "linux/amd64,linux/vax", err: `"linux/vax" is not built; there are linux/amd64, linux/arm64`},
		"the same twice is refused":     {list: "linux/amd64,linux/amd64", err: "linux/amd64 is named twice"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := parsePlatforms(tc.list)
			text := ""
			if err != nil {
				text = err.Error()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || text != tc.err {
				t.Errorf("error %q, want %q; platforms (-want +got):\n%s", text, tc.err, diff)
			}
		})
	}
}
