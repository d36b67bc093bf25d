//go:build !unix

package mcp

import (
	"os"
	"os/exec"
)

func ownGroup(*exec.Cmd) {}

// endGroup ends the program; there is no way to tell it to.
func endGroup(first *os.Process, kill bool) {
	if kill {
		_ = first.Kill() // an error says that it has ended
	}
}
