package main

import (
	"io"
	"strings"
	"testing"
)

// events are what the go command says of a package with these tests.
func events(t *testing.T, tests ...string) results {
	t.Helper()
	var b strings.Builder
	for _, s := range tests {
		test, action, _ := strings.Cut(s, "=")
		b.WriteString(`{"Action":"run","Package":"` + module + `p","Test":"` + test + `"}` + "\n")
		if action != "" {
			b.WriteString(`{"Action":"` + action + `","Package":"` + module + `p","Test":"` + test + `"}` + "\n")
		}
	}
	r := results{}
	if err := r.read(strings.NewReader(b.String())); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestJudge(t *testing.T) {
	one := []exception{{name: name{"p", "TestB"}, Why: "it cannot"}}
	lucky := []exception{{name: name{"p", "TestB"}, Why: "it cannot", Sometimes: true}}
	for _, c := range []struct {
		what       string
		tests      []string
		exceptions []exception
		want       string
	}{
		{"all pass", []string{"TestA=pass", "=pass"}, nil, ""},
		{"nothing is run", []string{"=pass"}, nil, "no test passed"},
		{"one fails", []string{"TestA=pass", "TestB=fail", "=fail"}, nil, "p TestB fails"},
		{"one fails as expected", []string{"TestA=pass", "TestB=fail", "=fail"}, one, ""},
		{"a part of an exception fails", []string{"TestA=pass", "TestB=fail", "TestB/x=fail", "=fail"}, one, ""},
		{"a part fails as expected", []string{"TestA=fail", "TestA/x=fail", "TestA/y=pass", "=fail"}, []exception{{name: name{"p", "TestA/x"}}}, ""},
		{"another part fails, too", []string{"TestA=fail", "TestA/x=fail", "TestA/y=fail", "TestA/z=pass", "=fail"}, []exception{{name: name{"p", "TestA/x"}}}, "p TestA/y fails"},
		{"an exception passes", []string{"TestA=pass", "TestB=pass", "=pass"}, one, `p TestB is an exception (it cannot), and ends with "pass": take it off the list`},
		{"an exception passes by luck", []string{"TestA=pass", "TestB=pass", "=pass"}, lucky, ""},
		{"an exception is skipped", []string{"TestA=pass", "TestB=skip", "=pass"}, one, `ends with "skip"`},
		{"an exception is gone", []string{"TestA=pass", "=pass"}, one, "there is no such test"},
		{"the package does not compile", []string{"=fail"}, nil, "p fails"},
		{"a test does not end", []string{"TestA=pass", "TestC", "=fail"}, nil, "p TestC fails"},
	} {
		err := events(t, c.tests...).judge(io.Discard, c.exceptions, true)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}
