// Rules does in its cell what the first input names, and puts out what came of
// it. harness-authoring.md says what that is, and rules_test.go compares.
package main

import (
	"context"
	cryptorand "crypto/rand"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/agentcell/agentcell/sdk"
	"github.com/agentcell/agentcell/sdk/abi"
)

type rules struct{ remembered int }

func (*rules) Describe() abi.HarnessDescriptor { return abi.HarnessDescriptor{ID: "rules"} }

func (r *rules) Run(ctx context.Context, t *sdk.Turn) error {
	answer, err := r.answer(ctx, t)
	if err != nil {
		return err
	}
	return t.OutputText(ctx, answer)
}

func (r *rules) answer(ctx context.Context, t *sdk.Turn) (string, error) {
	switch what := t.Inputs()[0].Text(); what {
	case "top-level math/rand":
		return fmt.Sprint(rand.Uint64()), nil
	case "crypto/rand":
		return cryptorand.Text(), nil
	case "turn rand":
		return fmt.Sprint(t.Rand().Uint64()), nil
	case "map order":
		return mapOrder(), nil
	case "now":
		now := time.Now().UTC()
		return fmt.Sprint(now.Truncate(time.Second).Format(time.RFC3339), " ", time.Since(now)), nil
	case "sleep":
		from := time.Now()
		time.Sleep(time.Hour)
		return time.Since(from).Truncate(time.Second).String(), nil
	case "deadline":
		ctx, cancel := context.WithTimeout(ctx, time.Hour)
		defer cancel()
		<-ctx.Done()
		_, err := t.Model(ctx, abi.ModelCall{})
		return "", err
	case "goroutines":
		return goroutines(), nil
	case "leave a goroutine":
		go func() {
			time.Sleep(time.Millisecond)
			r.remembered += 100
		}()
		return "", nil
	case "remember":
		r.remembered++
		return fmt.Sprint(r.remembered), nil
	case "file":
		_, err := os.ReadFile("/etc/hostname")
		return "", err
	case "socket":
		_, err := net.Dial("tcp", "127.0.0.1:80")
		return "", err
	case "environment":
		return fmt.Sprint(os.Environ(), os.Args), nil
	case "print":
		fmt.Println("a line")
		return "", nil
	case "exit":
		os.Exit(0)
	case "deadlock":
		select {}
	case "panic":
		panic("no way on")
	case "panic elsewhere":
		go panic("no way on")
		time.Sleep(time.Second)
	}
	return "", fmt.Errorf("not in harness-authoring.md")
}

func mapOrder() string {
	m := map[int]bool{}
	for i := range 50 {
		m[i] = true
	}
	var order []string
	for i := range m {
		order = append(order, fmt.Sprint(i))
	}
	return strings.Join(order, " ")
}

func goroutines() string {
	var wait sync.WaitGroup
	var mu sync.Mutex
	var order []string
	for i := range 9 {
		wait.Go(func() {
			for range i % 3 {
				time.Sleep(time.Millisecond)
			}
			mu.Lock()
			defer mu.Unlock()
			order = append(order, fmt.Sprint(i))
		})
	}
	wait.Wait()
	return strings.Join(order, " ")
}

func init() { sdk.Register(&rules{}) }

func main() {}
