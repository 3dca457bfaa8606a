package main

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/client"
)

// credentialsName is where the credentials are below a home.
const credentialsName = ".config/bothy/credentials.json"

// userCredentialsPath is where `bothy up` writes what commands and SDKs read.
func userCredentialsPath() string {
	home, err := os.UserHomeDir()
	if err != nil {
		home = "/"
	}
	return filepath.Join(home, credentialsName)
}

func readCredentials(path string) (c client.Credentials, err error) {
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		err = bothy.Errorf(bothy.CodeInvalid, "the credentials in %s cannot be read: %v", path, reason(err)).
			WithHint("Remove the file and run `bothy up`, or set BOTHY_URL and BOTHY_API_KEY.").Because(err)
	}
	return c, err
}

// adminCredentials are the server's URL and the key that it made at its first
// start.
func adminCredentials(server *serverFile) (client.Credentials, error) {
	c, err := readCredentials(adminPath())
	if err != nil {
		return c, bothy.Errorf(bothy.CodeUnauthenticated, "the server's first key cannot be read: %v", err).
			WithHint("Stop the server with `bothy down` and start it again with `bothy up`.").Because(err)
	}
	if !strings.HasPrefix(c.URL, "https://") { // there the name counts
		c.URL = server.url()
	}
	return c, nil
}

// connectTo makes a session with the server that `up` started.
func (a *app) connectTo(server *serverFile) (*session, error) {
	c, err := adminCredentials(server)
	if err != nil {
		return nil, err
	}
	a.url, a.key = c.URL, c.APIKey
	return a.connect()
}

// publishCredentials writes the server's URL and key where the user's commands
// find them, and says where they are. A file that opens another live server is
// left as it is.
func (a *app) publishCredentials(ctx context.Context, server *serverFile) (path string, err error) {
	mine, err := adminCredentials(server)
	if err != nil {
		return "", err
	}
	path = userCredentialsPath()
	stored, err := readCredentials(path)
	switch {
	case err == nil && stored == mine:
	case err == nil && opensAnother(ctx, stored, mine):
		path = adminPath()
	default:
		if err := client.SaveCredentials(mine); err != nil {
			return "", err
		}
	}
	if err := publishToCaller(ctx, mine); err != nil {
		a.warn("the key could not be written for the user behind sudo: %v", err)
	}
	return path, nil
}

// opensAnother reports whether stored is good for a server that is not mine.
func opensAnother(ctx context.Context, stored, mine client.Credentials) bool {
	return !sameURL(stored.URL, mine.URL) && opens(ctx, stored)
}

// opens reports whether a server accepts the credentials.
func opens(ctx context.Context, c client.Credentials) bool {
	_, err := newSession(client.New(c.URL, c.APIKey)).templates.Templates(ctx)
	return err == nil
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
	// The folder is the user's, who may put links into it: os.Root follows none
	// that lead out of it.
	root, err := os.OpenRoot(home)
	if err != nil {
		return err
	}
	defer root.Close()
	var stored client.Credentials
	b, err := root.ReadFile(credentialsName)
	if err == nil && json.Unmarshal(b, &stored) == nil && (stored == c || opensAnother(ctx, stored, c)) {
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
