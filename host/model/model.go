// Package model owns the seam to language models: Provider, which makes one
// completion, and the values that cross it.
//
// A provider performs the call and nothing else: it does not retry across
// crashes, record, or choose between answers. That is the host's work, which
// calls a provider only for what the journal cannot serve (I1) and only after
// the intent is durable (I3). The packages below this one are the only code
// that talks to a model.
//
// It imports sdk/abi and never the host, the journal, a runtime or a provider.
package model

import (
	"context"

	"github.com/agentcell/agentcell/sdk/abi"
)

// Provider makes completions. It is safe for concurrent use.
type Provider interface {
	// Complete makes one completion and returns it whole.
	//
	// While the answer arrives, deltas is called with its text, piece by piece
	// and in order, from the calling goroutine and never after Complete has
	// returned. It may be nil when nobody watches. Deltas are provisional: only
	// the Result counts. In a call that succeeds, the texts since the last Reset
	// join to the text of the Result, and the last delta, and only it, is Done.
	//
	// When ctx ends, Complete returns soon, with an error that wraps ctx.Err().
	// Every other error is a failure of the call, which the caller may record
	// as the call's result: an *Error says under which code. A failed call may
	// have been made and paid for; whether to make it again is the caller's
	// choice.
	//
	// Complete keeps nothing of req and does not change it.
	Complete(ctx context.Context, req Request, deltas func(Delta)) (Result, error)
}

// Router finds providers for names that nobody can list, such as those that match
// a pattern. It is safe for concurrent use, and always has the same answer.
type Router interface {
	// Route is the provider of the named model, nil if there is none.
	Route(name string) Provider
	// Names are the names and patterns that it knows, for people to read.
	Names() []string
}

// Request asks for one completion.
type Request struct {
	// Session is the session the call is made for.
	Session abi.SessionID
	// Index counts the session's recorded model calls, from 0. A fork child's
	// count goes on from its ancestors'.
	Index int64
	// Attempt is 0 when the call is made first, and more when it is made again
	// after a host died before its outcome was recorded. Every Delta carries it.
	Attempt int
	// MaxOutputTokens, if not zero, is the most tokens that the answer may have,
	// whatever the call says: what it costs was set aside.
	MaxOutputTokens int64
	// Again, if not nil, is asked by a provider that is about to make the call once
	// more, after an attempt of which it cannot say that it cost nothing. Complete
	// returns its error, wrapped, and makes no further attempt.
	Again func() error
	// Call is what the harness asked for, with Model filled in.
	Call abi.ModelCall
}

// Delta is a piece of an answer that is still arriving.
type Delta struct {
	// Attempt is the Request's, or higher when the provider itself began again.
	Attempt int
	// Text follows the text of the deltas before.
	Text string
	// Reset voids the text of all deltas before; Text begins the new answer.
	Reset bool
	// Done marks the last delta.
	Done bool
}

// Result is a completion.
type Result struct {
	// Message is the answer. Its role is assistant.
	Message abi.Message
	// Usage counts tokens; nil if the provider reports none.
	Usage *abi.Usage
}

// Error is a failure that is recorded under Code, with Message as its text. It
// holds nothing secret (S4).
type Error struct {
	Code    abi.ErrorCode
	Message string
	// Free: the call cost nothing, as no model began to answer it. Else what a budget
	// has set aside for it counts as used.
	Free bool
}

// Error is the message.
func (e *Error) Error() string { return e.Message }

// Pieces cuts text into at most n pieces of about one length, none of them empty
// and each of whole UTF-8 characters. An empty text is one empty piece.
func Pieces(text string, n int) []string {
	runes := []rune(text)
	n = max(1, min(n, len(runes)))
	pieces := make([]string, n)
	for i := range pieces {
		pieces[i] = string(runes[i*len(runes)/n : (i+1)*len(runes)/n])
	}
	return pieces
}

// Stream hands pieces to deltas as one whole answer of the given attempt. Before
// each piece it calls wait, whose error ends the stream.
func Stream(pieces []string, attempt int, deltas func(Delta), wait func() error) error {
	for i, text := range pieces {
		if err := wait(); err != nil {
			return err
		}
		if deltas != nil {
			deltas(Delta{Attempt: attempt, Text: text, Done: i == len(pieces)-1})
		}
	}
	return nil
}
