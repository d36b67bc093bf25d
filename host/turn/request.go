package turn

import (
	"errors"
	"fmt"
	"slices"

	"github.com/agentcell/agentcell/sdk/abi"
)

// ErrNoRequest reports that an event is no MODEL_CALL, so that there is nothing
// to rebuild.
var ErrNoRequest = errors.New("not a model call")

// Request rebuilds the call that a MODEL_CALL record announces, as its provider
// gets it: the whole prompt, from the blobs that encodeRequest made of it. blob
// gives the blob with a digest, and checks it. A call that does not have the
// recorded input_hash is an error.
func Request(e *abi.Event, blob func(abi.Digest) ([]byte, error)) (abi.ModelCall, error) {
	if e.Kind != abi.EventModelCall || e.Model == nil || e.Cell == nil {
		return abi.ModelCall{}, fmt.Errorf("%s: %w", e.Kind, ErrNoRequest)
	}
	var bare struct {
		abi.ModelCall
		Messages abi.Digest `json:"messages"` // head of the message list
	}
	if err := readBlob(e.Cell.Request, blob, &bare); err != nil {
		return abi.ModelCall{}, fmt.Errorf("request: %w", err)
	}
	call := bare.ModelCall
	for head := bare.Messages; !head.IsZero(); {
		var node struct {
			Message abi.Digest `json:"message"`
			Prev    abi.Digest `json:"prev"`
		}
		if err := readBlob(head, blob, &node); err != nil {
			return abi.ModelCall{}, fmt.Errorf("list of messages: %w", err)
		}
		var m abi.Message
		if err := readBlob(node.Message, blob, &m); err != nil {
			return abi.ModelCall{}, fmt.Errorf("message: %w", err)
		}
		call.Messages = append(call.Messages, m)
		head = node.Prev
	}
	slices.Reverse(call.Messages)
	whole, err := abi.MarshalLossless(&call)
	if err != nil {
		return abi.ModelCall{}, err
	}
	if got := abi.DigestOf(whole).String(); got != e.Model.InputHash {
		return abi.ModelCall{}, fmt.Errorf("its input_hash is %s, the stored request has %s", e.Model.InputHash, got)
	}
	call.ID, call.InputHash = e.Model.ID, e.Model.InputHash
	return call, nil
}

func readBlob(d abi.Digest, blob func(abi.Digest) ([]byte, error), into any) error {
	b, err := blob(d)
	if err != nil {
		return err
	}
	return abi.UnmarshalLossless(b, into)
}
