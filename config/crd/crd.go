// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Package crd holds the CustomResourceDefinitions as they are installed, for programs that check objects without an API
// server.
package crd

import "embed"

// Bases has one file a kind, bases/tidewaiter.dev_PLURAL.yaml.
//
//go:embed bases/*.yaml
var Bases embed.FS
