package tree

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestTreesAreCompared(t *testing.T) {
	old := of(t, OCI, layer(t, dir("same"), file("same/a", "a"), file("content", "12"), file("mode", "m"), file("touched", "t"), dir("gone"), file("gone/x", "x"),
		dir("turns"), file("turns/in", "i"), symlink("link", "a"), dir("folder")))
	now := old.Clone()
	put := func(name string, n *Node) {
		t.Helper()
		if err := now.Put(name, n); err != nil {
			t.Fatal(err)
		}
	}
	change := func(name string, f func(*Node)) {
		t.Helper()
		n, err := now.Lget(name)
		if err != nil {
			t.Fatal(err)
		}
		c := n.copy()
		f(c)
		put(name, c)
	}
	change("content", func(n *Node) { n.Data = Text("21") })
	change("mode", func(n *Node) { n.Mode ^= 0o100 })
	change("touched", func(n *Node) { n.Time, n.Data = n.Time.Add(time.Hour), Text("t") })
	change("same", func(n *Node) { n.Time = n.Time.Add(time.Hour) })
	change("folder", func(n *Node) { n.UID = 7 })
	change("link", func(n *Node) { n.Target = "b" })
	put("turns", &Node{Mode: unix.S_IFREG | 0o644, Data: Text("no folder now")})
	put("new/deep", &Node{Mode: unix.S_IFREG | 0o644, Data: Text("n")})
	delete(now.root.children, "gone")

	var got []string
	tell := func(c Change) bool {
		word := "changed"
		switch {
		case c.Old == nil:
			word = "added"
		case c.New == nil:
			word = "removed"
		}
		got = append(got, fmt.Sprint(word, " ", c.Path))
		return true
	}
	if err := now.Compare(t.Context(), old, tell); err != nil {
		t.Fatal(err)
	}
	want := []string{"changed /content", "changed /folder", "removed /gone", "removed /gone/x", "changed /link", "changed /mode", "added /new", "added /new/deep", "changed /turns", "removed /turns/in"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	n := 0
	if err := now.Compare(t.Context(), old, func(Change) bool { n++; return n < 2 }); err != nil || n != 2 {
		t.Errorf("it went on after it was stopped: %d, %v", n, err)
	}
	if err := old.Compare(t.Context(), old, func(c Change) bool { t.Errorf("%s differs from itself", c.Path); return true }); err != nil {
		t.Error(err)
	}
}
