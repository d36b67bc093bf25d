package policy_test

import (
	"errors"
	"fmt"
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/agentcell/agentcell/host/config"
	"github.com/agentcell/agentcell/host/policy"
	"github.com/agentcell/agentcell/host/turn"
	"github.com/agentcell/agentcell/sdk/abi"
)

// Whatever stands in the file, reading it ends with a policy, which decides, or with an
// error that says that the file is wrong.
func FuzzParse(f *testing.F) {
	f.Add([]byte(whole), []byte(`{"path":"/etc/passwd","amount":1e2}`))
	f.Add([]byte("rules: [{name: a, when: 'args.a.exists(x, x == args.b) || tool.matches(\"^a+$\")', then: ask}]"), []byte(`{"a":[1,2],"b":2}`))
	f.Add([]byte("rules: [{name: a, when: 'args.map(k, v, v).size() > 1 ? true : [1, args.x] == [args.y]', then: deny}]"), []byte(`{"x":18446744073709551616}`))
	f.Add([]byte("default: allow\nexpires: never"), []byte(`null`))
	f.Fuzz(func(t *testing.T, text, args []byte) {
		p, err := policy.Parse("policy.yaml", text)
		if err != nil {
			if !errors.Is(err, config.ErrConfig) {
				t.Fatal(err)
			}
			return
		}
		v := verdict(p, turn.Subject{Labels: map[string]string{"team": "ops"}}, "pay.out", string(args))
		if err := v.Check(); err != nil {
			t.Fatalf("%+v: %v", v, err)
		}
	})
}

// Whatever the arguments are, a policy decides on them, in the same way each time and
// however they are written.
func FuzzArgs(f *testing.F) {
	for _, seed := range []string{
		`{}`, `null`, `[]`, `{"a":1,"b":1.0}`, `{"a":9007199254740993,"b":[1e400]}`, `{"b":{"a":"\ud83d\ude00"},"a":0.5}`, `{"a":1}{`,
		`{"a":123456789012345678901234567890,"b":123456789012345678901234567890}`, `{"a":[[[[[[[[]]]]]]]],"b":null}`,
	} {
		f.Add([]byte(seed))
	}
	p := parse(f, `
rules:
  - {name: same, when: "has(args.a) && has(args.b) && args.a == args.b", then: allow}
  - {name: small, when: "has(args.a) && type(args.a) == int && args.a < 10 && args.a >= -10", then: ask}
  - {name: listed, when: "has(args.b) && (args.b == null || args.all(k, v, k != \"x\" || v in [1, 2u, 3.5, \"four\"]))", then: deny}
  - {name: long, when: "string(args.a).size() > 10 || args.b.exists(x, x == args.a)", then: ask}
default: deny
`)
	f.Fuzz(func(t *testing.T, args []byte) {
		v := verdict(p, turn.Subject{}, "t", string(args))
		if err := v.Check(); err != nil || v.Action == "" {
			t.Fatalf("%+v: %v", v, err)
		}
		if again := verdict(p, turn.Subject{}, "t", string(args)); again != v {
			t.Fatalf("%+v, and then %+v", v, again)
		}
		canonical, err := abi.Canonical(args)
		if err != nil {
			return // nothing that a call can have
		}
		if written := verdict(p, turn.Subject{}, "t", string(canonical)); written != v {
			t.Fatalf("%s: %+v, and as %s: %+v", args, v, canonical, written)
		}
	})
}

// Whole numbers compare as they are, however large, or not at all.
func TestPolicy_NumbersAreExact(t *testing.T) {
	less, equal := one(t, `args.a < args.b`), one(t, `args.a == args.b`)
	rapid.Check(t, func(t *rapid.T) {
		whole := rapid.Custom(func(t *rapid.T) *big.Int {
			near := new(big.Int).Lsh(big.NewInt(1), uint(rapid.IntRange(50, 66).Draw(t, "bits")))
			near.Add(near, big.NewInt(rapid.Int64Range(-2, 2).Draw(t, "beside")))
			if rapid.Bool().Draw(t, "negative") {
				near.Neg(near)
			}
			return near
		})
		a, b := whole.Draw(t, "a"), whole.Draw(t, "b")
		args := fmt.Sprintf(`{"a":%s,"b":%s}`, a, b)
		if v := verdict(equal, turn.Subject{}, "t", args); (v.Action == turn.Allow) != (a.Cmp(b) == 0) {
			t.Errorf("%s: equal is %+v", args, v)
		}
		fits := (a.IsInt64() || a.IsUint64()) && (b.IsInt64() || b.IsUint64())
		v := verdict(less, turn.Subject{}, "t", args)
		if fits && (v.Action == turn.Allow) != (a.Cmp(b) < 0) || !fits && v.Action != turn.Deny {
			t.Errorf("%s: less is %+v", args, v)
		}
	})
}
