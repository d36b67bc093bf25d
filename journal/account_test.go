package journal

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/sdk/abi"
)

// charged appends one event with charges.
func charged(t *testing.T, j *Journal, uid abi.SessionID, charges ...Charge) error {
	t.Helper()
	s, err := j.Session(uid)
	if err != nil {
		t.Fatal(err)
	}
	_, err = j.Append(t.Context(), uid, Append{Head: s.Head, Events: [][]byte{[]byte(`{"a":1}`)}, Charges: charges})
	return err
}

func counters(a Account) [3][]int64 { return [3][]int64{a.Limit[:3], a.Used[:3], a.Held[:3]} }

func TestAccount(t *testing.T) {
	onBoth(t, func(t *testing.T, j *Journal) {
		ctx := t.Context()
		if _, err := j.CreateWithAccount(ctx, Session{UID: "root", Project: "p"}, []int64{100, 0, 5}); err != nil {
			t.Fatal(err)
		}
		if _, err := j.Create(ctx, Session{UID: "other", Project: "p"}); err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct {
			name             string
			uid              abi.SessionID
			used, held, take []int64
			spent            int // the counter, -1 if it is charged
			left             SpentError
			wantU, want      []int64
		}{
			{"take", "root", nil, nil, []int64{60, 1 << 40}, -1, SpentError{}, []int64{0, 0, 0}, []int64{60, 1 << 40, 0}},
			{"another session takes too much", "other", nil, nil, []int64{41}, 0, SpentError{Want: 41, Limit: 100, Held: 60}, []int64{0, 0, 0}, []int64{60, 1 << 40, 0}},
			{"all that is left", "other", nil, nil, []int64{40, 0, 5}, -1, SpentError{}, []int64{0, 0, 0}, []int64{100, 1 << 40, 5}},
			{"what was held is used", "root", []int64{60}, []int64{-60}, nil, -1, SpentError{}, []int64{60, 0, 0}, []int64{40, 1 << 40, 5}},
			{"what is given back can be taken", "other", []int64{1}, []int64{-40, 0, -5}, []int64{39}, -1, SpentError{}, []int64{61, 0, 0}, []int64{39, 1 << 40, 0}},
			{"a refused one gives nothing back", "other", []int64{1}, []int64{-39}, []int64{0, 0, 6}, 2, SpentError{Want: 6, Limit: 5}, []int64{61, 0, 0}, []int64{39, 1 << 40, 0}},
			{"what was used counts beyond the limit", "root", []int64{50}, nil, nil, -1, SpentError{}, []int64{111, 0, 0}, []int64{39, 1 << 40, 0}},
			{"and keeps others from taking", "root", nil, nil, []int64{1}, 0, SpentError{Want: 1, Limit: 100, Used: 111, Held: 39}, []int64{111, 0, 0}, []int64{39, 1 << 40, 0}},
			{"never below zero", "root", []int64{-200}, []int64{-100}, nil, -1, SpentError{}, []int64{0, 0, 0}, []int64{0, 1 << 40, 0}},
		} {
			err := charged(t, j, step.uid, Charge{"root", step.used, step.held, step.take})
			var spent *SpentError
			switch {
			case step.spent < 0 && err != nil:
				t.Fatalf("%s: %v", step.name, err)
			case step.spent >= 0:
				step.left.Account, step.left.Counter = "root", step.spent
				if !errors.As(err, &spent) || !errors.Is(err, ErrSpent) {
					t.Fatalf("%s: %v; want ErrSpent", step.name, err)
				}
				if diff := cmp.Diff(&step.left, spent); diff != "" {
					t.Errorf("%s (-want +got):\n%s", step.name, diff)
				}
			}
			a, err := j.Account("root")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([3][]int64{{100, 0, 5}, step.wantU, step.want}, counters(a)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", step.name, diff)
			}
		}
		if err := j.SetAccount(ctx, "root", []int64{1, 2, 3}); err != nil {
			t.Fatal(err)
		}
		if err := charged(t, j, "other", Charge{Account: "none", Used: []int64{1}}); !errors.Is(err, ErrNotFound) {
			t.Errorf("an account that is not there: %v", err)
		}
	})
}

