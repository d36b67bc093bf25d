package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// request is a message of the client.
type request struct {
	ID     json.RawMessage
	Method string
	Error  json.RawMessage
}

// fake is a server that is hostile or broken in the way of its name.
func fake(how string) {
	switch how {
	case "mute":
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	case "stubborn", "stubborn-child": // neither answers nor ends
		signal.Ignore(syscall.SIGTERM)
		if len(os.Args) > 2 {
			_ = exec.Command(os.Args[0], "hold", os.Args[2]).Start()
		}
		time.Sleep(time.Hour)
	case "garbage":
		fmt.Println("Welcome to the server!")
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	case "dead":
		os.Exit(1)
	case "flood":
		flood([]byte(strings.Repeat("x", 1<<16)))
	}
	in := bufio.NewReader(os.Stdin)
	lists := 0
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var r request
		if json.Unmarshal(line, &r) != nil {
			os.Exit(1)
		}
		switch r.Method {
		case "initialize":
			answer(r, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"fake","version":"1"}}`)
			if how == "deaf" {
				time.Sleep(time.Hour)
			}
		case "tools/list":
			lists++
			list(how, r, lists)
		case "tools/call":
			note("call")
			call(how, r, in)
		}
	}
}

func answer(r request, result string) {
	fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", r.ID, result)
}

// flood writes b until nobody reads it.
func flood(b []byte) {
	for {
		if _, err := os.Stdout.Write(b); err != nil {
			os.Exit(0)
		}
	}
}

func tool(name string) string {
	return fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object"}}`, name)
}

func list(how string, r request, lists int) {
	var tools []string
	switch how {
	case "many":
		for i := range 10_000 {
			tools = append(tools, tool(fmt.Sprintf("t%d", i)))
		}
	case "names":
		tools = []string{
			tool(""), tool("a b"), tool("../x"), tool("ok"), tool("ok"), tool(strings.Repeat("n", 200)), tool("lösche"), "null",
			`{"name":"list","inputSchema":[]}`, `{"name":"none"}`, `{"name":"large","inputSchema":{"description":"` + strings.Repeat("x", 300<<10) + `"}}`,
		}
	case "changing":
		tools = []string{tool("ok"), tool(fmt.Sprintf("t%d", lists))}
		fmt.Println(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	case "endless":
		answer(r, `{"tools":[],"nextCursor":"more"}`)
		return
	case "listless":
		return
	default:
		tools = []string{tool("ok")}
	}
	answer(r, `{"tools":[`+strings.Join(tools, ",")+`]}`)
}

func call(how string, r request, in *bufio.Reader) {
	switch how {
	case "dies":
		os.Exit(3)
	case "huge":
		fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"`, r.ID)
		b := []byte(strings.Repeat("x", 1<<20))
		for range 200 {
			if _, err := os.Stdout.Write(b); err != nil {
				return
			}
		}
		fmt.Println(`"}]}}`)
	case "babbling":
		flood([]byte(`{"jsonrpc":"2.0","id":"p","method":"ping"}` + "\n"))
	case "odd":
		answer(r, `{"content":[{"type":"hologram"}]}`)
	case "list":
		answer(r, `{"content":[],"structuredContent":[1]}`)
	case "twice":
		answer(r, `{"content":[],"structuredContent":{"a":1,"a":2}}`)
	case "noisy": // 64 MB on stderr before it answers
		for range 1 << 10 {
			fmt.Fprintln(os.Stderr, strings.Repeat("x", 1<<16))
		}
		answer(r, `{"content":[]}`)
	case "refuses":
		fmt.Printf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no such thing"}}`+"\n", r.ID)
	case "asks":
		// What the client answers to its requests is the result.
		var said []string
		for _, method := range []string{"sampling/createMessage", "elicitation/create", "server/made/up"} {
			fmt.Printf(`{"jsonrpc":"2.0","id":"q","method":%q,"params":{"messages":[],"maxTokens":1,"message":"?","requestedSchema":{"type":"object"}}}`+"\n", method)
			for {
				line, err := in.ReadBytes('\n')
				if err != nil {
					return
				}
				var a request
				if json.Unmarshal(line, &a) == nil && string(a.ID) == `"q"` {
					said = append(said, fmt.Sprintf("%s refused: %t", method, a.Error != nil))
					break
				}
			}
		}
		text, _ := json.Marshal(strings.Join(said, "; "))
		answer(r, `{"content":[{"type":"text","text":`+string(text)+`}]}`)
	default:
		time.Sleep(time.Hour)
	}
}
