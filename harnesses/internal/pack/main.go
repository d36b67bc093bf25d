// Pack compresses a module for the bundle:
//
//	go run ./harnesses/internal/pack FILE.wasm FILE.wasm.gz
//
// The comment of the gzip header has what the bundle must know of a module before
// it is unpacked. The same module always gives the same bytes.
package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"os"

	"github.com/agentcell/agentcell/harnesses"
)

func main() {
	if err := pack(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}

func pack(args []string) error {
	if len(args) != 2 {
		return errors.New("want FILE.wasm FILE.wasm.gz")
	}
	code, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return err
	}
	w.Comment = harnesses.Describe(code)
	if _, err := w.Write(code); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(args[1], packed.Bytes(), 0o644)
}
