package abi_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agentcell/agentcell/sdk/abi"
)

// The example of RFC 8785, section 3.2.2, and its canonical form as bytes, from
// section 3.2.4.
const (
	rfcExample = `{
  "numbers": [333333333.33333329, 1E30, 4.50,
              2e-3, 0.000000000000000000000000001],
  "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
  "literals": [null, true, false]
}`
	rfcCanonical = `{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],` +
		`"string":"€$\u000f\nA'B\"\\\\\"/"}`
)

func TestCanonical(t *testing.T) {
	tests := []struct{ name, src, want string }{
		{"RFC 8785 example", rfcExample, rfcCanonical},
		{
			"RFC 8785 sorting", `{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One","\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}`,
			"{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\u0080\":\"Control\",\"ö\":\"Latin Small Letter O With Diaeresis\",\"€\":\"Euro Sign\",\"😀\":\"Emoji: Grinning Face\",\"\ufb33\":\"Hebrew Letter Dalet With Dagesh\"}",
		},
		{"white space", " \t\r\n[ 1 , { } , [ ] , { \"a\" : 2 } ] \n", `[1,{},[],{"a":2}]`},
		{"a word", "true", "true"},
		{"order is by name, not by escape", `{"b":1,"\u0061":2,"B":3,"":4}`, `{"":4,"B":3,"a":2,"b":1}`},
		{"a prefix goes first", `{"aa":1,"a":2,"ab":3}`, `{"a":2,"aa":1,"ab":3}`},
		{"objects within", `{"b":{"d":1,"c":[{"f":1,"e":2}]},"a":0}`, `{"a":0,"b":{"c":[{"e":2,"f":1}],"d":1}}`},
		{"short escapes", `"\u0008\u0009\u000a\u000c\u000d\u0022\u005c\u002f"`, `"\b\t\n\f\r\"\\/"`},
		{"control characters", `"\u0000\u001F\u007f"`, "\"\\u0000\\u001f\u007f\""},
		{"line separators stand raw", `"\u2028\u2029"`, "\"\u2028\u2029\""},
		{"HTML stands raw", `"\u003c\u003e\u0026"`, `"<>&"`},
		{"astral", `"\ud83d\ude00\uD834\uDD1E"`, `"😀𝄞"`},
		{"no normalisation", `"\u00e5A\u030a"`, "\"åA\u030a\""},
		{"the last character", `"\udbff\udfff\uffff"`, "\"\U0010ffff\uffff\""},
	}
	for _, test := range tests {
		got, err := abi.Canonical([]byte(test.src))
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		if diff := gocmp.Diff(test.want, string(got)); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
	}
}

// The numbers of RFC 8785, appendix B, by the bits of their doubles, and some
// of ours.
func TestCanonicalNumbers(t *testing.T) {
	for bits, want := range map[uint64]string{
		0x0000000000000000: "0",
		0x8000000000000000: "0",
		0x0000000000000001: "5e-324",
		0x8000000000000001: "-5e-324",
		0x7fefffffffffffff: "1.7976931348623157e+308",
		0xffefffffffffffff: "-1.7976931348623157e+308",
		0x4340000000000000: "9007199254740992",
		0xc340000000000000: "-9007199254740992",
		0x4430000000000000: "295147905179352830000",
		0x44b52d02c7e14af5: "9.999999999999997e+22",
		0x44b52d02c7e14af6: "1e+23",
		0x44b52d02c7e14af7: "1.0000000000000001e+23",
		0x444b1ae4d6e2ef4e: "999999999999999700000",
		0x444b1ae4d6e2ef4f: "999999999999999900000",
		0x444b1ae4d6e2ef50: "1e+21",
		0x3eb0c6f7a0b5ed8c: "9.999999999999997e-7",
		0x3eb0c6f7a0b5ed8d: "0.000001",
		0x41b3de4355555553: "333333333.3333332",
		0x41b3de4355555554: "333333333.33333325",
		0x41b3de4355555555: "333333333.3333333",
		0x41b3de4355555556: "333333333.3333334",
		0x41b3de4355555557: "333333333.33333343",
		0xbecbf647612f3696: "-0.0000033333333333333333",
		0x43143ff3c1cb0959: "1424953923781206.2",
	} {
		src := strconv.FormatFloat(math.Float64frombits(bits), 'e', 17, 64)
		if got, err := abi.Canonical([]byte(src)); err != nil || string(got) != want {
			t.Errorf("%s: got %s, %v, want %s", src, got, err, want)
		}
	}
	for src, want := range map[string]string{
		"-0":                           "0",
		"-0.0":                         "0",
		"0e5":                          "0",
		"0e-99999999999":               "0",
		"0E99999999999":                "0",
		"1e-400":                       "0",
		"-12":                          "-12",
		"1E0":                          "1",
		"10e-1":                        "1",
		"0.10":                         "0.1",
		"1e-7":                         "1e-7",
		"1e21":                         "1e+21",
		"1e20":                         "100000000000000000000",
		"123456789012345":              "123456789012345",
		"-99999999999999":              "-99999999999999",
		"9007199254740993":             "9007199254740992",
		"1000000000000000000000":       "1e+21",
		"1" + strings.Repeat("0", 308): "1e+308",
	} {
		if got, err := abi.Canonical([]byte(src)); err != nil || string(got) != want {
			t.Errorf("%s: got %s, %v, want %s", src, got, err, want)
		}
	}
}

