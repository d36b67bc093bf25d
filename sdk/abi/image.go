package abi

// PageSize is the size of a page of a memory image, in bytes.
const PageSize = 4096

// Global is the value of a mutable global of a module: its WebAssembly type
// byte and its bits, little-endian, zero-extended.
type Global struct {
	Type  byte
	Value [16]byte
}
