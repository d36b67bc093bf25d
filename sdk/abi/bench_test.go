package abi_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/agentcell/agentcell/sdk/abi"
)

// modelCall is a MODEL_CALL as hosts record it.
func modelCall() *abi.Event {
	return &abi.Event{
		Kind: abi.EventModelCall, ExecutionID: "exec-0123456789abcdef01234567", SchemaVersion: abi.SchemaVersion,
		Time: abi.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)),
		Cell: &abi.Cell{Request: abi.DigestOf([]byte("request")), Messages: abi.DigestOf([]byte("messages"))},
		Model: &abi.ModelCall{
			Model: "default", Params: map[string]string{"temperature": "0.7"}, ID: "call-1",
			InputHash: strings.Repeat("0123456789abcdef", 4),
			Messages: []abi.Message{
				abi.Text(abi.RoleSystem, "You are brief.\nYou answer in one sentence."),
				abi.Text(abi.RoleUser, strings.Repeat("What is the answer? ", 10)),
			},
		},
	}
}

func BenchmarkCanonical(b *testing.B) {
	src, err := json.Marshal(modelCall())
	if err != nil {
		b.Fatal(err)
	}
	dst := make([]byte, 0, len(src))
	b.SetBytes(int64(len(src)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := abi.AppendCanonical(dst[:0], src); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncodeEvent(b *testing.B) {
	event := modelCall()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := abi.EncodeEvent(event); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeEvent(b *testing.B) {
	encoded, err := abi.EncodeEvent(modelCall())
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(encoded)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := abi.DecodeEvent(encoded); err != nil {
			b.Fatal(err)
		}
	}
}
