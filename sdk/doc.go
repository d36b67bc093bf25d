// Package sdk owns what a harness written in Go is made of: the Harness
// interface its author implements, the Turn it is given, and the glue between
// both and the guest ABI.
//
// A harness is a package main that registers itself and has nothing in main:
//
//	type hello struct{}
//
//	func (hello) Describe() abi.HarnessDescriptor {
//		return abi.HarnessDescriptor{ID: "hello", Version: "1"}
//	}
//
//	func (hello) Run(ctx context.Context, t *sdk.Turn) error {
//		_, err := t.Model(ctx, abi.ModelCall{Messages: t.Inputs()})
//		return err
//	}
//
//	func init() { sdk.Register(hello{}) }
//
//	func main() {}
//
// It is built with the standard toolchain:
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -o hello.wasm .
//
// # What a cell is like
//
// A cell has no files, no network and no clock of its own; what a turn does is a
// function of the module, the memory image and what the host answers (M2). For
// code this means:
//
//   - Time is virtual. It starts at the turn's start, moves on when the host
//     answers, and a little with each reading. time.Sleep, timers and
//     context deadlines move it to the moment they wait for and take no real
//     time; a slow model call is not cut short by them. Turn.Sleep takes real
//     time.
//   - Goroutines run, one at a time, while Run does, and their order is
//     repeated exactly. What is still running when Run returns stands still and, in
//     a harness that holds memory, goes on with the next turn, which is rarely
//     wanted: wait for them. If all of them block, or one other than Run's
//     panics, the Go runtime aborts and the turn ends FAILED by a trap.
//   - math/rand's top-level functions and the seeds of maps are drawn once,
//     before the module's golden image is taken, so every session and every
//     fork has the same ones. Turn.Rand differs in each turn and each fork (M6).
//
// # Another build
//
// A session stays with the module it was made with, until agentctl upgrade gives it
// another. A harness without memory needs nothing for that; one that holds memory
// hands it over by being Portable, which it must have been before anybody wants to
// leave it.
//
// # Running natively
//
// RunTurn runs a turn of a harness in any Go program, over a Transport. The
// package builds on every platform; only guest_wasip1.go knows the imports.
//
// The package imports sdk/abi and the standard library, and never the host, the
// journal, the engine or a runtime.
package sdk
