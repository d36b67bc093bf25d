//go:build unix && !linux

package wasm

import "math"

// mapNoReserve: what is mapped takes no memory here before it is used.
const mapNoReserve = 0

func backends() []way { return []way{{MemoryFile, newFileMapping}, {MemoryCopy, newCopying}} }

// mostRegions: no bound is known here.
func mostRegions() int64 { return math.MaxInt64 }