func TestCanonicalRefuses(t *testing.T) {
	tests := []struct{ src, want string }{
		{"", "want a value"},
		{"  ", "want a value"},
		{"nul", "want a value"},
		{"truefalse", "text after the value"},
		{"[1 2]", "want ',' or ']'"},
		{"[1,]", "want a value"},
		{"[", "want a value"},
		{"[1", "want ',' or ']'"},
		{"{", "want a name"},
		{`{"a"}`, "want ':'"},
		{`{"a":}`, "want a value"},
		{`{"a":1`, "want ',' or '}'"},
		{`{"a":1,}`, "want a name"},
		{`{a:1}`, "want a name"},
		{`{"a":1}}`, "text after the value"},
		{"1 2", "text after the value"},
		{"01", "text after the value"},
		{"+1", "want a value"},
		{".5", "want a value"},
		{"-", "malformed number"},
		{"1.", "malformed number"},
		{"1e", "malformed number"},
		{"1e+", "malformed number"},
		{"0x10", "text after the value"},
		{"NaN", "want a value"},
		{"Infinity", "want a value"},
		{"1e400", "outside the range of a double"},
		{"-1e400", "outside the range of a double"},
		{`{"a":1,"a":1}`, `the name "a" stands twice`},
		{`{"a":1,"b":2,"a":1}`, `the name "a" stands twice`},
		{`{"b":1,"a":2,"b":1}`, `the name "b" stands twice`},
		{`{"a":1,"\u0061":1}`, `the name "a" stands twice`},
		{`[{"x":{"a":1,"a":1}}]`, `the name "a" stands twice`},
		{`"`, "string without end"},
		{`"\`, "unknown escape"},
		{`"\"`, "string without end"},
		{`"\x41"`, "unknown escape"},
		{"\"\\\x00\"", "unknown escape"},
		{`"\u12"`, "short \\u escape"},
		{`"\u12`, "short \\u escape"},
		{`"\u`, "short \\u escape"},
		{`"\u+123"`, "bad \\u escape"},
		{`"\u12x4"`, "bad \\u escape"},
		{`"\ud800"`, "lone surrogate"},
		{`"\ud800x"`, "lone surrogate"},
		{`"\ud800\n"`, "lone surrogate"},
		{`"\ud800\u0041"`, "lone surrogate"},
		{`"\udc00\ud800"`, "lone surrogate"},
		{`"\udc00"`, "lone surrogate"},
		{`"\ud800\`, "lone surrogate"},
		{`"\ud800\u`, "short \\u escape"},
		{"\"\xff\"", "not UTF-8"},
		{"\"\\n\xff\"", "not UTF-8"},
		{"\"\xed\xa0\x80\"", "not UTF-8"},
		{"{\"\xc0\x80\":1}", "not UTF-8"},
		{"\"a\nb\"", "control character"},
		{"\"\\ta\x01\"", "control character"},
		{"\ufeff1", "want a value"},
		{strings.Repeat("[", 502) + strings.Repeat("]", 502), "nested deeper than 500"},
		{strings.Repeat(`{"a":`, 502) + "1" + strings.Repeat("}", 502), "nested deeper than 500"},
		{strings.Repeat("[", 1_000_000), "nested deeper than 500"},
	}
	for _, test := range tests {
		got, err := abi.Canonical([]byte(test.src))
		if !errors.Is(err, abi.ErrJSON) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%.40q: got %.40q, error %v, want %s", test.src, got, err, test.want)
		}
	}
	deep := strings.Repeat("[", abi.MaxDepth) + "1" + strings.Repeat("]", abi.MaxDepth)
	if got, err := abi.Canonical([]byte(deep)); err != nil || string(got) != deep {
		t.Errorf("%d arrays in one another: %v", abi.MaxDepth, err)
	}
}

func TestAppendCanonical(t *testing.T) {
	prefix := []byte("x")
	got, err := abi.AppendCanonical(prefix, []byte(`{"b":1,"a":2}`))
	if err != nil || string(got) != `x{"a":2,"b":1}` {
		t.Errorf("got %s, %v", got, err)
	}
}

// jsonValue draws values as encoding/json decodes them.
func jsonValue(depth int) *rapid.Generator[any] {
	number := rapid.Custom(func(t *rapid.T) any {
		return rapid.OneOf(
			rapid.Float64Range(-1e9, 1e9),
			rapid.Float64(),
			rapid.Map(rapid.Int64(), func(n int64) float64 { return float64(n) }),
		).Filter(func(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }).Draw(t, "number")
	})
	scalar := rapid.OneOf(
		number,
		rapid.Map(rapid.String(), func(s string) any { return s }),
		rapid.Map(rapid.Bool(), func(b bool) any { return b }),
		rapid.Just(any(nil)),
	)
	if depth == 0 {
		return scalar
	}
	return rapid.Custom(func(t *rapid.T) any {
		switch rapid.IntRange(0, 3).Draw(t, "form") {
		case 0:
			return rapid.SliceOfN(jsonValue(depth-1), 0, 5).Draw(t, "array")
		case 1:
			return rapid.MapOfN(rapid.String(), jsonValue(depth-1), 0, 20).Draw(t, "object")
		}
		return scalar.Draw(t, "scalar")
	})
}

// Any value: its canonical form says the same, is its own canonical form, and
// does not depend on how the value was written.
func TestCanonicalProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := jsonValue(3).Draw(t, "value")
		src, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		got, err := abi.Canonical(src)
		if err != nil {
			t.Fatal(err)
		}
		again, err := abi.Canonical(got)
		if err != nil || !bytes.Equal(again, got) {
			t.Fatalf("the canonical form of %s is %s, %v", got, again, err)
		}
		var want, back any
		if json.Unmarshal(src, &want) != nil || json.Unmarshal(got, &back) != nil {
			t.Fatalf("%s or %s is not JSON", src, got)
		}
		if diff := gocmp.Diff(want, back); diff != "" {
			t.Fatal(diff)
		}
		indented, err := json.MarshalIndent(value, "", "\t")
		if err != nil {
			t.Fatal(err)
		}
		if other, err := abi.Canonical(indented); err != nil || !bytes.Equal(other, got) {
			t.Fatalf("indented: got %s, %v, want %s", other, err, got)
		}
	})
}

