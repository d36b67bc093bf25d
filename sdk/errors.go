package sdk

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/agentcell/agentcell/sdk/abi"
)

// What an *Error is, by its status; test with errors.Is.
var (
	// ErrInvalid: the host could not make sense of the request.
	ErrInvalid = errors.New("invalid request")
	// ErrRefused: not here and not now, for instance because it was not granted.
	ErrRefused = errors.New("refused")
	// ErrFailed: the call was made and failed. That is recorded, and calling
	// again is a new call.
	ErrFailed = errors.New("failed")
	// ErrDenied: a person or a policy said no.
	ErrDenied = errors.New("denied")
	// ErrLimit: a limit of the turn is reached.
	ErrLimit = errors.New("limit reached")
)

// Error is the host's answer to a request that it did not, or could not, fulfil.
type Error struct {
	Op     abi.Op
	Status abi.Status
	// Code is the recorded code of a call that failed; for the other statuses
	// it follows from the status.
	Code        abi.ErrorCode
	Description string
}

// Error names the request, what became of it, and why.
func (e *Error) Error() string {
	what := fmt.Sprintf("status %d", e.Status)
	if sentinel := e.Unwrap(); sentinel != nil {
		what = sentinel.Error()
	}
	if e.Description == "" {
		return fmt.Sprintf("%s: %s", e.Op, what)
	}
	return fmt.Sprintf("%s: %s: %s", e.Op, what, e.Description)
}

// Unwrap gives the sentinel that belongs to the status; nil for a status that
// this version of the SDK does not know.
func (e *Error) Unwrap() error {
	switch e.Status {
	case abi.StatusInvalid:
		return ErrInvalid
	case abi.StatusRefused:
		return ErrRefused
	case abi.StatusFailed:
		return ErrFailed
	case abi.StatusDenied:
		return ErrDenied
	case abi.StatusLimit:
		return ErrLimit
	}
	return nil
}

// newError reads an answer that is not "ok": an abi.Error if the call failed,
// plain text otherwise.
func newError(op abi.Op, status abi.Status, body []byte) *Error {
	e := &Error{Op: op, Status: status, Code: abi.CodeUnknown, Description: string(body)}
	switch status {
	case abi.StatusInvalid:
		e.Code = abi.CodeInvalidArgument
	case abi.StatusRefused, abi.StatusDenied:
		e.Code = abi.CodeFailedPrecondition
	case abi.StatusLimit:
		e.Code = abi.CodeResourceExhausted
	case abi.StatusFailed:
		var recorded abi.Error
		if json.Unmarshal(body, &recorded) == nil {
			e.Description = recorded.Description
			if recorded.Code != 0 {
				e.Code = recorded.Code
			}
		}
	}
	return e
}
