package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agentcell/agentcell/sdk/abi"
	"github.com/google/go-cmp/cmp"
)

// export is the lines of a session as they are exported.
func export(t testing.TB, j *Journal, uid abi.SessionID) [][]byte {
	t.Helper()
	var lines [][]byte
	for _, r := range collectRecords(t, j.Read(uid, 0, 0)) {
		lines = append(lines, r.Line)
	}
	return lines
}

func file(lines [][]byte) []byte {
	var b bytes.Buffer
	for _, line := range lines {
		b.Write(line)
		b.WriteByte('\n')
	}
	return b.Bytes()
}

// rechain makes lines a chain again from line i on, as a forger without a given
// head to meet would.
func rechain(t testing.TB, lines [][]byte, i int) [][]byte {
	t.Helper()
	lines = slices.Clone(lines)
	for ; i < len(lines); i++ {
		event, _, _, err := ParseLine(lines[i])
		if err != nil {
			t.Fatal(err)
		}
		lines[i] = EncodeLine(event, abi.DigestOf(lines[i-1]), abi.Seq(i+1))
	}
	return lines
}

// forgery is a change to a session of ten records, and where it is found.
type forgery struct {
	name  string
	forge func(t testing.TB, lines [][]byte) [][]byte
	seq   abi.Seq
	// head: it is only found by one who knows the true head.
	head bool
}

var forgeries = []forgery{
	{"a byte edited", func(_ testing.TB, l [][]byte) [][]byte {
		l[4] = bytes.Replace(l[4], []byte("s 5"), []byte("s 6"), 1)
		return l
	}, 6, false},
	{"the last one edited", func(_ testing.TB, l [][]byte) [][]byte {
		l[9] = bytes.Replace(l[9], []byte("s 10"), []byte("s 11"), 1)
		return l
	}, 11, true},
	{"a record removed", func(_ testing.TB, l [][]byte) [][]byte { return slices.Delete(l, 4, 5) }, 5, false},
	{"the first removed", func(_ testing.TB, l [][]byte) [][]byte { return l[1:] }, 1, false},
	{"two exchanged", func(_ testing.TB, l [][]byte) [][]byte { l[4], l[5] = l[5], l[4]; return l }, 5, false},
	{"one inserted", func(_ testing.TB, l [][]byte) [][]byte {
		return slices.Insert(l, 4, EncodeLine(event("x"), abi.DigestOf(l[3]), 5))
	}, 6, false},
	{"one repeated", func(_ testing.TB, l [][]byte) [][]byte { return slices.Insert(l, 4, l[4]) }, 6, false},
	{"cut", func(_ testing.TB, l [][]byte) [][]byte { return l[:7] }, 8, true},
	{"emptied", func(_ testing.TB, l [][]byte) [][]byte { return nil }, 1, true},
	{"removed and chained again", func(t testing.TB, l [][]byte) [][]byte {
		return rechain(t, slices.Delete(l, 4, 5), 4)
	}, 10, true},
	{"a line that is none", func(_ testing.TB, l [][]byte) [][]byte { l[4] = []byte("{}"); return l }, 5, false},
	{"an empty line", func(_ testing.TB, l [][]byte) [][]byte { return slices.Insert(l, 4, []byte{}) }, 5, false},
	{"a carriage return", func(_ testing.TB, l [][]byte) [][]byte { l[4] = append(slices.Clone(l[4]), '\r'); return l }, 5, false},
}

// TestI8_ForgedExports finds every forgery of exported lines, at its place.
func TestI8_ForgedExports(t *testing.T) {
	j := journalOn(t, newMemory())
	create(t, j, "s", "p", "")
	head := extend(t, j, "s", 10)
	lines := export(t, j, "s")
	n, got, err := VerifyExport(bytes.NewReader(file(lines)), VerifyOptions{Strict: true, Head: head.Hash})
	if n != 10 || got.Hash != head.Hash || got.Seq != 10 || err != nil {
		t.Fatalf("%d records, %v, %v", n, got, err)
	}
	for _, f := range forgeries {
		forged := file(f.forge(t, slices.Clone(lines)))
		_, _, err := VerifyExport(bytes.NewReader(forged), VerifyOptions{})
		if (err == nil) != f.head {
			t.Errorf("%s, without a head: %v", f.name, err)
		}
		_, _, err = VerifyExport(bytes.NewReader(forged), VerifyOptions{Head: head.Hash})
		var broken *Broken
		if !errors.As(err, &broken) || !errors.Is(err, ErrCorrupt) || broken.Seq != f.seq {
			t.Errorf("%s: %v, want seq %d", f.name, err, f.seq)
		}
	}
	if _, _, err := VerifyExport(bytes.NewReader(file(lines)), VerifyOptions{Head: abi.DigestOf(lines[3])}); err != nil {
		t.Errorf("a head in the middle: %v", err)
	}
}

// TestI8_ForgedStore finds the same in the store, where a forger also has the
// hash beside the line, and the head, to make fit.
func TestI8_ForgedStore(t *testing.T) {
	for _, f := range forgeries {
		store := newMemory()
		j := journalOn(t, store)
		create(t, j, "s", "p", "")
		head := extend(t, j, "s", 10)
		forged := f.forge(t, export(t, j, "s"))
		overwrite(t, store, "s", forged)
		_, _, err := j.Verify(t.Context(), "s", VerifyOptions{Head: head.Hash})
		var broken *Broken
		if !errors.As(err, &broken) || !errors.Is(err, ErrCorrupt) || broken.Session != "s" || broken.Seq != f.seq {
			t.Errorf("%s: %v, want seq %d", f.name, err, f.seq)
		}
	}
}

