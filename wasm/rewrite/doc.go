// Package rewrite owns what is done to a WebAssembly module before an engine
// sees it: it refuses what a cell does not have, and writes metering, limits and
// determinism into the code. It takes bytes and returns bytes.
//
// # What is added
//
// The import "agentcell"."check" (i32) -> (), after the module's own imports, so
// that the indices of its functions rise by one; three mutable globals,
// exported as ExportFuel, ExportDepth and ExportPages; an export for every mutable
// global of the original; three functions. All three globals start at zero: the
// host sets them before it calls the guest. The start section becomes the
// export ExportStart. Of custom sections only functions' names are kept.
//
// # Fuel
//
// Fuel is an upper bound of the instructions executed, the same under every
// engine. A region is the body of a function without the bodies of its
// loops, or the body of a loop without those of loops within it; its cost is the
// number of the original's instructions in it, each counting one, block, loop,
// if, else and end included (the loop instruction counts in the region around it,
// its end within). A region is paid for when it is entered: at each call of the
// function, and each time control reaches the head of the loop. So both arms of
// an if are paid, and all of a loop's body however soon it is left. In addition
//
//   - memory.fill and memory.copy of n bytes cost n/8, rounded down, paid after
//     it is done; above 1 MiB they go MiB by MiB, each paid on its own, and the last
//     part by its length;
//   - memory.init of n bytes costs n/8, paid before;
//   - memory.grow by n pages costs n·8192, unless it goes past ExportPages.
//
// When fuel falls below zero, check(CheckFuel) is called, in the middle of what
// was paid for: the host may trap, or add fuel and return. A function that calls
// nothing and costs 16 or less (outside its loops) pays, but leaves it to the next
// check to notice; so fuel may be a little below zero when the guest returns.
//
// # Call depth
//
// A function that calls takes one frame of ExportDepth while it runs; functions
// that call nothing take none. When the frames fall below zero, check(CheckDepth)
// is called. A trap does not give frames back.
//
// # Memory
//
// memory.grow returns -1 when memory would have more than ExportPages pages.
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
