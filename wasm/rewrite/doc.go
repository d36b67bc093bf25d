// Package rewrite owns what is done to a WebAssembly module before an engine
// sees it: it refuses what a cell does not have, and writes metering, limits and
// determinism into the code. It takes bytes and returns bytes.
//
// # What is added
//
// The import "agentcell"."check" (i32) -> (), after the module's own imports, so
// that the indices of its functions rise by one; four mutable globals,
// exported as ExportFuel, ExportDepth, ExportPages and ExportRefused; an export for every
// mutable global of the original; three functions. The four globals start at zero: the
// host sets them before it calls the guest. The start section becomes the
// export ExportStart. Of custom sections only functions' names are kept.
//
// # Fuel
//
// Fuel counts steps, the same under every engine. A step is
//
//   - a call of a function of the module;
//   - each time control reaches the head of a loop;
//   - a stretch of 256 instructions. On every way through the code there is a
//     step before the 257th instruction after the last one, every instruction of
//     the original counting one, block, loop, if, else and end included. Where
//     ways meet, the longest counts.
//
// So a step stands for at most 256 instructions, mostly for a few, and a program
// does not pay for code that it jumps over. In addition
//
//   - memory.fill, memory.copy and memory.init of n bytes cost n/64, rounded down;
//     fills and copies above 1 MiB go MiB by MiB, each paid after it is done;
//   - memory.grow by n pages costs n·1024, unless it goes past ExportPages.
//
// When fuel falls below zero, check(CheckFuel) is called: the host must trap, or
// set fuel to zero or more and return. A function of at most 16 instructions that calls nothing
// pays but leaves the check to its caller, so that fuel may be a little below
// zero when the guest returns.
//
// # Call depth
//
// A function that calls takes one frame of ExportDepth while it runs; functions
// that call nothing take none. When the frames fall below zero, check(CheckDepth)
// is called. A trap does not give frames back.
//
// # Memory
//
// memory.grow returns -1 when memory would have more than ExportPages pages, and
// ExportRefused tells until the next one that it did.
// Active data segments near each other are merged, the bytes between them zero as
// they are anyway, unless instructions can name segments. TakeData takes them out
// altogether.
//
// # NaN
//
// WebAssembly leaves a NaN's sign and payload open, and engines differ. Where the
// bits can be seen every NaN becomes the canonical one, positive with
// only the highest bit of its payload set: what is stored to memory as a float,
// set to a float global, reinterpreted as an integer, or lends its sign (the
// second operand of copysign). Imports take no floats. So a float's payload does not
// outlive a store, which programs that keep data in NaNs must do as integers.
//
// Package rewrite imports nothing of ours and never an engine.
package rewrite
