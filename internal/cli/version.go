// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// newVersionCommand returns the verb that tells which build this is, as the Go toolchain wrote it into the binary.
func newVersionCommand(streams genericiooptions.IOStreams) *cobra.Command {
	return &cobra.Command{
		Use:               "version",
		Short:             "Tell the version of this plugin, and the API that it speaks",
		Args:              usage(noNames),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			info, ok := debug.ReadBuildInfo()
			if !ok {
				info = &debug.BuildInfo{}
			}
			revision := "unknown"
			for _, setting := range info.Settings {
				if setting.Key == "vcs.revision" {
					revision = setting.Value
				}
			}
			_, err := fmt.Fprintf(streams.Out, "Plugin version: %s\nGit commit: %s\nBuilt with: %s\nAPI: %s\n",
				cmp.Or(info.Main.Version, "unknown"), revision, cmp.Or(info.GoVersion, "unknown"), v1alpha1.GroupVersion)
			return err
		},
	}
}
