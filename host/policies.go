package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/agentcell/agentcell/journal"
	"github.com/agentcell/agentcell/sdk/abi"
)

// KeptPolicy is a policy under which turns have run, whose text the store keeps: records
// name it by its digest.
type KeptPolicy struct {
	Digest abi.Digest
	Size   int64
	// Since is when a turn first ran under it.
	Since time.Time
}

// policyRef is the kind of the refs that name policies, by their digests.
const policyRef = "policy"

// policyNote is what stands beside the digest.
type policyNote struct {
	Size  int64    `json:"size"`
	Since abi.Time `json:"since"`
}

// PolicyStore keeps the texts of policies in a journal, beside the host that has it. It
// is safe for concurrent use.
type PolicyStore struct {
	journal *journal.Journal
	now     func() time.Time
}

// NewPolicyStore makes the policy store of a journal. Nil for now is the machine's clock.
func NewPolicyStore(j *journal.Journal, now func() time.Time) *PolicyStore {
	if now == nil {
		now = time.Now
	}
	return &PolicyStore{journal: j, now: now}
}

// Keep keeps the text of a policy, durably when it returns, so that who reads a decision
// can read its rule. One that is kept already stays as it is.
func (s *PolicyStore) Keep(ctx context.Context, text []byte) error {
	defer s.journal.Hold()() // from Collect
	name := abi.DigestOf(text).String()
	if _, err := s.journal.Ref(policyRef, name); !errors.Is(err, journal.ErrNotFound) {
		return err
	}
	digest, err := s.journal.PutBlob(ctx, text)
	if err != nil {
		return fmt.Errorf("keep policy: %w", err)
	}
	note := policyNote{Size: int64(len(text)), Since: abi.NewTime(s.now())}
	return s.journal.SetRef(ctx, policyRef, journal.Ref{Name: name, Digest: digest, Note: mustJSON(note)})
}

// Get reads the text of a policy that is kept. It wraps ErrNotFound.
func (s *PolicyStore) Get(digest abi.Digest) ([]byte, error) {
	ref, err := s.journal.Ref(policyRef, digest.String())
	if errors.Is(err, journal.ErrNotFound) {
		return nil, fmt.Errorf("policy %s: %w", digest, ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	return s.journal.Blob(ref.Digest)
}

// List lists the policies that are kept, by digest.
func (s *PolicyStore) List() ([]KeptPolicy, error) {
	kept, err := readRefs(s.journal, policyRef, readKeptPolicy)
	if err != nil {
		return nil, fmt.Errorf("list policies: %w", err)
	}
	return kept, nil
}

// readKeptPolicy is the policy that a ref stands for.
func readKeptPolicy(ref journal.Ref) (KeptPolicy, error) {
	var note policyNote
	if err := json.Unmarshal(ref.Note, &note); err != nil {
		return KeptPolicy{}, fmt.Errorf("policy %q: %w", ref.Name, err)
	}
	return KeptPolicy{Digest: ref.Digest, Size: note.Size, Since: note.Since.Time}, nil
}
