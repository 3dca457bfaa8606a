package template

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	filetree "github.com/bothy-dev/bothy/template/tree"
)

// The files of a home belong to its user, also under their other names, whatever their number.
func TestAHomeWithManyFilesBelongsToItsUser(t *testing.T) {
	files := filetree.New(stampTime)
	file := func() *filetree.Node { return &filetree.Node{Mode: unix.S_IFREG | 0o644, Time: stampTime} }
	one := file()
	for i := range 8200 {
		must(t, files.Put(fmt.Sprintf("home/user/d%d/%d", i%100, i), file()))
	}
	must(t, files.Put("home/user/one", one))
	must(t, files.Put("opt/one", one))
	must(t, files.Put("opt/other", file()))
	must(t, FinishTree(files, ""))
	home, err := files.Get("home/user")
	must(t, err)
	n := 0
	must(t, filetree.Walk(home, func(name string, f *filetree.Node) error {
		if n++; f.UID != userID || f.GID != userID {
			t.Errorf("%s belongs to %d:%d", name, f.UID, f.GID)
		}
		return nil
	}))
	if n < 8200 {
		t.Errorf("it has %d files", n)
	}
	for name, uid := range map[string]uint32{"opt/one": userID, "opt/other": 0} {
		if f, err := files.Get(name); err != nil || f.UID != uid {
			t.Errorf("%s belongs to %d, %v", name, f.UID, err)
		}
	}
}
