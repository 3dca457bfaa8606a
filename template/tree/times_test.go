package tree

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestNoLater(t *testing.T) {
	day, later := time.Unix(1e9, 0), time.Unix(2e9, 0)
	was := New(later)
	old := &Node{Mode: unix.S_IFREG | 0o644, Time: time.Unix(5, 0), Data: Text("old")}
	young := &Node{Mode: unix.S_IFREG | 0o644, Time: later, Data: Text("young")}
	for name, n := range map[string]*Node{"d/old": old, "d/young": young, "linked": young} {
		if err := was.Put(name, n); err != nil {
			t.Fatal(err)
		}
	}
	now := was.Clone()
	now.NoLater(day)
	if a, b := now.at("d/young"), now.at("linked"); a != b || !a.Time.Equal(day) {
		t.Errorf("two names of one file are %+v and %+v", a, b)
	}
	if n := now.at("d/old"); n != old {
		t.Errorf("an old file is %+v", n)
	}
	if !now.Root().Time.Equal(day) || !was.Root().Time.Equal(later) {
		t.Errorf("the folders are of %v, and in the first tree of %v", now.Root().Time, was.Root().Time)
	}
	if !was.at("linked").Time.Equal(later) {
		t.Error("the first tree has changed")
	}
}
