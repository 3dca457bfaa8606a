package bothy

import "testing"

func TestEndOfAShell(t *testing.T) {
	code := func(n int) *int { return &n }
	for name, c := range map[string]struct {
		from CodeResult
		exit int
		end  bool
	}{
		"success":           {CodeResult{ExitCode: code(0)}, 0, false},
		"failure":           {CodeResult{ExitCode: code(5), Error: &CodeError{Name: "ExitStatus"}}, 5, false},
		"exit":              {CodeResult{ExitCode: code(7), Error: &CodeError{Name: "KernelDied"}}, 7, true},
		"time-out":          {CodeResult{ExitCode: code(130), TimedOut: true, Error: &CodeError{Name: "KeyboardInterrupt"}}, 130, false},
		"polite time-out":   {CodeResult{ExitCode: code(0), TimedOut: true, Error: &CodeError{Name: "TimeoutError"}}, 130, false},
		"stubborn time-out": {CodeResult{ExitCode: code(137), TimedOut: true, Error: &CodeError{Name: "TimeoutError"}}, 137, true},
		"never began":       {CodeResult{Error: &CodeError{Name: "KeyboardInterrupt"}}, 1, false},
	} {
		if r := c.from.Shell(); r.ExitCode != c.exit || r.Ended != c.end || r.Ended != (r.Hint != "") {
			t.Errorf("%s: %+v", name, r)
		}
	}
}
