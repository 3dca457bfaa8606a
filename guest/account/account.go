// Package account reads the sandbox's user database, /etc/passwd and
// /etc/group, without the C library. Only the guest's agent uses it.
//
// The files belong to the sandbox's user, so nothing in them is trusted: reads
// are bounded, damaged lines are skipped, and root is always known.
package account

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/bothy-dev/bothy"
)

// maxFile limits what is read of a database file.
const maxFile = 1 << 20

// User is an account with the groups that it belongs to.
type User struct {
	Name   string
	UID    uint32
	GID    uint32
	Groups []uint32 // supplementary groups, GID included
	Home   string
	Shell  string
}

// Root is the account that exists even without a database.
var Root = &User{Name: "root", Groups: []uint32{0}, Home: "/root", Shell: "/bin/sh"}

// DB is a user database. It reads its files again when they change. Its
// methods may be called from many goroutines at once.
type DB struct {
	passwd, groupFile string

	mu     sync.Mutex
	stamps [2]stamp
	users  []*User
	groups map[uint32]string
}

// stamp identifies one version of a file.
type stamp struct {
	ino   uint64
	size  int64
	mtime time.Time
}

// New returns a database over two files in the form of passwd(5) and group(5).
func New(passwd, group string) *DB { return &DB{passwd: passwd, groupFile: group} }

// Lookup finds a user by name or number, optionally followed by a colon and the user's only
// group. A number with a group need not be known, as in container images. Otherwise an unknown
// user is CodeUserNotFound.
func (d *DB) Lookup(spec string) (*User, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refresh()
	name, group, hasGroup := strings.Cut(spec, ":")
	u, err := d.user(name)
	if !hasGroup {
		return u, err
	}
	if uid, convErr := strconv.ParseUint(name, 10, 32); err != nil && convErr == nil {
		u, err = &User{Name: name, UID: uint32(uid), Home: "/", Shell: "/bin/sh"}, nil
	}
	if err != nil {
		return nil, err
	}
	gid, ok := d.group(group)
	if !ok {
		return nil, bothy.Errorf(bothy.CodeUserNotFound, "there is no group %q in the sandbox", group).
			WithHint("Name a group of /etc/group, or give its number.")
	}
	c := *u
	c.GID, c.Groups = gid, []uint32{gid}
	return &c, nil
}

// group finds a group by name or by number.
func (d *DB) group(name string) (uint32, bool) {
	for gid, n := range d.groups {
		if n == name {
			return gid, true
		}
	}
	gid, err := strconv.ParseUint(name, 10, 32)
	if name == "root" {
		return 0, true
	}
	return uint32(gid), err == nil
}

func (d *DB) user(name string) (*User, error) {
	for _, u := range d.users {
		if u.Name == name {
			return u, nil
		}
	}
	if uid, err := strconv.ParseUint(name, 10, 32); err == nil {
		for _, u := range d.users {
			if u.UID == uint32(uid) {
				return u, nil
			}
		}
	}
	if name == "root" || name == "0" {
		return Root, nil
	}
	return nil, bothy.Errorf(bothy.CodeUserNotFound, "there is no user %q in the sandbox", name).
		WithHint("Name a user of /etc/passwd, such as %q or \"root\".", bothy.DefaultUser)
}

// Names are the names of users and groups at one moment. A caller that describes many files
// takes them once: each use of a database checks two files for changes.
type Names struct {
	users  []*User
	groups map[uint32]string
}

// Names returns the current names.
func (d *DB) Names() Names {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refresh()
	return Names{d.users, d.groups}
}

// User returns the name of a uid, or the number as text.
func (n Names) User(uid uint32) string {
	for _, u := range n.users {
		if u.UID == uid {
			return u.Name
		}
	}
	if uid == 0 {
		return Root.Name
	}
	return strconv.FormatUint(uint64(uid), 10)
}

// Group returns the name of a gid, or the number as text.
func (n Names) Group(gid uint32) string {
	if name, ok := n.groups[gid]; ok {
		return name
	}
	return strconv.FormatUint(uint64(gid), 10)
}

// refresh reads the files if they are not the ones that were read last.
func (d *DB) refresh() {
	now := [2]stamp{stampOf(d.passwd), stampOf(d.groupFile)}
	if d.groups != nil && now == d.stamps {
		return
	}
	d.stamps = now
	d.users = parsePasswd(readBounded(d.passwd))
	d.groups = parseGroup(readBounded(d.groupFile), d.users)
}

func stampOf(path string) stamp {
	info, err := os.Stat(path)
	if err != nil {
		return stamp{}
	}
	s := stamp{size: info.Size(), mtime: info.ModTime()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		s.ino = st.Ino
	}
	return s
}

// readBounded returns the start of a regular file, and nothing for anything else: reading a pipe
// in its place could block.
func readBounded(path string) []byte {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	b, _ := io.ReadAll(io.LimitReader(f, maxFile))
	return b
}

func parsePasswd(b []byte) []*User {
	var users []*User
	for line := range lines(b) {
		f := strings.Split(line, ":")
		if len(f) < 7 || f[0] == "" {
			continue
		}
		uid, err1 := strconv.ParseUint(f[2], 10, 32)
		gid, err2 := strconv.ParseUint(f[3], 10, 32)
		if err1 != nil || err2 != nil {
			continue
		}
		users = append(users, &User{
			Name: f[0], UID: uint32(uid), GID: uint32(gid), Groups: []uint32{uint32(gid)},
			Home: orDefault(f[5], "/"), Shell: orDefault(f[6], "/bin/sh"),
		})
	}
	return users
}

// parseGroup returns the names of the groups, and adds the groups to the users that are members.
func parseGroup(b []byte, users []*User) map[uint32]string {
	byName := make(map[string]*User, len(users))
	for _, u := range users {
		if byName[u.Name] == nil {
			byName[u.Name] = u
		}
	}
	names := make(map[uint32]string)
	for line := range lines(b) {
		f := strings.Split(line, ":")
		if len(f) < 4 {
			continue
		}
		n, err := strconv.ParseUint(f[2], 10, 32)
		if err != nil {
			continue
		}
		gid := uint32(n)
		if _, ok := names[gid]; !ok {
			names[gid] = f[0]
		}
		for member := range strings.SplitSeq(f[3], ",") {
			if u := byName[member]; u != nil && !slices.Contains(u.Groups, gid) {
				u.Groups = append(u.Groups, gid)
			}
		}
	}
	return names
}

func lines(b []byte) func(func(string) bool) {
	return func(yield func(string) bool) {
		s := bufio.NewScanner(bytes.NewReader(b))
		s.Buffer(nil, maxFile)
		for s.Scan() {
			if !yield(s.Text()) {
				return
			}
		}
	}
}

func orDefault(s, d string) string {
	if s == "" {
		return d
	}
	return s
}
