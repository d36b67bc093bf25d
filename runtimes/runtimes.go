// Package runtimes owns the SPI behind which harnesses run: Runtime and
// Incarnation, which a runtime implements, and Port, through which every
// outward call of a harness leaves and which the host implements. So no runtime
// ever sees the journal, and replay works the same for all of them.
//
// Runtimes differ by data (Capabilities), never by type switches. Abilities
// beyond the core are optional interfaces found by assertion: Restorer,
// Snapshotter, Rester and Mover.
//
// The package has interfaces, values and sentinels only. It imports sdk/abi and
// never an implementation, the engine, the journal or the host.
package runtimes

import (
	"context"
	"errors"
	"time"

	"github.com/agentcell/agentcell/sdk/abi"
)

// The errors a runtime returns; test with errors.Is.
var (
	// ErrModule reports a module this runtime does not take. Its text says
	// what is wrong with it. Retrying cannot help.
	ErrModule = errors.New("module refused")
	// ErrShortage reports that the host lacks something (memory, descriptors,
	// disk). The turn was not run, or was given up with nothing decided; it may
	// be retried.
	ErrShortage = errors.New("host resources exhausted")
	// ErrStopped reports a call on an incarnation that was stopped or can no
	// longer run, for instance after a trap.
	ErrStopped = errors.New("incarnation stopped")
)

// Capabilities are what a runtime can give. Placement compares them with what
// a harness needs before any compute starts (P1).
type Capabilities struct {
	// Runtime is the runtime's name, for messages and for sessions' metadata.
	Runtime string
	// MemorySnapshot: incarnations implement Snapshotter and the runtime
	// implements Restorer.
	MemorySnapshot bool
	// Reexecutable: the same module, image and answers reach the same outputs
	// and the same image, so a turn can be proven by running it again.
	Reexecutable bool
	// Sealed: a harness reaches nothing but its Port.
	Sealed bool
	// GPU: a harness may use one.
	GPU bool
}

// Runtime runs harnesses of one form. It is safe for concurrent use.
type Runtime interface {
	Capabilities() Capabilities

	// Describe loads m and asks the harness what it is. It runs no turn and
	// reaches no Port. It wraps ErrModule if m cannot be taken. Repeated calls
	// for one module are cheap.
	Describe(ctx context.Context, m Module) (Description, error)

	// Create gives an incarnation of m in its initial state.
	Create(ctx context.Context, m Module) (Incarnation, error)

	// Close ends every incarnation and frees what the runtime holds.
	Close(ctx context.Context) error
}

// Restorer is a Runtime that can start an incarnation from a saved image.
type Restorer interface {
	Runtime
	// Restore gives an incarnation of m in the state of img. It does not keep
	// img.Pages after it returns.
	Restore(ctx context.Context, m Module, img Image) (Incarnation, error)
}

// Incarnation is one living instance of a harness. It serves one session and
// one call at a time; calls must not overlap, Stop excepted.
type Incarnation interface {
	// Run drives one turn to its end. Every outward call of the harness goes
	// through port, from one goroutine, in order.
	//
	// A turn that ends by itself (completed, failed, trapped, out of fuel)
	// gives an Outcome and no error. Run returns an error, and an Outcome that has
	// its Fuel at most, when the turn was given up: ctx ended (the error wraps context.Cause(ctx)),
	// port returned an error (Run wraps it), or the host ran short
	// (ErrShortage). After an error, and after any Outcome but completed, the
	// incarnation can only be stopped.
	Run(ctx context.Context, t Turn, port Port) (Outcome, error)

	// Status tells whether the incarnation can run another turn.
	Status() Status

	// Stop ends the incarnation. It may be called at any time, and again.
	Stop(ctx context.Context) error
}

// Snapshotter is an Incarnation whose state between turns can be saved.
type Snapshotter interface {
	Incarnation
	// Snapshot gives the incarnation's state. It may be called while Status is
	// Ready; the pages are valid until the next Run or Stop.
	Snapshot(ctx context.Context) (Image, error)
}

// Rester is an Incarnation that can be kept between turns for a fraction of the
// memory that one takes which is ready to run.
type Rester interface {
	Incarnation
	// Rest lets go of all that the incarnation needs for running only, and tells how
	// many bytes of memory it still holds. It may be called while Status is Ready,
	// which it stays; Run and Snapshot work as before and take a little longer. Pages
	// of a snapshot are not valid any more. After an error the incarnation can only
	// be stopped.
	Rest(ctx context.Context) (held uint64, err error)
	// Wake undoes Rest, as Run does by itself: for those who want to know before
	// Run whether the host has room. After ErrShortage it may be tried again.
	Wake(ctx context.Context) error
	// Clone gives another incarnation in the same state, at rest, while Status is
	// Ready. It is cheapest of one that rests itself: they share what that holds.
	Clone(ctx context.Context) (Rester, error)
}

