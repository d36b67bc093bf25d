//go:build !linux

package mcp

import "os/exec"

// start starts a program. When its host is killed it can see that its stdin ends.
func start(cmd *exec.Cmd, _ <-chan struct{}) error { return cmd.Start() }
