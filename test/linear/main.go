// Command linear reads what several hosts did with sandboxes at the same time, a line of JSON
// for each call, and says whether one host after the other could have done it: whether the
// history is linearizable. It ends with 1 where it is not. Its module is apart, so that nothing
// of the checker is part of the product's.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

// Call is one call of a host's. Sandboxes are nobody's when a history begins.
type Call struct {
	Sandbox string `json:"sandbox"`
	Host    string `json:"host"`
	// Op is "claim", "owner" (who has it), "write" (a change that only the owner may make) or
	// "give_up" (Lost is a dead host, whose sandbox becomes nobody's).
	Op   string `json:"op"`
	Lost string `json:"lost,omitempty"`
	// Begin and End are when the call was made and when it returned.
	Begin int64 `json:"begin"`
	End   int64 `json:"end"`
	// Unknown says that the caller was not told what came of it.
	Unknown bool `json:"unknown,omitempty"`
	// OK says that the claim was won, or that the write was made.
	OK bool `json:"ok,omitempty"`
	// Owner is what a call of owner returned; empty for nobody.
	Owner string `json:"owner,omitempty"`
}

// step returns who may have a sandbox after a call, of one that owner has; nothing where the
// call cannot have come out as it did.
func step(owner string, c Call) []any {
	same := []any{owner}
	var after string // what a call that is done makes of it
	switch c.Op {
	case "claim":
		if !c.Unknown && c.OK != (owner == "") {
			return nil
		}
		if owner != "" {
			return same
		}
		after = c.Host
	case "owner":
		if !c.Unknown && c.Owner != owner {
			return nil
		}
		return same
	case "write":
		if !c.Unknown && c.OK != (owner == c.Host) {
			return nil
		}
		return same
	case "give_up":
		if owner != c.Lost {
			return same
		}
	}
	if c.Unknown {
		return []any{owner, after}
	}
	return []any{after}
}

var model = porcupine.NondeterministicModel{
	Init:  func() []any { return []any{""} },
	Step:  func(state, input, _ any) []any { return step(state.(string), input.(Call)) },
	Equal: func(a, b any) bool { return a == b },
	Partition: func(history []porcupine.Operation) (parts [][]porcupine.Operation) {
		at := map[string]int{}
		for _, o := range history {
			id := o.Input.(Call).Sandbox
			i, ok := at[id]
			if !ok {
				i = len(parts)
				at[id], parts = i, append(parts, nil)
			}
			parts[i] = append(parts[i], o)
		}
		return parts
	},
}

// check says what is wrong with a history.
func check(calls []Call, within time.Duration) error {
	history := make([]porcupine.Operation, len(calls))
	for i, c := range calls {
		switch c.Op {
		case "claim", "owner", "write", "give_up":
		default:
			return fmt.Errorf("call %d: there is no operation %q", i+1, c.Op)
		}
		if c.End < c.Begin {
			return fmt.Errorf("call %d: it returned before it was made", i+1)
		}
		o := porcupine.Operation{ClientId: i, Input: c, Call: c.Begin, Return: c.End}
		if c.Unknown {
			o.Return = math.MaxInt64 // it may come into effect whenever
		}
		history[i] = o
	}
	switch porcupine.CheckOperationsTimeout(model.ToModel(), history, within) {
	case porcupine.Ok:
		return nil
	case porcupine.Illegal:
		return errors.New("no order of the calls explains the history")
	}
	return fmt.Errorf("nothing was found out within %v", within)
}

func read(r io.Reader) (calls []Call, err error) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		var c Call
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return nil, fmt.Errorf("line %d: %w", len(calls)+1, err)
		}
		calls = append(calls, c)
	}
	return calls, lines.Err()
}

func main() {
	calls, err := read(os.Stdin)
	if err == nil {
		err = check(calls, 5*time.Minute)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "linear:", err)
		os.Exit(1)
	}
	fmt.Printf("%d calls could have been made one after the other\n", len(calls))
}
