//go:build linux && !clientonly

package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/user"
	"strconv"
	"strings"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/client"
)

// credentialsName is the path of the credentials below the home of another user, whose
// environment is unknown.
const credentialsName = ".config/bothy/credentials.json"

// adminCredentials are the server's URL and the key that it made at its first start.
func adminCredentials(server *serverFile) (client.Credentials, error) {
	path := cmp.Or(server.Credentials, adminPath())
	c, err := readCredentials(path)
	if err != nil {
		return c, bothy.Errorf(bothy.CodeUnauthenticated, "the server runs (pid %d, %s), but no key for it can be read from %s: %v",
			server.PID, server.url(), path, reason(err)).
			WithHint("Stop it with `bothy down` and start it again with `bothy up`, which makes a new key.").Because(err)
	}
	if !strings.HasPrefix(c.URL, "https://") { // there the name counts
		c.URL = server.url()
	}
	return c, nil
}

// connectTo makes a session with the server of this home.
func (a *app) connectTo(server *serverFile) (*session, error) {
	c, err := adminCredentials(server)
	if err != nil {
		return nil, err
	}
	a.url, a.key = c.URL, c.APIKey
	return a.connect()
}

// publishCredentials writes the server's URL and key where the commands of the user, and of the
// user behind sudo, find them, and returns the file.
func (a *app) publishCredentials(ctx context.Context, server *serverFile) (path string, err error) {
	mine, err := adminCredentials(server)
	if err != nil {
		return "", err
	}
	if path, err = a.publish(ctx, mine, func(c client.Credentials) bool { return opens(ctx, c) }); err != nil {
		return "", err
	}
	if err := publishToCaller(ctx, mine); err != nil {
		a.warn("the key could not be written for the user behind sudo: %v", err)
	}
	return cmp.Or(path, server.Credentials, adminPath()), nil
}

// validElsewhere reports whether stored is valid for a server that is not mine.
func validElsewhere(ctx context.Context, stored, mine client.Credentials) bool {
	return !sameURL(stored.URL, mine.URL) && opens(ctx, stored)
}

// opens reports whether a server accepts the credentials, whatever they are for.
func opens(ctx context.Context, c client.Credentials) bool {
	ctx, cancel := context.WithTimeout(ctx, foreignTimeout)
	defer cancel()
	_, err := newSession(client.New(c.URL, c.APIKey)).templates.Templates(ctx)
	return err == nil || bothy.ErrorCode(err) == bothy.CodeForbidden
}

// publishToCaller does the same for the user behind sudo.
func publishToCaller(ctx context.Context, c client.Credentials) error {
	uid, err := strconv.Atoi(os.Getenv("SUDO_UID"))
	if err != nil || uid == 0 || os.Geteuid() != 0 {
		return nil
	}
	gid, err := strconv.Atoi(os.Getenv("SUDO_GID"))
	if err != nil {
		return nil
	}
	home := homeOf(uid)
	if home == "" {
		return nil
	}
	// The folder belongs to the user, who may put links into it: os.Root follows none that lead
	// out of it.
	root, err := os.OpenRoot(home)
	if err != nil {
		return err
	}
	defer root.Close()
	var stored client.Credentials
	b, err := root.ReadFile(credentialsName)
	if err == nil && json.Unmarshal(b, &stored) == nil && (stored == c || validElsewhere(ctx, stored, c)) {
		return nil
	}
	return writeAs(root, uid, gid, c)
}

// homeOf is the home folder of a user.
func homeOf(uid int) string {
	u, err := user.LookupId(strconv.Itoa(uid))
	if err != nil {
		return ""
	}
	return u.HomeDir
}

// writeAs writes the credentials file below a home, and gives it and the new
// folders above it to the user.
func writeAs(home *os.Root, uid, gid int, c client.Credentials) error {
	for _, dir := range []string{".config", ".config/bothy"} {
		err := home.Mkdir(dir, 0o700)
		if err == nil {
			err = home.Lchown(dir, uid, gid)
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	b, err := json.Marshal(c)
	if err != nil {
		return err
	}
	if err := home.WriteFile(credentialsName, append(b, '\n'), 0o600); err != nil {
		return err
	}
	return home.Lchown(credentialsName, uid, gid)
}
