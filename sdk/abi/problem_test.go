package abi_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentcell/agentcell/sdk/abi"
)

func TestJSONProblem(t *testing.T) {
	for text, want := range map[string]string{
		`[]`:                 "the value is of type array; want an object",
		`{"text":1}`:         "text is of type number; want a string",
		`{"on":"yes"}`:       "on is of type string; want true or false",
		`{"n":1.5}`:          "n is of type number 1.5; want a whole number",
		`{"n":1e30}`:         "n is of type number 1e30; want a whole number",
		`{"u":-1}`:           "u is of type number -1; want a whole number from 0",
		`{"f":"x"}`:          "f is of type string; want a number",
		`{"list":{}}`:        "list is of type object; want a list",
		`{"in":{"text":[]}}`: "in.text is of type array; want a string",
		`{"by_name":3}`:      "by_name is of type number; want an object",
		`{"other":3}`:        `unknown field "other"`,
		`{`:                  "unexpected EOF",
	} {
		var v struct {
			Text   string         `json:"text"`
			On     bool           `json:"on"`
			N      int64          `json:"n"`
			U      uint8          `json:"u"`
			F      float64        `json:"f"`
			List   []int          `json:"list"`
			ByName map[string]int `json:"by_name"`
			In     struct {
				Text string `json:"text"`
			} `json:"in"`
		}
		d := json.NewDecoder(strings.NewReader(text))
		d.DisallowUnknownFields()
		err := d.Decode(&v)
		if err == nil {
			t.Fatalf("%s: no error", text)
		}
		if diff := cmp.Diff(want, abi.JSONProblem(fmt.Errorf("%w", err))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
	if got := abi.JSONProblem(errors.New("text after the value")); got != "text after the value" {
		t.Errorf("an error of someone else becomes %q", got)
	}
}
