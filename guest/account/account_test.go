package account

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/bothy-dev/bothy"
)

const passwd = `root:x:0:0:root:/root:/bin/bash
# not an account
broken:x:notanumber:0::/:/bin/sh
user:x:1000:1000:,,,:/home/user:/bin/bash
svc:x:33:33:::
`

const group = `root:x:0:
user:x:1000:
sudo:x:27:user,ghost
docker:x:998:user
`

func testDB(t *testing.T) (*DB, string) {
	t.Helper()
	dir := t.TempDir()
	p, g := filepath.Join(dir, "passwd"), filepath.Join(dir, "group")
	for name, text := range map[string]string{p: passwd, g: group} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return New(p, g), dir
}

func TestLookupFindsUsersByNameAndNumber(t *testing.T) {
	db, _ := testDB(t)
	for _, name := range []string{"user", "1000"} {
		u, err := db.Lookup(name)
		if err != nil {
			t.Fatalf("Lookup(%q): %v", name, err)
		}
		if u.UID != 1000 || u.GID != 1000 || u.Home != "/home/user" || u.Shell != "/bin/bash" {
			t.Errorf("Lookup(%q) = %+v", name, u)
		}
		if want := []uint32{1000, 27, 998}; !slices.Equal(u.Groups, want) {
			t.Errorf("groups %v, want %v", u.Groups, want)
		}
	}
	if u, err := db.Lookup("svc"); err != nil || u.Home != "/" || u.Shell != "/bin/sh" {
		t.Errorf("empty fields: %+v, %v", u, err)
	}
}

func TestLookupTakesAGroup(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	db := New(write("passwd", "app:x:7:8::/srv/app:/bin/bash\n"), write("group", "app:x:8:\nmore:x:9:app\n"))
	for spec, want := range map[string]User{
		"app":       {Name: "app", UID: 7, GID: 8, Groups: []uint32{8, 9}, Home: "/srv/app", Shell: "/bin/bash"},
		"app:more":  {Name: "app", UID: 7, GID: 9, Groups: []uint32{9}, Home: "/srv/app", Shell: "/bin/bash"},
		"7:10":      {Name: "app", UID: 7, GID: 10, Groups: []uint32{10}, Home: "/srv/app", Shell: "/bin/bash"},
		"4242:more": {Name: "4242", UID: 4242, GID: 9, Groups: []uint32{9}, Home: "/", Shell: "/bin/sh"},
		"root:root": {Name: "root", Groups: []uint32{0}, Home: "/root", Shell: "/bin/sh"},
	} {
		if u, err := db.Lookup(spec); err != nil || !reflect.DeepEqual(*u, want) {
			t.Errorf("Lookup(%q) = %+v, %v; want %+v", spec, u, err, want)
		}
	}
	for _, spec := range []string{"app:nobody", "nobody:app", "app:", ":app", "4242"} {
		if u, err := db.Lookup(spec); bothy.ErrorCode(err) != bothy.CodeUserNotFound {
			t.Errorf("Lookup(%q) = %+v, %v", spec, u, err)
		}
	}
}

func TestLookupRefusesUnknownUsers(t *testing.T) {
	db, _ := testDB(t)
	for _, name := range []string{"nobody-here", "4242", "", "broken", "-1", "99999999999"} {
		if u, err := db.Lookup(name); bothy.ErrorCode(err) != bothy.CodeUserNotFound {
			t.Errorf("Lookup(%q) = %+v, %v", name, u, err)
		}
	}
}

func TestRootExistsWithoutADatabase(t *testing.T) {
	db := New("/nonexistent/passwd", "/nonexistent/group")
	if u, err := db.Lookup("root"); err != nil || u.UID != 0 {
		t.Errorf("root: %+v, %v", u, err)
	}
	if n := db.Names().User(0); n != "root" {
		t.Errorf("name of uid 0 is %q", n)
	}
}

func TestChangesAreSeen(t *testing.T) {
	db, dir := testDB(t)
	if _, err := db.Lookup("new"); err == nil {
		t.Fatal("new is there before it was added")
	}
	more := passwd + "new:x:1001:1001::/home/new:/bin/sh\n"
	if err := os.WriteFile(filepath.Join(dir, "passwd"), []byte(more), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Lookup("new"); err != nil {
		t.Error(err)
	}
}

// A user may replace the database with a pipe or a huge file, which must not stop the agent.
func TestHostileDatabase(t *testing.T) {
	db, dir := testDB(t)
	p := filepath.Join(dir, "passwd")
	if err := os.Remove(p); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(p, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Lookup("root"); err != nil {
		t.Error(err)
	}
	if err := os.Remove(p); err != nil {
		t.Fatal(err)
	}
	huge := "user:x:1000:1000::/home/user:/bin/sh\n" + strings.Repeat("x", 3*maxFile)
	if err := os.WriteFile(p, []byte(huge), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Lookup("user"); err != nil {
		t.Error(err)
	}
}

func TestNames(t *testing.T) {
	db, _ := testDB(t)
	for got, want := range map[string]string{
		db.Names().User(1000): "user", db.Names().User(0): "root", db.Names().User(7): "7",
		db.Names().Group(27): "sudo", db.Names().Group(5): "5",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
