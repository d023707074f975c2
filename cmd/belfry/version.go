package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// Set by the linker: -X main.version=v1.2.3 -X main.commit=abcdef.
var (
	version = ""
	commit  = ""
)

// build identifies this binary.
type build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// thisBuild returns the values set by the linker, or else those recorded by the Go tool.
func thisBuild() build {
	b := build{Version: version, Commit: commit, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		b.Version = cmp.Or(b.Version, info.Main.Version)
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				b.Commit = cmp.Or(b.Commit, s.Value)
			}
		}
	}
	b.Version, b.Commit = cmp.Or(b.Version, "(devel)"), cmp.Or(b.Commit, "unknown")
	return b
}

// String returns the line that `belfry version` and `belfry --version` print.
func (b build) String() string {
	return fmt.Sprintf("belfry %s, commit %s, %s, %s", b.Version, b.Commit, b.Go, b.Platform)
}

func newVersionCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "version", Short: "Show version, commit, Go and platform", Args: noArgs}
	out := addOutput(cmd)
	cmd.RunE = func(_ *cobra.Command, _ []string) error {
		b := thisBuild()
		if out.json() {
			return a.printJSON(b)
		}
		a.printf("%s\n", b)
		return nil
	}
	return cmd
}