// overwrite makes lines the records of a session, with hashes and a head to fit.
func overwrite(t testing.TB, store *memory, uid abi.SessionID, lines [][]byte) {
	t.Helper()
	b := new(Batch)
	var head Head
	for i, line := range lines {
		head = Head{Seq: abi.Seq(i + 1), Hash: abi.DigestOf(line)}
		value := append(make([]byte, 8), head.Hash[:]...)
		b.Put(Entry{recordKey(uid, head.Seq), append(value, line...)})
	}
	b.Put(Entry{headKey(uid), encodeHead(head, nil)})
	if err := store.Commit(b); err != nil {
		t.Fatal(err)
	}
}

// TestVerifyNamesBothHashes changes a record, and then a head, and nothing else.
func TestVerifyNamesBothHashes(t *testing.T) {
	onBoth(t, func(t *testing.T, j *Journal) {
		create(t, j, "s", "p", "")
		create(t, j, "other", "p", "")
		head := extend(t, j, "s", 3)
		extend(t, j, "other", 3)
		records := collectRecords(t, j.Read("s", 0, 0))
		line := bytes.Replace(records[1].Line, []byte("s 2"), []byte("s 9"), 1)
		value := slices.Concat(make([]byte, 8), records[1].Hash[:], line)
		put := func(e Entry) {
			b := new(Batch)
			b.Put(e)
			if err := j.store.Commit(b); err != nil {
				t.Fatal(err)
			}
		}
		verify := func(want *Broken) {
			t.Helper()
			var broken *Broken
			_, _, err := j.Verify(t.Context(), "s", VerifyOptions{})
			if !errors.As(err, &broken) {
				t.Fatalf("%v", err)
			}
			broken.What = ""
			if diff := cmp.Diff(want, broken); diff != "" {
				t.Error(diff)
			}
			if !strings.Contains(err.Error(), want.Want.String()) || !strings.Contains(err.Error(), want.Got.String()) {
				t.Errorf("the error does not name both hashes: %v", err)
			}
		}
		put(Entry{recordKey("s", 2), value})
		verify(&Broken{Session: "s", Seq: 2, Want: records[1].Hash, Got: abi.DigestOf(line)})
		hash := abi.DigestOf(line)
		copy(value[8:], hash[:])
		put(Entry{recordKey("s", 2), value})
		verify(&Broken{Session: "s", Seq: 3, Want: abi.DigestOf(line), Got: records[1].Hash})
		put(Entry{recordKey("s", 2), slices.Concat(make([]byte, 8), records[1].Hash[:], records[1].Line)})
		forged := head
		forged.Hash[0]++
		put(Entry{headKey("s"), encodeHead(forged, nil)})
		verify(&Broken{Session: "s", Seq: 4, Want: forged.Hash, Got: head.Hash})
		if _, _, err := j.Verify(t.Context(), "other", VerifyOptions{}); err != nil {
			t.Errorf("another session: %v", err)
		}
	})
}

func TestVerifyStrict(t *testing.T) {
	j := journalOn(t, newMemory())
	create(t, j, "s", "p", "")
	if _, err := j.Append(t.Context(), "s", Append{Events: [][]byte{[]byte(`{"b":1,"a":2}`)}}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := j.Verify(t.Context(), "s", VerifyOptions{}); err != nil {
		t.Error(err)
	}
	var broken *Broken
	if _, _, err := j.Verify(t.Context(), "s", VerifyOptions{Strict: true}); !errors.As(err, &broken) || broken.Seq != 1 {
		t.Error(err)
	}
	if _, _, err := j.Verify(t.Context(), "nobody", VerifyOptions{}); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := j.Verify(ctx, "s", VerifyOptions{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestVerifyChainScript runs the independent verifier on what it must accept and
// on every forgery.
func TestVerifyChainScript(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		require(t, "python3")
	}
	j := journalOn(t, newMemory())
	create(t, j, "parent", "p", "")
	extend(t, j, "parent", 4)
	fork(t, j, "parent", 3, "s")
	head := extend(t, j, "s", 6)
	lines := export(t, j, "s")
	run := func(lines [][]byte, args ...string) (string, int) {
		t.Helper()
		cmd := exec.Command(python, append([]string{filepath.Join("..", "docs", "verify_chain.py")}, args...)...)
		cmd.Stdin = bytes.NewReader(file(lines))
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
	verified := fmt.Sprintf("verified: 10 records, head %s\n", head.Hash)
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"good", nil, verified},
		{"with its head", []string{"--head", head.Hash.String()}, verified},
		{
			"with an earlier head",
			[]string{"--head", abi.DigestOf(lines[6]).String()},
			verified + "the given head is record 7; 3 records follow it\n",
		},
	} {
		if out, code := run(lines, tt.args...); code != 0 || out != tt.want {
			t.Errorf("%s: exit %d: %s", tt.name, code, out)
		}
	}
	for _, f := range forgeries {
		out, code := run(f.forge(t, slices.Clone(lines)), "--head", head.Hash.String())
		if code != 1 || !strings.HasPrefix(out, "not verified: ") {
			t.Errorf("%s: exit %d: %s", f.name, code, out)
		}
	}
	if out, code := run(forgeries[0].forge(t, slices.Clone(lines))); code != 1 {
		t.Errorf("edited, without a head: exit %d: %s", code, out)
	}
	if out, code := run(nil); code != 1 || out != "not verified: no records\n" {
		t.Errorf("nothing: exit %d: %s", code, out)
	}
}
