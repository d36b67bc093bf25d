package journal

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/agentcell/agentcell/sdk/abi"
)

// Account is a row of counters under the uid of a session, to which appends of many
// sessions are charged: those of its forks, for one. What is charged becomes
// durable with the append, or refuses it, and the writer charges one append after
// the other: so however many sessions share an account, and whenever one of them
// dies, they never get more out of it than its limits.
//
// What the counters count is the caller's business.
type Account struct {
	// Limit is the most that Used and Held may be together; 0 is no limit.
	Limit []int64
	// Used is what was used up, Held what is set aside for what is under way.
	Used, Held []int64
}

// Charge changes the counters of an account. Used and Held say what has happened,
// whatever the limits are; what is below zero gives back. Take is what is to be held
// from now on: of what a limit does not leave then, nothing is taken and the append
// is refused, with a *SpentError.
type Charge struct {
	Account          abi.SessionID
	Used, Held, Take []int64
}

// ErrSpent: an account does not have what an append was to be charged. Nothing was
// written; the error is a *SpentError.
var ErrSpent = errors.New("account spent")

// SpentError says what an account does not have.
type SpentError struct {
	Account abi.SessionID
	// Counter is the index of the first counter that does not suffice, Want what was to
	// be taken of it.
	Counter                 int
	Want, Limit, Used, Held int64
}

// Error names the counter by its index: the caller knows what it counts.
func (e *SpentError) Error() string {
	return fmt.Sprintf("%v: counter %d of %q: limit %d, used %d, held %d, wanted %d", ErrSpent, e.Counter, e.Account, e.Limit, e.Used, e.Held, e.Want)
}

// Unwrap is ErrSpent.
func (e *SpentError) Unwrap() error { return ErrSpent }

// maxCounters bounds the counters of an account.
const maxCounters = 16

// SetAccount sets the limits of an account, which it makes if there is none, and
// leaves what was used and is held as it is.
func (j *Journal) SetAccount(ctx context.Context, uid abi.SessionID, limit []int64) error {
	limit = slices.Clone(limit)
	err := errors.Join(checkUID(uid), checkLimit(limit))
	if err == nil {
		err = j.writer.do(ctx, &job{
			size: 2*entryOverhead + maxUID + accountSize,
			stage: func(st *stage) error {
				a, err := st.account(uid)
				if err != nil && !errors.Is(err, ErrNotFound) {
					return err
				}
				a.Limit = limit
				st.setAccount(uid, a)
				return nil
			},
		})
	}
	if err != nil {
		return fmt.Errorf("set account %q: %w", uid, err)
	}
	return nil
}

func checkLimit(limit []int64) error {
	if len(limit) > maxCounters {
		return fmt.Errorf("%d counters: an account has at most %d", len(limit), maxCounters)
	}
	for i, n := range limit {
		if n < 0 {
			return fmt.Errorf("limit %d of counter %d is negative", n, i)
		}
	}
	return nil
}

// Account reads an account. It wraps ErrNotFound.
func (j *Journal) Account(uid abi.SessionID) (Account, error) {
	row, err := j.get(accountKey(uid))
	if err != nil {
		return Account{}, fmt.Errorf("account %q: %w", uid, err)
	}
	return decodeAccount(uid, row)
}

// account is an account after what the batch has so far.
func (st *stage) account(uid abi.SessionID) (Account, error) {
	if a, ok := st.accounts[uid]; ok {
		return a, nil
	}
	row, err := st.get(accountKey(uid))
	if err != nil {
		return Account{}, err
	}
	return decodeAccount(uid, row)
}

func (st *stage) setAccount(uid abi.SessionID, a Account) {
	if st.accounts == nil {
		st.accounts = make(map[abi.SessionID]Account)
		st.batch.Put(formatRow()) // older programs would not charge anything
	}
	st.accounts[uid] = a
	st.batch.Put(Entry{accountKey(uid), a.encode()})
}

// charge puts all charges, or none and says which account does not suffice.
func (st *stage) charge(charges []Charge) error {
	after := make([]Account, len(charges))
	for i, c := range charges {
		a, err := st.account(c.Account)
		if err != nil {
			return fmt.Errorf("account %q: %w", c.Account, err)
		}
		if after[i], err = a.charged(c); err != nil {
			return err
		}
	}
	for i, c := range charges {
		st.setAccount(c.Account, after[i])
	}
	return nil
}

// charged is the account after c, unless that takes too much.
func (a Account) charged(c Charge) (Account, error) {
	out := Account{Limit: a.Limit}
	for i := range maxCounters {
		used, held, limit := max(0, at(a.Used, i)+at(c.Used, i)), max(0, at(a.Held, i)+at(c.Held, i)), at(a.Limit, i)
		take := max(0, at(c.Take, i))
		if take > 0 && limit > 0 && take > limit-used-held {
			return a, &SpentError{Account: c.Account, Counter: i, Want: take, Limit: limit, Used: used, Held: held}
		}
		out.Used, out.Held = append(out.Used, used), append(out.Held, held+take)
	}
	return out, nil
}

func at(counters []int64, i int) int64 {
	if i < len(counters) {
		return counters[i]
	}
	return 0
}

func checkCharges(charges []Charge) error {
	for i, c := range charges {
		if err := checkUID(c.Account); err != nil {
			return err
		}
		if n := max(len(c.Used), len(c.Held), len(c.Take)); n > maxCounters {
			return fmt.Errorf("a charge of %d counters: an account has at most %d", n, maxCounters)
		}
		if slices.ContainsFunc(charges[:i], func(o Charge) bool { return o.Account == c.Account }) {
			return fmt.Errorf("two charges of account %q", c.Account)
		}
	}
	return nil
}

// accountSize bounds the size of an account's row.
const accountSize = 1 + 3*maxCounters*binary.MaxVarintLen64

// accountVersion is the first byte of an account's row.
const accountVersion = 1

func (a Account) encode() []byte {
	b := []byte{accountVersion}
	for i := range maxCounters {
		for _, n := range []int64{at(a.Limit, i), at(a.Used, i), at(a.Held, i)} {
			b = binary.AppendUvarint(b, uint64(n))
		}
	}
	return b
}

func decodeAccount(uid abi.SessionID, row []byte) (a Account, err error) {
	if len(row) == 0 || row[0] != accountVersion {
		return a, fmt.Errorf("%w: account %q", ErrCorrupt, uid)
	}
	d := decoder{rest: row[1:]}
	for range maxCounters {
		a.Limit = append(a.Limit, int64(d.uvarint()))
		a.Used = append(a.Used, int64(d.uvarint()))
		a.Held = append(a.Held, int64(d.uvarint()))
	}
	if d.bad || len(d.rest) != 0 {
		return Account{}, fmt.Errorf("%w: account %q", ErrCorrupt, uid)
	}
	return a, nil
}
