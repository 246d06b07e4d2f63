// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"text/template"
)

//go:embed conf
var templates embed.FS

// settings are what the files in conf are filled in with.
type settings struct {
	PKI, Conf, CNI, CgroupRoot, Containerd, PodImage, NodeName, NodeIP, DNSIP, PodRange string
}

func (n *node) settings(cni string) settings {
	return settings{
		PKI: n.path("pki"), Conf: n.path("conf"), CNI: cni, CgroupRoot: cgroupRoot, Containerd: containerd, PodImage: podImage,
		NodeName: nodeName, NodeIP: nodeIP, DNSIP: dnsIP, PodRange: podRange,
	}
}

// render fills in every file in conf, and returns them by their path there.
func render(s settings) (map[string][]byte, error) {
	files := map[string][]byte{}
	err := fs.WalkDir(templates, "conf", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		t, err := template.New(filepath.Base(path)).Option("missingkey=error").ParseFS(templates, path)
		if err != nil {
			return err
		}
		var out bytes.Buffer
		if err := t.Execute(&out, s); err != nil {
			return err
		}
		name, err := filepath.Rel("conf", path)
		files[name] = out.Bytes()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("fill in the configuration: %w", err)
	}
	return files, nil
}

func (n *node) writeConfig(cni string) error {
	files, err := render(n.settings(cni))
	if err != nil {
		return err
	}
	for name, data := range files {
		path := n.path("conf", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return fmt.Errorf("make a folder for configuration: %w", err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			return fmt.Errorf("write the configuration: %w", err)
		}
	}
	return nil
}