// Names are in the order of their UTF-16 units, also where that is not the
// order of their bytes.
func TestCanonicalOrder(t *testing.T) {
	name := rapid.StringOfN(rapid.RuneFrom([]rune("a\u007f\u0080\ud7ff\ue000\ufb33\uffff\U00010000\U0001f600\U0010ffff")), 0, 4, -1)
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfNDistinct(name, 1, 30, rapid.ID).Draw(t, "names")
		object := make(map[string]int, len(names))
		for i, n := range names {
			object[n] = i
		}
		got, err := abi.MarshalCanonical(object)
		if err != nil {
			t.Fatal(err)
		}
		sorted := slices.Clone(names)
		slices.SortFunc(sorted, func(a, b string) int {
			return slices.CompareFunc(utf16.Encode([]rune(a)), utf16.Encode([]rune(b)), cmp.Compare[uint16])
		})
		var order []string
		d := json.NewDecoder(bytes.NewReader(got))
		for {
			token, err := d.Token()
			if err != nil {
				break
			}
			if n, ok := token.(string); ok {
				order = append(order, n)
			}
		}
		if diff := gocmp.Diff(sorted, order); diff != "" {
			t.Fatal(diff)
		}
	})
}

// Any bytes: refused, or JSON whose form says the same and is its own form.
func FuzzCanonical(f *testing.F) {
	for _, seed := range []string{rfcExample, `{"b":1,"a":[]}`, `"\ud83d\ude00"`, "-0", "1e21", "5e-324", `{"":{"":1}}`, "[", `"\u2028"`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		got, err := abi.Canonical(src)
		if err != nil {
			if !errors.Is(err, abi.ErrJSON) {
				t.Errorf("%v is not ErrJSON", err)
			}
			return
		}
		again, err := abi.Canonical(got)
		if err != nil || !bytes.Equal(again, got) {
			t.Errorf("the canonical form of %q is %q, %v", got, again, err)
		}
		var want, back any
		if err := json.Unmarshal(src, &want); err != nil {
			t.Fatalf("%q is not JSON: %v", src, err)
		}
		if err := json.Unmarshal(got, &back); err != nil {
			t.Fatalf("%q is not JSON: %v", got, err)
		}
		if !reflect.DeepEqual(want, back) {
			t.Errorf("%q says other than %q", got, src)
		}
	})
}
