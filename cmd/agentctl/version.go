package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/agentcell/agentcell/sdk/abi"
)

// version is set by the linker when make builds a release.
var version = ""

func newVersionCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print what this agentctl is",
		Long:    "version prints the version of agentctl, what it was built from and for, and the guest ABI it speaks.",
		Example: `  agentctl version --json`,
		Args:    noArguments,
		RunE: func(*cobra.Command, []string) error {
			runVersion(a)
			return nil
		},
	}
}

type versionJSON struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	ABI      int32  `json:"abi"`
}

func runVersion(a *app) {
	v := versionJSON{
		Version: ownVersion(), Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, ABI: abi.Version,
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				v.Revision = s.Value
			}
		}
	}
	if a.json {
		a.object(v)
		return
	}
	a.line(fmt.Sprintf("agentctl %s %s %s, ABI %d", v.Version, v.Go, v.Platform, v.ABI))
}

// ownVersion is the version of this agentctl, or "unknown".
func ownVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}
