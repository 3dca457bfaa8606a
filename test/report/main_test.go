package main

import (
	"strings"
	"testing"
)

func TestReport(t *testing.T) {
	in := `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:7: needs root\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"--- SKIP: TestA (0.00s)\n"}
{"Action":"skip","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:9: quiet\n"}
{"Action":"pass","Package":"p","Test":"TestB","Elapsed":0.5}
{"Action":"pass","Package":"p","Test":"TestB/part","Elapsed":0.4}
{"Action":"output","Package":"p","Test":"TestC","Output":"    c_test.go:3: wrong\n"}
{"Action":"fail","Package":"p","Test":"TestC","Elapsed":2}
{"Action":"output","Package":"p","Test":"TestE","Output":"    e_test.go:3: it has\n"}
{"Action":"output","Package":"p","Test":"TestE","Output":"        this\n"}
{"Action":"output","Package":"p","Test":"TestE","Output":"    helper.go:3: the log\n"}
{"Action":"fail","Package":"p","Test":"TestE","Elapsed":1}
{"Action":"output","Package":"p","Test":"TestF","Output":"panic: out of range\n"}
{"Action":"fail","Package":"p","Test":"TestF","Elapsed":1}
{"Action":"output","Package":"p","Test":"TestD","Output":"panic: gone\n"}
{"Action":"output","Package":"p","Output":"PASS\n"}
{"Action":"output","Package":"p","Output":"FAIL\tp\t0.1s\n"}
{"Action":"output","Package":"q","Output":"?   \tq\t[no test files]\n"}
{"Action":"skip","Package":"q"}
{"Action":"build-output","ImportPath":"r","Output":"r.go:1:1: broken\n"}
not JSON
`
	t.Setenv("BOTHY_TEST_SUITE", "engines")
	var out, skipped, times strings.Builder
	if err := report(strings.NewReader(in), &out, &skipped, &times); err != nil {
		t.Fatal(err)
	}
	if want := "p TestA: needs root\n"; skipped.String() != want {
		t.Errorf("skipped %q, want %q", skipped.String(), want)
	}
	want := `    c_test.go:3: wrong
    e_test.go:3: it has
        this
    helper.go:3: the log
panic: out of range
FAIL	p	0.1s
r.go:1:1: broken
not JSON
panic: gone
TestC: c_test.go:3: wrong
TestE: e_test.go:3: it has
        this
TestF: panic: out of range
alone: make test RUN=engines TEST='^TestC$'
alone: make test RUN=engines TEST='^TestE$'
alone: make test RUN=engines TEST='^TestF$'
`
	if out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
	if want := `{"name":"p TestB","seconds":0.5}` + "\n" + `{"name":"p TestC","seconds":2}` + "\n" +
		`{"name":"p TestE","seconds":1}` + "\n" + `{"name":"p TestF","seconds":1}` + "\n"; times.String() != want {
		t.Errorf("times %q, want %q", times.String(), want)
	}
}
