package uid

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/bothy-dev/bothy"
)

func pool(t *testing.T, dir string, r Range) *Pool {
	t.Helper()
	p, err := open(dir, r)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func folder(t *testing.T) string {
	t.Helper()
	return t.TempDir()
}

func take(t *testing.T, p *Pool, folder string) int {
	t.Helper()
	id, err := p.Take(folder)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// TestNoIDIsGivenTwice lets two servers share a range, each with many concurrent callers.
func TestNoIDIsGivenTwice(t *testing.T) {
	dir, r := t.TempDir(), Range{1000, 1039}
	servers := []*Pool{pool(t, dir, r), pool(t, dir, r)}
	machine := folder(t)
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		seen = map[int]bool{}
	)
	for n := range 40 {
		wg.Go(func() {
			id, err := servers[n%2].Take(machine)
			mu.Lock()
			defer mu.Unlock()
			if err != nil || seen[id] || id < r.First || id > r.Last {
				t.Errorf("got %d, %v", id, err)
			}
			seen[id] = true
		})
	}
	wg.Wait()
	if _, err := servers[0].Take(machine); bothy.ErrorCode(err) != bothy.CodeCapacity {
		t.Errorf("one more: %v", err)
	}
	if err := servers[0].Release(1007, machine); err != nil {
		t.Fatal(err)
	}
	if id := take(t, servers[1], machine); id != 1007 {
		t.Errorf("got %d, but only 1007 is free", id)
	}
}

// TestIDEndsWithItsMachine restarts servers while a machine's folder exists.
func TestIDEndsWithItsMachine(t *testing.T) {
	dir, r := t.TempDir(), Range{1000, 1001}
	first, second := folder(t), folder(t)
	one := take(t, pool(t, dir, r), first)
	two := take(t, pool(t, dir, r), second)
	if one == two {
		t.Fatalf("both machines have %d", one)
	}
	if _, err := pool(t, dir, r).Take(folder(t)); bothy.ErrorCode(err) != bothy.CodeCapacity {
		t.Errorf("a third machine: %v", err)
	}
	// Another process removed the machine without a notice.
	os.RemoveAll(first)
	later := pool(t, dir, r)
	third := folder(t)
	if id := take(t, later, third); id != one {
		t.Errorf("got %d, but only %d is free", id, one)
	}
	// A late release does not end another machine's claim.
	if err := later.Release(one, first); err != nil {
		t.Error(err)
	}
	if _, err := later.Take(folder(t)); bothy.ErrorCode(err) != bothy.CodeCapacity {
		t.Errorf("after a late release: %v", err)
	}
}

func TestParse(t *testing.T) {
	for text, want := range map[string]Range{"": {}, "200000-265535": {200000, 265535}, "7 - 7": {7, 7}} {
		if got, err := Parse(text); err != nil || got != want {
			t.Errorf("%q is %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"7", "-", "0-10", "10-9", "a-b", "1-2147483648", "-5-10"} {
		if got, err := Parse(text); bothy.ErrorCode(err) != bothy.CodeInvalid {
			t.Errorf("%q is %v, %v", text, got, err)
		}
	}
}

// TestRangeOfOtherUsersIsRefused checks hosts on which other users have some of the ids.
func TestRangeOfOtherUsersIsRefused(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	whole := write("map", "         0          0 4294967295\n")
	container := write("small", "0 100000 65536\n")
	plain := files{whole, write("passwd", "root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/\n"), write("group", "root:x:0:\n"),
		write("subuid", "ann:100000:65536\n"), filepath.Join(dir, "none")}
	small := plain
	small.uidMap = container
	for _, c := range []struct {
		r    Range
		f    files
		says string
	}{
		{Range{200000, 265535}, plain, ""},
		{Range{165535, 200000}, plain, "ann's in"},
		{Range{1000, 70000}, plain, "the host's own"},
		{Range{65520, 65540}, plain, "the host's own"},
		{Range{200000, 265535}, small, "does not have all"},
		{defaults[0], plain, ""},
		{defaults[1], small, ""},
	} {
		err := c.r.check(c.f)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: %v, want %q", c.r, err, c.says)
		}
	}
	for f, want := range map[files]Range{plain: defaults[0], small: defaults[1]} {
		if got, err := defaultRange(f); err != nil || got != want {
			t.Errorf("the default is %v, %v; want %v", got, err, want)
		}
	}
	taken := plain
	taken.subuid = write("all", fmt.Sprintf("ann:1000:%d\n", mostID))
	if _, err := defaultRange(taken); bothy.ErrorCode(err) != bothy.CodeInvalid {
		t.Errorf("where ann has all: %v", err)
	}
}
