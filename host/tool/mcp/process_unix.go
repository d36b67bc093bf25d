//go:build unix

package mcp

import (
	"os"
	"os/exec"
	"syscall"
)

// ownGroup makes the program the first of a process group of its own: so it can be
// ended with what it has started, and a terminal's Ctrl-C does not reach it before its
// host.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// endGroup tells the programs of a group to end, or ends them.
func endGroup(first *os.Process, kill bool) {
	signal := syscall.SIGTERM
	if kill {
		signal = syscall.SIGKILL
	}
	_ = syscall.Kill(-first.Pid, signal) // an error says that there is none any more
}