// Mover is an Incarnation whose harness can carry what it remembers into one of
// another module. Both calls are given t but for its Execution and Cloned, reach no
// Port, and are over as Run says; a harness that has no such ability ends with
// abi.CodeUnimplemented. Where the runtime is Reexecutable, what comes of them is a
// function of the module, the state before and the arguments.
type Mover interface {
	Incarnation
	// Save asks the harness for what it remembers, in a form of its own of at most
	// abi.MaxStateBytes, nil unless the Outcome is completed. The incarnation can
	// only be stopped then.
	Save(ctx context.Context, t Turn) ([]byte, Outcome, error)
	// Load gives it to the harness of an incarnation that has just been created,
	// which can then run turns and be snapshotted. It does not keep state.
	Load(ctx context.Context, t Turn, state []byte) (Outcome, error)
}

// Port is how a harness reaches the world: one method for every import of the
// ABI that leaves the cell (all but read, reply and fail, which the runtime
// serves itself).
type Port interface {
	// Call performs op. An error gives the turn up; everything a guest may be
	// told is in the Response. The runtime does not keep request or the body
	// after it has returned, and Call does not keep request.
	Call(ctx context.Context, op abi.Op, request []byte) (Response, error)
}

// Response is what a guest gets for a Call.
type Response struct {
	Status abi.Status
	// Body is the answer; with a Status other than OK, the error's text.
	Body []byte
	// Now, if not zero, moves the cell's clock forward to this instant, never
	// back.
	Now time.Time
	// Seed, if set, keys the cell's randomness from here on: the record passes
	// a fork.
	Seed *[32]byte
}

// Module is a harness's code.
type Module struct {
	// Digest is the SHA-256 of the bytes.
	Digest abi.Digest
	// Name is what people call the harness, for messages.
	Name string
	// Code reads the bytes. It is called only if the runtime has not loaded
	// this digest before.
	Code func() ([]byte, error)
}

// Description is what a runtime knows of a module.
type Description struct {
	Harness abi.HarnessDescriptor
	// ABI is the version of the ABI the module speaks.
	ABI int32
	// Rewriter is the version of the load-time rewriting, 0 where there is none.
	Rewriter int32
	// Imports are the module's imports as "module.name", sorted: its
	// capabilities.
	Imports []string
	// Size is the size of the code in bytes.
	Size int64
	// Golden is the state of a fresh incarnation, where the runtime has
	// MemorySnapshot or is Reexecutable. Its pages stay valid until Close.
	Golden Image
}

// Turn is what a turn is a function of, beside the module, the image and the
// answers of the Port.
type Turn struct {
	Execution abi.ExecutionID
	// Seed keys the cell's randomness.
	Seed [32]byte
	// Start is the time of EXECUTION_START: the cell's clock begins at the
	// later of it and the image's.
	Start time.Time
	// Limits are the bounds the guest can notice.
	Limits abi.Limits
	// Cloned: this is the first turn of a session since it was forked. A
	// harness that wants to know is told before its turn runs, effects refused.
	Cloned bool
}

// Outcome is how a turn ended by itself.
type Outcome struct {
	Reason abi.EndReason
	// Err tells what failed; nil when Reason is completed.
	Err *abi.Error
	// Fuel is what the turn used; 0 where the runtime does not count.
	Fuel uint64
}

// Status is the state of an incarnation.
type Status int

// The states.
const (
	Ready   Status = iota // can run a turn or be snapshotted
	Running               // in a turn
	Stopped               // can only be stopped
)

// Image is the whole state of a cell between turns, as a plain value. Only the
// journal hashes it.
type Image struct {
	// Size is the length of linear memory in bytes, a multiple of abi.PageSize.
	Size uint64
	// Globals are the mutable globals of the original module, in index order.
	Globals []abi.Global
	// Clock is the cell's clock in nanoseconds.
	Clock int64
	// Changed lists, ascending, the pages below Size that may differ from the
	// image this incarnation began its turn with (for a Golden image, and for
	// one given to Restore: from all-zero pages and from the golden image
	// respectively). Pages beyond the other image's Size count as zero there.
	Changed []uint32
	// Pages reads the pages named in Changed; who has the image, Restore too, may read
	// several at once.
	Pages PageReader
	// Root, if not zero, names the image that is given to Restore: of two with one
	// root all is equal. A runtime may keep a large image for the next incarnation.
	Root abi.Digest
	// Diff, if set, lists for Restore the pages in which the image differs from the
	// one that a root names, false if the host does not know that one.
	Diff func(root abi.Digest) ([]uint32, bool)
}

// PageReader reads pages of an image.
type PageReader interface {
	// ReadPage fills dst, which has abi.PageSize bytes, with page index.
	ReadPage(index uint32, dst []byte) error
}

// PagesReader is a PageReader that reads many pages for less than each costs alone.
// The Pages of an image that is given to Restore may be one.
type PagesReader interface {
	PageReader
	// ReadPages hands the listed pages to use, in any order and from several
	// goroutines at once; what use gets is valid until it returns. The first error,
	// of use or of a page, ends it.
	ReadPages(list []uint32, use func(index uint32, content []byte) error) error
}
