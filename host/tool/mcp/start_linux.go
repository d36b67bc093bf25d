package mcp

import (
	"os/exec"
	"runtime"
	"syscall"
)

// start starts a program that is sent SIGTERM when its host dies, however that dies.
// Linux sends it when the thread dies that has started the program, so that thread does
// nothing else until ended is closed.
func start(cmd *exec.Cmd, ended <-chan struct{}) error {
	cmd.SysProcAttr.Pdeathsig = syscall.SIGTERM
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			<-ended
		}
	}()
	return <-started
}
