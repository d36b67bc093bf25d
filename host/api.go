package host

import (
	"time"

	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/sdk/abi"
)

// ExecState is what a session's last or open turn is doing.
type ExecState string

// The states. INTERRUPTED is derived when read: a turn is open and no process
// runs it. AWAITING is the same for a turn that is parked: it waits for a decision,
// a time or a signal.
const (
	ExecPending     ExecState = "PENDING"
	ExecRunning     ExecState = "RUNNING"
	ExecInterrupted ExecState = "INTERRUPTED"
	ExecAwaiting    ExecState = "AWAITING"
	ExecCompleted   ExecState = "COMPLETED"
	ExecFailed      ExecState = "FAILED"
	ExecCanceled    ExecState = "CANCELED"
)

// ComputeState is what of a session is in memory.
type ComputeState string

// The compute states. They are asked of this host and never stored, so no ghost
// of a dead process is ever LIVE.
const (
	ComputeNone       ComputeState = "NONE"       // it has never run
	ComputeLive       ComputeState = "LIVE"       // its turn is running
	ComputeWarm       ComputeState = "WARM"       // its next turn finds a cell in the state it begins from
	ComputeCold       ComputeState = "COLD"       // everything is in the store
	ComputeTerminated ComputeState = "TERMINATED" // it was deleted
)

// Session is what is known of a session.
type Session struct {
	UID     abi.SessionID
	Project string
	Name    string
	// Harness and Module are what the session is pinned to; Model is its default
	// model, empty for the host's.
	Harness string
	Module  abi.Digest
	Runtime string
	// HoldsMemory: the harness's memory is saved at each END.
	HoldsMemory bool
	Model       string
	Config      []byte
	Labels      map[string]string
	// Grants are patterns of the names of tools that turns may call; all if there are
	// none.
	Grants []string
	// Limits, Deadline and CallTimeout bound each of its turns; what is zero is the
	// host's.
	Limits                abi.Limits
	Deadline, CallTimeout time.Duration
	// Retention says which images of its past turns are kept; forks inherit it.
	Retention Retention
	Created   time.Time
	Updated   time.Time

	// Parent and ForkSeq name the record a forked session grew from.
	Parent  abi.SessionID
	ForkSeq abi.Seq

	State   ExecState
	Compute ComputeState
	// Suspended: a person put the session to rest, and nothing has run since.
	Suspended bool
	// Reason is why the last turn ended, empty before the first END.
	Reason abi.EndReason
	// Execution is the open turn, or else the last one.
	Execution abi.ExecutionID
	// Turns counts the ended turns of the whole record, a parent's included.
	Turns int64
	Head  journal.Head
	// Closed is the last closed point: the newest END or FORK.
	Closed abi.Seq
	// Root is the memory root that the next turn begins from.
	Root abi.Digest
	// Waiting is what the open turn is parked for, if it is.
	Waiting []Waiting
}

// CreateRequest asks for a new session.
type CreateRequest struct {
	Project string // empty: DefaultProject
	Name    string // optional; unique in the project
	Harness Harness
	Model   string
	Config  []byte // given to every turn that brings none of its own
	Labels  map[string]string
	// Grants name the tools that turns may call, by patterns in which * stands for any
	// text: all that the host has if there are none.
	Grants []string
	// Limits bound each turn; a zero field is the host's, none may be above it.
	Limits abi.Limits
	// Deadline and CallTimeout bound the time of each turn that names none of its
	// own; 0 means the host's.
	Deadline, CallTimeout time.Duration
	// Retention says which images of past turns are kept.
	Retention Retention
	// Budget bounds what the session may use, and each fork of it alone; TreeBudget what
	// the session and all its forks may use together.
	Budget, TreeBudget Amounts
}