// TestAccount_ChargeAlone: a charge without records moves no head, and answers to
// the fence.
func TestAccount_ChargeAlone(t *testing.T) {
	j := OpenMemory()
	defer j.Close()
	ctx := t.Context()
	if _, err := j.CreateWithAccount(ctx, Session{UID: "s", Project: "p"}, []int64{10}); err != nil {
		t.Fatal(err)
	}
	if err := charged(t, j, "s", Charge{Account: "s", Used: []int64{1}}); err != nil {
		t.Fatal(err)
	}
	before, err := j.Session("s")
	if err != nil {
		t.Fatal(err)
	}
	records, err := j.Append(ctx, "s", Append{Head: before.Head, Fence: 7, Charges: []Charge{{Account: "s", Take: []int64{2}}}, Summary: []byte("x")})
	if err != nil || len(records) != 0 {
		t.Fatalf("%d records, %v", len(records), err)
	}
	now, err := j.Session("s")
	if err != nil || now.Head != (Head{Seq: before.Head.Seq, Hash: before.Head.Hash, Fence: 7}) || string(now.Summary) != "x" {
		t.Errorf("it is at %+v with %q (%v)", now.Head, now.Summary, err)
	}
	if _, err := j.Append(ctx, "s", Append{Head: now.Head, Fence: 6, Charges: []Charge{{Account: "s", Take: []int64{2}}}}); !errors.Is(err, ErrFenced) {
		t.Errorf("I7: a writer that was fenced off charges: %v", err)
	}
}

// TestAccount_NeverOverspent: whoever charges at once, no more is taken than is there.
func TestAccount_NeverOverspent(t *testing.T) {
	j := OpenMemory()
	defer j.Close()
	const writers, limit = 16, 40
	if _, err := j.CreateWithAccount(t.Context(), Session{UID: "root", Project: "p"}, []int64{limit}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	granted := 0
	for i := range writers {
		uid := abi.SessionID(fmt.Sprintf("s%d", i))
		if _, err := j.Create(t.Context(), Session{UID: uid, Project: "p", Created: time.Unix(0, 0)}); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			for range 10 { // 160 in all, of which the account has a quarter
				s, err := j.Session(uid)
				if err != nil {
					t.Error(err)
					return
				}
				_, err = j.Append(t.Context(), uid, Append{Head: s.Head, Events: [][]byte{[]byte(`{}`)}, Charges: []Charge{{Account: "root", Take: []int64{1}}}})
				mu.Lock()
				if err == nil {
					granted++
				} else if !errors.Is(err, ErrSpent) {
					t.Error(err)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if a, err := j.Account("root"); err != nil || a.Held[0] != limit || granted != limit {
		t.Errorf("%d were granted, the account holds %v (%v); want %d", granted, a.Held, err, limit)
	}
}

// TestAccount_GoesWithItsSession: an account outlives its session as long as forks of
// that do.
func TestAccount_GoesWithItsSession(t *testing.T) {
	j := OpenMemory()
	defer j.Close()
	ctx := t.Context()
	if _, err := j.CreateWithAccount(ctx, Session{UID: "root", Project: "p"}, []int64{10}); err != nil {
		t.Fatal(err)
	}
	if err := charged(t, j, "root", Charge{Account: "root", Used: []int64{1}}); err != nil {
		t.Fatal(err)
	}
	if _, err := j.Fork(ctx, "root", 1, time.Unix(1, 0), []ForkChild{{UID: "child", Event: []byte(`{}`)}}); err != nil {
		t.Fatal(err)
	}
	collect := func() {
		t.Helper()
		_, err := j.Collect(ctx, Namer{
			Session: func(Session, *Names) error { return nil },
			Record:  func(abi.SessionID, Record, *Names) error { return nil },
			Pins:    func(*Names) error { return nil },
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := j.Delete(ctx, "root", time.Unix(2, 0)); err != nil {
		t.Fatal(err)
	}
	collect()
	if err := charged(t, j, "child", Charge{Account: "root", Used: []int64{1}}); err != nil {
		t.Errorf("a fork has no account any more: %v", err)
	}
	if _, err := j.Delete(ctx, "child", time.Unix(3, 0)); err != nil {
		t.Fatal(err)
	}
	collect()
	if _, err := j.Account("root"); !errors.Is(err, ErrNotFound) {
		t.Errorf("the account of a session that is gone: %v", err)
	}
}
