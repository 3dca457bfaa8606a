//go:build linux && !clientonly

package cli

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy/client"
	"github.com/bothy-dev/bothy/internal/secretfile"
	"github.com/bothy-dev/bothy/server"
)

// foreignTimeout bounds how long a start waits for another server, whose
// credentials are in the file that this one would write.
const foreignTimeout = 5 * time.Second

// announce prints where the server listens and where a key for it is. Unless a file was given,
// the key is written to where the user's commands look for it. done is called when the server
// has ended.
func (a *app) announce(ctx context.Context, s *server.Server, bootstrap, certificate string) (done func(), err error) {
	path, err := s.FirstKey(ctx, bootstrap)
	if err != nil {
		return nil, err
	}
	if done, err = saveServerFile(ctx, s, path, certificate); err != nil {
		return nil, err
	}
	key := "in " + path
	switch {
	case path == "":
		key = "none is in a file of " + s.Home() + "; bothy serve --bootstrap-credentials FILE makes a new one"
	case bootstrap == "":
		mine, err := readCredentials(path)
		if err != nil {
			return done, err
		}
		published, err := a.publish(ctx, mine, func(c client.Credentials) bool { return s.Accepts(ctx, c) })
		if err != nil { // a service may have no home to write to
			a.warn("%v", err)
		}
		key = "in " + cmp.Or(published, path)
	}
	fields(a.stdout, "url", s.URL(), "key", key)
	return done, nil
}

// saveServerFile tells bothy up and down that this process is the server of its home, until done
// is called. On a full disk it keeps trying.
func saveServerFile(ctx context.Context, s *server.Server, credentials, certificate string) (done func(), err error) {
	f, err := describeServer(os.Getpid(), s.Addr().String())
	if err != nil {
		return nil, err
	}
	f.Credentials = credentials
	if certificate != "" {
		if f.Certificate, err = filepath.Abs(certificate); err != nil {
			return nil, err
		}
	}
	path := filepath.Join(s.Home(), serverFileName)
	save := func() error { return f.saveTo(path) }
	if err := save(); isDiskFull(err) {
		s.Log().Warn("bothy up and down do not find this server until there is space on the disk", "error", err)
		go untilItWorks(ctx, save)
	} else if err != nil {
		return nil, err
	}
	return func() { _ = os.Remove(path) }, nil
}

// publish writes credentials to where the user's commands find them, and returns the file that
// holds a key for the same server. It leaves a file with a valid key for this server as it is,
// and also one for another server: in that case there is no such file, and the result is "".
// Credentials that work on no server are kept under another name.
func (a *app) publish(ctx context.Context, mine client.Credentials, own func(client.Credentials) bool) (path string, err error) {
	if path, err = client.CredentialsPath(); err != nil {
		return "", err
	}
	stored, err := readCredentials(path)
	switch {
	case err == nil && (stored == mine || sameURL(stored.URL, mine.URL) && own(stored)):
		return path, nil
	case err == nil && validElsewhere(ctx, stored, mine):
		a.warn("%s opens another server, %s, and was left as it is", path, stored.URL)
		return "", nil
	case err == nil && stored.APIKey != "":
		if err := backUp(path); err != nil {
			return "", err
		}
		a.warn("%s held a key of %s that opens nothing now; it was kept as %s", path, stored.URL, path+oldSuffix)
	}
	return path, client.SaveCredentials(mine)
}

// oldSuffix marks credentials that were replaced.
const oldSuffix = ".old"

func backUp(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return secretfile.Write(path+oldSuffix, b)
}

// isDiskFull reports whether an error means that the disk is full.
func isDiskFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// diskAgain is how soon a write that failed on a full disk is retried.
const diskAgain = 10 * time.Second

// untilItWorks calls do repeatedly until it succeeds, or ctx ends.
func untilItWorks(ctx context.Context, do func() error) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(diskAgain):
		}
		if do() == nil {
			return
		}
	}
}
