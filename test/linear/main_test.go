package main

import (
	"testing"
	"time"
)

func TestCheck(t *testing.T) {
	claim := func(host string, begin, end int64, ok bool) Call {
		return Call{Sandbox: "s", Host: host, Op: "claim", Begin: begin, End: end, OK: ok}
	}
	unknown := func(c Call) Call { c.Unknown = true; return c }
	owner := func(begin, end int64, is string) Call {
		return Call{Sandbox: "s", Op: "owner", Begin: begin, End: end, Owner: is}
	}
	for name, c := range map[string]struct {
		calls []Call
		good  bool
	}{
		"nothing":                            {nil, true},
		"one wins":                           {[]Call{claim("a", 0, 9, true), claim("b", 0, 9, false)}, true},
		"two win":                            {[]Call{claim("a", 0, 9, true), claim("b", 0, 9, true)}, false},
		"nobody wins":                        {[]Call{claim("a", 0, 9, false), claim("b", 0, 9, false)}, false},
		"two win what is not the same":       {[]Call{claim("a", 0, 9, true), {Sandbox: "t", Host: "b", Op: "claim", End: 9, OK: true}}, true},
		"the loser was first":                {[]Call{claim("a", 5, 9, true), claim("b", 0, 4, false)}, false},
		"it was won by who was not told":     {[]Call{unknown(claim("a", 0, 3, false)), claim("b", 5, 9, false), owner(10, 11, "a")}, true},
		"and the win is seen late":           {[]Call{unknown(claim("a", 0, 3, false)), owner(5, 6, ""), owner(10, 11, "a")}, true},
		"and undone":                         {[]Call{unknown(claim("a", 0, 3, false)), owner(5, 6, "a"), owner(10, 11, "")}, false},
		"an owner that never claimed":        {[]Call{claim("a", 0, 3, true), owner(5, 6, "b")}, false},
		"old news of the owner":              {[]Call{claim("a", 0, 3, true), owner(5, 6, "")}, false},
		"a write of the owner's":             {[]Call{claim("a", 0, 3, true), {Sandbox: "s", Host: "a", Op: "write", Begin: 4, End: 5, OK: true}}, true},
		"a write of another's":               {[]Call{claim("a", 0, 3, true), {Sandbox: "s", Host: "b", Op: "write", Begin: 4, End: 5, OK: true}}, false},
		"it is claimed after it is given up": {[]Call{claim("a", 0, 3, true), {Sandbox: "s", Op: "give_up", Lost: "a", Begin: 4, End: 6}, claim("b", 7, 8, true)}, true},
		"and before":                         {[]Call{claim("a", 0, 3, true), claim("b", 4, 5, true), {Sandbox: "s", Op: "give_up", Lost: "a", Begin: 6, End: 7}}, false},
		"the dead write":                     {[]Call{claim("a", 0, 3, true), {Sandbox: "s", Op: "give_up", Lost: "a", Begin: 4, End: 6}, {Sandbox: "s", Host: "a", Op: "write", Begin: 7, End: 8, OK: true}}, false},
		"no such operation":                  {[]Call{{Sandbox: "s", Op: "clam"}}, false},
	} {
		if err := check(c.calls, time.Minute); (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}
