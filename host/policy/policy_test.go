package policy_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/host/config"
	"github.com/agentcell/agentcell/host/policy"
	"github.com/agentcell/agentcell/host/turn"
	"github.com/agentcell/agentcell/sdk/abi"
)

const whole = `
approvers: 2
expires: 24h
on_expiry: ask
rules:
  - name: no-secrets
    when: tool == "files.read" && args.path.startsWith("/etc/")
    then: deny
    reason: system files are not for agents
  - name: small-payments
    when: tool.startsWith("pay.") && args.amount <= 100 && labels.team == "ops"
    then: allow
  - name: big-payments
    when: |
      tool.startsWith("pay.") &&
        args.amount > 100
    then: ask
    approvers: 3
    expires: 1h
    on_expiry: deny
  - name: late
    when: tool == "late"
    then: ask
    expires: never
    reason: whenever
default: ask
`

func parse(t testing.TB, text string) *policy.Policy {
	t.Helper()
	p, err := policy.Parse("policy.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// one is a policy with one rule that allows.
func one(t testing.TB, when string) *policy.Policy {
	t.Helper()
	return parse(t, fmt.Sprintf("rules: [{name: r, then: allow, when: %q}]", when))
}

func verdict(p *policy.Policy, s turn.Subject, tool, args string) turn.Verdict {
	call := abi.ToolCall{ID: "c", Tool: tool, Args: abi.Struct(args), IdempotencyKey: "k"}
	return p.For(s)(call, abi.ToolGrant{ToolDefinition: abi.ToolDefinition{Name: tool}})
}

func TestPolicy(t *testing.T) {
	p := parse(t, whole)
	if got := abi.DigestOf([]byte(whole)); p.Digest() != got || string(p.Text()) != whole {
		t.Errorf("digest %v of text %q, want that of the file, %v", p.Digest(), p.Text(), got)
	}
	ops := turn.Subject{Labels: map[string]string{"team": "ops"}}
	for _, tt := range []struct {
		tool, args string
		subject    turn.Subject
		want       turn.Verdict
	}{
		{"files.read", `{"path":"/etc/passwd"}`, ops, turn.Verdict{Action: turn.Deny, Rule: "no-secrets", Reason: "system files are not for agents"}},
		{"files.read", `{"path":"/tmp/x"}`, ops, turn.Verdict{Action: turn.Ask, Rule: "default", Approvers: 2, Expires: 24 * time.Hour, OnExpiry: turn.ExpiryAsks}},
		{"pay.out", `{"amount":100}`, ops, turn.Verdict{Action: turn.Allow, Rule: "small-payments"}},
		{"pay.out", `{"amount":100.00000000000001}`, ops, turn.Verdict{Action: turn.Ask, Rule: "big-payments", Approvers: 3, Expires: time.Hour, OnExpiry: turn.ExpiryDenies}},
		{"late", ``, ops, turn.Verdict{Action: turn.Ask, Rule: "late", Reason: "whenever", Approvers: 2, OnExpiry: turn.ExpiryAsks}},
		// A rule that cannot be evaluated decides, and denies.
		{"files.read", `{}`, ops, turn.Verdict{Action: turn.Deny, Rule: "no-secrets", Reason: "its condition cannot be evaluated: no such key: path"}},
		{"pay.out", `{"amount":"1"}`, ops, turn.Verdict{Action: turn.Deny, Rule: "small-payments", Reason: "its condition cannot be evaluated: no such overload"}},
		{"pay.out", `{"amount":1}`, turn.Subject{}, turn.Verdict{Action: turn.Deny, Rule: "small-payments", Reason: "its condition cannot be evaluated: no such key: team"}},
	} {
		tt.want.Policy = p.Digest()
		got := verdict(p, tt.subject, tt.tool, tt.args)
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", tt.tool, tt.args, diff)
		}
	}
	wantRules := []policy.Rule{
		{Name: "no-secrets", When: `tool == "files.read" && args.path.startsWith("/etc/")`, Line: 7, Action: turn.Deny, Reason: "system files are not for agents"},
		{Name: "small-payments", When: `tool.startsWith("pay.") && args.amount <= 100 && labels.team == "ops"`, Line: 11, Action: turn.Allow},
		{Name: "big-payments", When: "tool.startsWith(\"pay.\") &&\n  args.amount > 100\n", Line: 15, Action: turn.Ask, Approvers: 3, Expires: time.Hour, OnExpiry: turn.ExpiryDenies},
		{Name: "late", When: `tool == "late"`, Line: 22, Action: turn.Ask, Reason: "whenever", Approvers: 2, OnExpiry: turn.ExpiryAsks},
	}
	if diff := cmp.Diff(wantRules, p.Rules()); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
}

// Without a default a call for which no rule holds is its tool's, and asks as the policy
// says if that asks.
func TestPolicy_LeavesToTheTool(t *testing.T) {
	for text, want := range map[string]turn.Verdict{
		"rules: []":                                     {Approvers: 1, OnExpiry: turn.ExpiryDenies},
		"rules: []\napprovers: 4\nexpires: 90s":         {Approvers: 4, Expires: 90 * time.Second, OnExpiry: turn.ExpiryDenies},
		"rules: []\non_expiry: ask":                     {Approvers: 1, OnExpiry: turn.ExpiryAsks},
		"rules: [{name: a, when: 'false', then: deny}]": {Approvers: 1, OnExpiry: turn.ExpiryDenies},
	} {
		p := parse(t, text)
		want.Policy = p.Digest()
		if diff := cmp.Diff(want, verdict(p, turn.Subject{}, "t", "{}")); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
	for text, want := range map[string]turn.Action{"default: allow": turn.Allow, "default: deny": turn.Deny} {
		if got := verdict(parse(t, text), turn.Subject{}, "t", "{}"); got.Action != want || got.Rule != config.DefaultRule {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

func TestPolicy_Conditions(t *testing.T) {
	subject := turn.Subject{
		Session: "sess-1", Project: "prod", Name: "mail", Harness: "agent", Model: "fast", Labels: map[string]string{"team": "ops"},
	}
	const args = `{"list":[{"n":1},{"n":2}],"text":"Hello","nil":null,"no":false,"half":0.5,"empty":{},"huge":123456789012345678901234567890,"ip":"10.1.2.3"}`
	for when, want := range map[string]bool{
		`session.uid == "sess-1" && session.project == "prod" && session.name == "mail"`: true,
		`harness == "agent" && model == "fast" && labels == {"team": "ops"}`:             true,
		`approval`:                                   true,
		`on_crash == "retry"`:                        true,
		`has(labels.team) && !has(labels.owner)`:     true,
		`labels[?"owner"].orValue("none") == "none"`: true,
		`args.?list[?5].hasValue()`:                  false,
		`has(args.missing) && args.missing == 1`:     false,
		`"missing" in args || "text" in args`:        true,
		`args.missing == 1 || true`:                  true,
		`args.list.exists(x, x.n == 2)`:              true,
		`args.list.all(i, x, x.n > i)`:               true,
		`args.list.map(x, x.n) == [1, 2]`:            true,
		`args.text.lowerAscii() == "hello"`:          true,
		`args.text.matches("^H[a-z]+$")`:             true,
		`args.text.size() == 5 && size(args) == 8`:   true,
		`args.nil == null && args.empty == {}`:       true,
		`args.no`:                                    false,
		`args.half < 1`:                              true,
		`type(args.half) == double`:                  true,
		`["a"].all(x, x in ["a", "b"])`:              true,
		`base64.decode("aGk=") == b"hi"`:             true,
		`cidr("10.0.0.0/8").containsIP(ip(args.ip))`: true,
		`cel.bind(t, args.text, t == "Hello")`:       true,
		`timestamp("2026-01-02T03:04:05Z") < timestamp("2027-01-01T00:00:00Z") + duration("1h")`: true,
		`string(args.huge) == "123456789012345678901234567890"`:                                  true,
		`double(args.huge) > 1e29 && args.huge != 1 && args.huge == args.huge`:                   true,
		`args == {}`: false,
	} {
		call := abi.ToolCall{Tool: "t", Args: abi.Struct(args), Mediation: abi.MediationRequiresApproval}
		v := one(t, when).For(subject)(call, abi.ToolGrant{OnCrash: abi.OnCrashRetry})
		if v.Action == turn.Deny || (v.Action == turn.Allow) != want {
			t.Errorf("%s: %+v, want %v", when, v, want)
		}
	}
}

// What a rule makes of arguments that are not as it thinks is a denial, with the cause
// in a line.
func TestPolicy_FailsClosed(t *testing.T) {
	deep := strings.Repeat("[", abi.MaxDepth+1) + strings.Repeat("]", abi.MaxDepth+1)
	for _, tt := range []struct{ when, args, want string }{
		{`args.path == "x"`, `{}`, "no such key: path"},
		{`args.path == "x"`, ``, "no such key: path"},
		{`args.path == "x"`, `null`, "args: they are no object"},
		{`args.path.startsWith("x")`, `{"path":[]}`, "no such overload"},
		{`args.path`, `{"path":"x"}`, "it is a string and no bool"},
		{`args.n / 0 == 1`, `{"n":1}`, "division by zero"},
		{`args.n + 1 > 0`, `{"n":9223372036854775807}`, "integer overflow"},
		{`args.n * 2 > 0`, `{"n":0.5}`, "no such overload"},
		{`int(args.n) > 0`, `{"n":"one"}`, "type conversion error"},
		{`args.n < 5`, `{"n":18446744073709551616}`, "no such overload"},
		{`args == {}`, `[]`, "args: they are no object"},
		{`args != {}`, `{} {}`, "args: they are no JSON"},
		{`args != {}`, `{`, "args: they are no JSON"},
		{`args != {}`, `{"a":1e999}`, "is a number that no rule can compare"},
		{`args != {}`, `{"a":` + deep + `}`, "args: nested deeper than 500"},
		{`labels[args.k] == ""`, `{"k":"` + strings.Repeat(`one\n\t`, 999) + `"}`, "one one"},
		{`labels.x == "x"`, `{}`, "no such key: x"},
	} {
		v := verdict(one(t, tt.when), turn.Subject{}, "t", tt.args)
		if v.Action != turn.Deny || v.Rule != "r" || !strings.Contains(v.Reason, tt.want) {
			t.Errorf("%s of %.40s: %+v, want a denial with %q", tt.when, tt.args, v, tt.want)
		}
		if len(v.Reason) > 300 || strings.ContainsAny(v.Reason, "\n\t") {
			t.Errorf("%s of %.40s: the reason is %q", tt.when, tt.args, v.Reason)
		}
	}
}

// Everything that is wrong with the rules is told at once, with file, line and place.
func TestParse_Refuses(t *testing.T) {
	rule := func(rest string) string { return "rules:\n  - name: a\n    when: 'true'\n    " + rest }
	for _, tt := range []struct{ text, want string }{
		{"rulez: []", `policy "policy.yaml": bad configuration: line 1: there is no setting rulez`},
		{rule("then: allow\n    whom: x"), "line 5: there is no setting whom"},
		{rule("then: perhaps"), `line 2: rule "a": then is "perhaps"; want allow, deny or ask`},
		{rule("then: allow\n    approvers: 2"), `line 2: rule "a": approvers, expires and on_expiry are for a rule that asks, and this one says allow`},
		{rule("then: ask\n    approvers: -1"), `rule "a": approvers: -1: want 1 or more`},
		{rule("then: ask\n    approvers: 33"), `rule "a": 33 people to approve a call: want 1 to 32`},
		{rule("then: ask\n    expires: 0s"), `line 5: expires: "0s": want a time above 0, such as 24h, or never`},
		{rule("then: ask\n    expires: 100000h"), `rule "a": a request that expires after 100000h0m0s: want at most`},
		{rule("then: ask\n    on_expiry: shrug"), `rule "a": on_expiry is "shrug"; want deny or ask`},
		{"approvers: 33", `rule "default": 33 people to approve a call`},
		{"on_expiry: shrug", `on_expiry is "shrug"`},
		{"default: maybe", `default is "maybe"; want allow, deny or ask`},
		{"rules: [{when: 'true', then: deny}]", "rule 1 has no name"},
		{"rules: [{name: a, then: deny}]", `line 1: rule "a": when is missing; true stands for every call`},
		{"rules: [{name: default, when: 'true', then: deny}]", `line 1: "default": want a name`},
		{"rules: [{name: a b, when: 'true', then: deny}]", `line 1: "a b": want a name of letters`},
		{"rules:\n- {name: a, when: 'true', then: deny}\n- {name: a, when: 'true', then: deny}", `line 3: rule "a" stands at line 2 already`},
		{"rules: [{name: a, when: [true], then: deny}]", "line 1: want a text"},
		{"", "no rules and no default; write rules: [] to leave each call to its tool"},
		{"rules:\n", "no rules and no default"},
		{"expires: 24h\non_expiry: deny\n# rules: []", "no rules and no default"},
		{"a: b: c", "mapping values are not allowed"},
		{"rules: []\n---\nrules: []", "want one document"},
		{"rules: [{name: a, when: tool, then: deny}]", `rule "a": line 1: when is a string; want a bool`},
		{"rules: [{name: a, when: 'args.x.matches(args.y)', then: deny}]", "want the pattern here, in quotes"},
		{"rules: [{name: a, when: 'args.x.matches(\"(\")', then: deny}]", "invalid matches argument"},
		{"rules: [{name: a, when: 'session.mane == \"\"', then: deny}]", "undeclared reference to 'session.mane'"},
	} {
		_, err := policy.Parse("policy.yaml", []byte(tt.text))
		if !errors.Is(err, config.ErrConfig) || !strings.Contains(fmt.Sprint(err), tt.want) {
			t.Errorf("%q: %v; want %q", tt.text, err, tt.want)
		}
	}
	_, err := policy.Parse("my.yaml", []byte(`rules:
  - name: one
    when: |
      tool == "x" &&
        agrs.path == ""
    then: deny
  - name: two
    when: tool ==
    then: deny
  - {name: two, when: "true", then: wave}
  - {when: agrs == 1, then: deny}
  - {name: many, when: "true", then: ask, approvers: 99}
  - {then: deny}
approvers: 33
`))
	want, rerr := os.ReadFile("testdata/wrong.txt")
	if rerr != nil {
		t.Fatal(rerr)
	}
	if diff := cmp.Diff(string(want), fmt.Sprintln(err)); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
}

// A condition can neither ask what time it is nor make much of little: what it may call
// is a list, and all else that CEL has is refused.
func TestParse_RefusesFunctions(t *testing.T) {
	for _, when := range []string{
		`args.a.replace("a", args.b) == ""`, `args.a.join(args.b) == ""`, `"%s".format([args.a]) == ""`,
		`lists.range(args.n).size() > 0`, `args.a.indexOf(args.b) > 0`, `sets.contains(args.a, args.b)`, `matches(args.a, "a")`, `args.a.transformMap(k, v, v) == {}`, `args.t.getHours("Europe/Vienna") == 1`,
		`now() > timestamp("2026-01-01T00:00:00Z")`, `yaml.parse(args.a) == {}`, `json.encode(args.a) == ""`, `strings.quote(args.a) == ""`,
	} {
		_, err := policy.Parse("policy.yaml", fmt.Appendf(nil, "rules: [{name: r, then: allow, when: %q}]", when))
		if !errors.Is(err, config.ErrConfig) {
			t.Errorf("%s: %v, want it refused", when, err)
		}
	}
}

func TestPolicy_Numbers(t *testing.T) {
	for _, tt := range []struct {
		when, args string
		want       bool
	}{
		{`args.n <= 100`, `{"n":100.0}`, true},
		{`args.n == 100`, `{"n":1e2}`, true},
		{`args.n == 100.0`, `{"n":100}`, true},
		{`args.n <= 100`, `{"n":100.00000000000002}`, false},
		{`args.n == 9007199254740993`, `{"n":9007199254740993}`, true},
		{`args.n == 9007199254740993`, `{"n":9007199254740992}`, false},
		{`args.n <= 9007199254740992`, `{"n":9007199254740993}`, false},
		{`args.n <= 9007199254740992`, `{"n":9007199254740993.0}`, false},
		{`args.n == 18446744073709551615u`, `{"n":18446744073709551615}`, true},
		{`args.n <= 18446744073709551614u`, `{"n":18446744073709551615}`, false},
		{`args.n > 9223372036854775807`, `{"n":9223372036854775808}`, true},
		{`args.n == -9223372036854775808`, `{"n":-9223372036854775808}`, true},
		{`args.n == args.m`, `{"n":18446744073709551616,"m":18446744073709551617}`, false},
		{`args.n == args.m`, `{"n":18446744073709551616,"m":18446744073709551616.0}`, true},
		{`[args.n] == [args.m]`, `{"n":18446744073709551616,"m":18446744073709551617}`, false},
		{`args.n in [1, args.m]`, `{"n":18446744073709551616,"m":18446744073709551617}`, false},
		{`args.n == 0`, `{"n":-0.0}`, true},
		{`args.n == 0`, `{"n":0e99999999999999999999}`, true},
	} {
		if v := verdict(one(t, tt.when), turn.Subject{}, "t", tt.args); v.Action == turn.Deny || (v.Action == turn.Allow) != tt.want {
			t.Errorf("%s of %s: %+v, want %v", tt.when, tt.args, v, tt.want)
		}
	}
}

// Whatever the arguments are, a rule comes to an end within its cost.
func TestS3_HostileArguments(t *testing.T) {
	large := `"` + strings.Repeat("a", 1<<18) + `"`
	many := "[" + strings.Repeat("1,", 60_000) + "1]"
	deep := strings.Repeat("[", 490) + strings.Repeat("]", 490)
	args := fmt.Sprintf(`{"text":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","large":%s,"many":%s,"deep":%s}`, large, many, deep)
	const costs = "it costs more than 1000000 on these arguments"
	for when, want := range map[string]string{
		`args.many.all(x, args.many.all(y, y == 1))`:                                                             costs,
		`args.many.all(x, size(args.large) > 1)`:                                                                 costs,
		`args.many.all(x, !(args.large in args))`:                                                                costs,
		`args.many.all(x, args.large.contains("aaa") && x == 1)`:                                                 costs,
		`args.many.all(x, args.large != args.large + "b")`:                                                       costs,
		`args.many.all(x, args.many != args.many + [x])`:                                                         costs,
		`args.many.all(x, {"a": [args.many]} != {"a": [args.deep]})`:                                             costs,
		`args.many.map(x, args.many).size() > 0 && args.many.all(x, [args.many] == [args.many])`:                 costs,
		`args.large.split("").all(x, args.large.split("") != [])`:                                                costs,
		`args.large.matches("(a*)*b") || args.large.matches("(a|aa)+$") || !args.large.matches("(.*)(.*)(.*)x")`: "",
		`args.deep == args.deep`:                                                                                 "",
	} {
		p := one(t, when)
		v := verdict(p, turn.Subject{}, "t", args)
		if got := strings.TrimPrefix(v.Reason, "its condition cannot be evaluated: "); got != want {
			t.Errorf("%s: %+v, want %q", when, v, want)
		}
	}
}

// The cost is that of all rules together.
func TestPolicy_BoundsTheWhole(t *testing.T) {
	var text strings.Builder
	text.WriteString("rules:\n")
	for i := range 20 {
		fmt.Fprintf(&text, "- {name: r%d, then: allow, when: 'args.many.exists(x, x == 2)'}\n", i)
	}
	args := `{"many":[` + strings.Repeat("1,", 20_000) + `1]}`
	v := verdict(parse(t, text.String()), turn.Subject{}, "t", args)
	if v.Action != turn.Deny || !strings.Contains(v.Reason, "costs more than") || v.Rule == "r0" {
		t.Errorf("%+v, want a denial by a later rule for its cost", v)
	}
}

// A policy serves all turns of a host at once.
func TestPolicy_Concurrent(t *testing.T) {
	p := parse(t, whole)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			decide := p.For(turn.Subject{Labels: map[string]string{"team": "ops"}})
			for n := range 50 {
				call := abi.ToolCall{Tool: "pay.out", Args: fmt.Appendf(nil, `{"amount":%d}`, 50*i+n)}
				want := turn.Allow
				if 50*i+n > 100 {
					want = turn.Ask
				}
				if v := decide(call, abi.ToolGrant{}); v.Action != want {
					t.Errorf("%s: %+v, want %s", call.Args, v, want)
				}
			}
		})
	}
	all.Wait()
}
