// Package wasm owns the engine that harnesses run in: it checks a module,
// rewrites it, compiles it, instantiates it, meters it, and takes its memory
// out and puts it in again. It hides wazero completely.
//
// The stages have different names. An Engine loads code; Compiled is a module
// whose golden image is made; an Instance is a cell in the hands of one
// session, in which turns are run.
//
// What a guest can observe is a function of the module, the image, the Turn and
// the answers of its Handler, and of nothing else (M2): both engines reach the
// same ends, the same images and the same fuel figures.
//
// # Fuel
//
// The rewriting counts what a guest executes; see package rewrite. Calls of host
// functions are charged as well, so that fuel bounds a flood of them: 1,000
// units for a call, 1 for every byte of a request, of what read copies, and of
// what goes through fd_write and poll_oneoff, and 2 for every byte of
// random_get. A turn whose fuel is used up ends there, at the same instruction
// always.
//
// # Safety
//
// A guest can end its own turn, and nothing else. Pointers and lengths are
// checked before they are used, requests leave as copies, and whatever a guest
// does or a handler panics with becomes an error in one place (call.invoke). A
// cell that did not simply return from its turn is never used again.
//
// The package imports sdk/abi and wasm/rewrite, and never runtimes, the journal
// or the host.
package wasm
