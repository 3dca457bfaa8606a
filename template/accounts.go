package template

import (
	"fmt"
	"io/fs"
	"strings"
)

// The account that commands run as.
const (
	userName = "user"
	userID   = 1000
	userHome = "/home/" + userName
)

// account is an account file: lines of fields, the first one being the name.
type account struct {
	path string
	mode fs.FileMode
	line string
	// must is set if the file is created when it is missing.
	must bool
}

// addUser adds the user to the account files. Existing accounts with its name or number, such
// as ubuntu or node, are replaced.
func addUser(r files) error {
	shell := "/bin/sh"
	if r.exists("/bin/bash") {
		shell = "/bin/bash"
	}
	if err := needRoot(r); err != nil {
		return err
	}
	for _, a := range []account{
		{"/etc/passwd", 0o644, fmt.Sprintf("%s:x:%d:%d::%s:%s", userName, userID, userID, userHome, shell), true},
		{"/etc/group", 0o644, fmt.Sprintf("%s:x:%d:", userName, userID), true},
		{"/etc/shadow", 0o640, userName + ":!:19700:0:99999:7:::", false},
		{"/etc/gshadow", 0o640, userName + ":!::", false},
	} {
		if err := a.add(r); err != nil {
			return fmt.Errorf("%s: %w", a.path, err)
		}
	}
	return nil
}

// needRoot adds root to an image without any accounts.
func needRoot(r files) error {
	for path, line := range map[string]string{
		"/etc/passwd": "root:x:0:0:root:/root:/bin/sh\n",
		"/etc/group":  "root:x:0:\n",
	} {
		data, err := r.read(path)
		if err != nil {
			return err
		}
		if len(data) == 0 {
			if err := r.write(path, line, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a account) add(r files) error {
	if !a.must && !r.exists(a.path) {
		return nil
	}
	data, err := r.read(a.path)
	if err != nil {
		return err
	}
	if r.keeps() {
		return a.join(r, string(data))
	}
	var b strings.Builder
	for line := range strings.Lines(string(data)) {
		if !a.replaces(strings.Split(strings.TrimSpace(line), ":")) {
			b.WriteString(a.tidy(line))
		}
	}
	b.WriteString(a.line + "\n")
	return a.keepOwner(r, b.String())
}

// join adds the user to existing accounts, unless it exists. A user with the same number keeps
// it, and comes first.
func (a account) join(r files, text string) error {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, userName+":") {
			return nil
		}
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return a.keepOwner(r, text+a.line+"\n")
}

// replaces reports whether a line conflicts with the user. Shadow files have no numbers; their
// lines without an account mean nothing.
func (a account) replaces(fields []string) bool {
	if fields[0] == userName || fields[0] == "" {
		return true
	}
	return a.must && len(fields) > 2 && fields[2] == fmt.Sprint(userID)
}

// tidy locks passwords and drops the day of the build from a shadow line.
func (a account) tidy(line string) string {
	if a.path != "/etc/shadow" {
		return line
	}
	fields := strings.Split(strings.TrimSpace(line), ":")
	if len(fields) < 3 {
		return line
	}
	if fields[0] == "root" || fields[1] == "" {
		fields[1] = "*"
	}
	fields[2] = "19700"
	return strings.Join(fields, ":") + "\n"
}

// keepOwner rewrites the file with its old group, such as shadow.
func (a account) keepOwner(r files, content string) error {
	gid := 0
	if a.mode == 0o640 {
		gid = groupID(r, "shadow")
	}
	if err := r.write(a.path, content, a.mode); err != nil {
		return err
	}
	return r.chown(a.path, 0, gid)
}

// groupID finds a group's number; 0 for an unknown group.
func groupID(r files, name string) int {
	data, err := r.read("/etc/group")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		var gid int
		fields := strings.Split(line, ":")
		if fields[0] != name || len(fields) < 3 {
			continue
		}
		if _, err := fmt.Sscan(fields[2], &gid); err == nil {
			return gid
		}
	}
	return 0
}