// ExecRequest asks for one turn.
type ExecRequest struct {
	Session abi.SessionID
	// Inputs open a new turn. Without any, an open turn is recovered.
	Inputs []abi.Message
	// Model and Config override the session's for this turn; on recovery the
	// recorded ones win.
	Model  string
	Config []byte
	// Deadline bounds the wall time of the turn, but for what its calls of models
	// and tools take, each of which CallTimeout bounds; 0 means the host's.
	Deadline    time.Duration
	CallTimeout time.Duration
	// Expect, if set, is the seq the session's head must have.
	Expect *abi.Seq
	// Abandon ends an open turn as CANCELED before the new one starts.
	Abandon bool
	// Wait queues the turn behind those that are before it, in the order they
	// came; without it a busy session is ErrBusy.
	Wait bool
	// Key makes a retry harmless: of all requests of a session with one key, one
	// runs. Others get its outcome, or take its turn up where it stands. The same
	// key with other inputs is ErrConflict.
	Key string
	// Observe, if set, is called with every update of the turn, in order, from
	// one goroutine that is not the turn's: a slow observer delays the return of
	// Exec, never the turn. Deltas it has no room for are dropped; records are
	// not.
	Observe func(Update)

	again *Record // EXECUTION_START of the turn that this one runs again
}

// Update is one thing a turn shows: exactly one field is set.
type Update struct {
	// Record is durable (I6).
	Record *Record
	// Delta is a provisional piece of a model's answer; the OUTPUT record
	// replaces it.
	Delta *Delta
}

// Record is a committed record. Line is the stored line, the hash preimage.
type Record struct {
	Session abi.SessionID
	abi.LogRecord
	Line []byte
}

// Delta is a piece of an answer that is being streamed. Reset voids the pieces
// of earlier attempts.
type Delta struct {
	Session   abi.SessionID
	Execution abi.ExecutionID
	Attempt   int
	Text      string
	Reset     bool
	Done      bool
}

// Execution is how a turn ended. A turn that is parked has not: State is empty and
// Waiting says what for.
type Execution struct {
	Session Session
	ID      abi.ExecutionID
	State   abi.EndState
	Reason  abi.EndReason
	Err     *abi.Error
	Root    abi.Digest
	Fuel    uint64
	// Pages is how many pages of memory (abi.PageSize) a COMPLETED turn
	// changed, where its runtime has images.
	Pages   int
	Waiting []Waiting
	// Repeated: a request with the same key had run before, and this is how that
	// ended.
	Repeated bool
}

// ForkRequest asks for children of a session.
type ForkRequest struct {
	Session abi.SessionID
	// At is the closed point to fork from; 0 means the head, or the last closed
	// point while a turn is open.
	At abi.Seq
	// Count is 1 to MaxForkCount; 0 means 1.
	Count int
	// Names has none or exactly Count names.
	Names []string
	// Labels are those of the children: none are inherited.
	Labels map[string]string
	// Model is the default model of the children; empty means the parent's. Their
	// FORK record has it.
	Model string
	// Key makes a retry harmless: of all forks of a session with one key, one makes
	// children, and the others give the same ones, as they are by then. With another
	// count, point, model, other names or labels it is ErrConflict, as it is once some of
	// the children are deleted. At most MaxKeyBytes of UTF-8; empty is none.
	Key string

	again *again // what the children run again
}

// MaxForkCount is the most children one fork makes.
const MaxForkCount = 128

// VerifyRequest asks for a check of a session's whole record.
type VerifyRequest struct {
	Session abi.SessionID
	// Reexecute also runs every turn again and compares outputs and roots.
	Reexecute bool
	// Strict also checks that every line is in its canonical form.
	Strict bool
	// Head, if not zero, must be the hash of a record of the chain.
	Head abi.Digest
}

// Verification is the result of a check that found nothing wrong.
type Verification struct {
	Records int64
	Head    journal.Head
	// Reexecuted turns reached the recorded end and root; Prefix turns ended for
	// an external reason and matched as far as they went; ChainOnly turns ran on
	// a runtime that cannot re-execute.
	Reexecuted, Prefix, ChainOnly int64
	// Images is how many images of the session were read and are whole.
	Images int64
	// Upgrades of the harness, of which those of one that holds memory reached the
	// recorded root again.
	Upgrades int64
	// ProviderCalls counts the model calls that left the host meanwhile.
	ProviderCalls int64
	// Root is the root that the last turn reached.
	Root abi.Digest
}
