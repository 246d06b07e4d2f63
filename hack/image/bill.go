// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"runtime/debug"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// billOf lists what a program was built from (CycloneDX 1.6): every module that the linker noted in it, and Go itself.
func billOf(binary string, p program, created time.Time) ([]byte, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, fmt.Errorf("read what %s was built from: %w", p.name, err)
	}
	components := []cdx.Component{{
		Type: cdx.ComponentTypePlatform, BOMRef: "go", Name: "go", Version: info.GoVersion, Description: "Toolchain and standard library",
	}}
	for _, module := range info.Deps {
		components = append(components, componentOf(module))
	}
	bill := cdx.NewBOM()
	bill.SpecVersion = cdx.SpecVersion1_6
	main := componentOf(&info.Main)
	main.Type, main.Description = cdx.ComponentTypeApplication, p.description
	bill.Metadata = &cdx.Metadata{Timestamp: created.Format(time.RFC3339), Component: &main}
	bill.Components = &components
	var out bytes.Buffer
	if err := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bill, cdx.SpecVersion1_6); err != nil {
		return nil, fmt.Errorf("write the bill of materials of %s: %w", p.name, err)
	}
	return out.Bytes(), nil
}

// componentOf describes a module, or what stands in for it, by its package URL.
func componentOf(module *debug.Module) cdx.Component {
	for module.Replace != nil {
		module = module.Replace
	}
	url := "pkg:golang/" + module.Path
	if module.Version != "" {
		url += "@" + module.Version
	}
	c := cdx.Component{Type: cdx.ComponentTypeLibrary, BOMRef: url, Name: module.Path, Version: module.Version, PackageURL: url}
	if module.Sum != "" { // of go.sum, which is no digest of an archive
		c.Properties = &[]cdx.Property{{Name: "go:sum", Value: module.Sum}}
	}
	return c
}
