package main

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/client"
)

// foreignTimeout bounds how long a start waits for another server, whose
// credentials are in the file that this one would write.
const foreignTimeout = 5 * time.Second

// firstKey makes the first key of a new server, and returns the file that holds
// one of its keys: bootstrap, if it is given, or else the file of this home. It
// returns "" where there are keys and no file of this home holds one.
func (p *parts) firstKey(ctx context.Context, bootstrap string) (path string, err error) {
	path = cmp.Or(bootstrap, filepath.Join(p.config.Home, adminName))
	if bootstrap == "" && !p.holdsKey(ctx, path) {
		owner := &bothy.Caller{ProjectID: bothy.DefaultProject, Scopes: []bothy.Scope{bothy.ScopeAdmin}}
		made, err := p.tokens.Tokens(bothy.WithCaller(ctx, owner))
		if err != nil {
			return "", err
		}
		if len(made) > 0 { // who revoked the first key does not want another
			return "", nil
		}
	}
	return path, p.bootstrap(ctx, path)
}

// holdsKey reports whether a file holds a valid key of this server.
func (p *parts) holdsKey(ctx context.Context, path string) bool {
	c, err := readCredentials(path)
	return err == nil && p.accepts(ctx, c)
}

func (p *parts) accepts(ctx context.Context, c client.Credentials) bool {
	_, err := p.tokens.Authenticate(ctx, c.APIKey)
	return err == nil
}

// announce says on standard output where the server listens and where a key of
// it is. The key of a server that was told of no file goes to where the user's
// commands look for it.
func (a *app) announce(ctx context.Context, p *parts, bootstrap string) error {
	path, err := p.firstKey(ctx, bootstrap)
	if err != nil {
		return err
	}
	save, err := p.serverFile(path)
	if err != nil {
		return err
	}
	if err := save(); isDiskFull(err) {
		p.log.Warn("bothy up and down do not find this server until there is room on the disk", "error", err)
		go untilItWorks(ctx, save)
	} else if err != nil {
		return err
	}
	key := "in " + path
	switch {
	case path == "":
		key = "none is in a file of " + p.config.Home + "; bothy serve --bootstrap-credentials FILE makes a new one"
	case bootstrap == "":
		mine, err := readCredentials(path)
		if err != nil {
			return err
		}
		published, err := a.publish(ctx, mine, func(c client.Credentials) bool { return p.accepts(ctx, c) })
		if err != nil { // a service may have no home to write to
			a.warn("%v", err)
		}
		key = "in " + cmp.Or(published, path)
	}
	fields(a.stdout, "url", p.api.URL(), "key", key)
	return nil
}

// serverFile returns what tells up and down that this process is the server of its
// home.
func (p *parts) serverFile(credentials string) (save func() error, err error) {
	f, err := describeServer(os.Getpid(), p.api.Addr().String())
	if err != nil {
		return nil, err
	}
	f.Credentials = credentials
	at := filepath.Join(p.config.Home, serverFileName)
	p.undo.Add(func() { _ = os.Remove(at) })
	return func() error { return f.saveTo(at) }, nil
}

// publish writes credentials to where the user's commands find them, and returns
// the file that holds a key of the same server. What opens this server is left as
// it is, and so is what opens another: then there is no such file, and the result
// is "". Credentials that open no server are kept beside.
func (a *app) publish(ctx context.Context, mine client.Credentials, own func(client.Credentials) bool) (path string, err error) {
	if path, err = client.CredentialsPath(); err != nil {
		return "", err
	}
	stored, err := readCredentials(path)
	switch {
	case err == nil && (stored == mine || sameURL(stored.URL, mine.URL) && own(stored)):
		return path, nil
	case err == nil && opensAnother(ctx, stored, mine):
		a.warn("%s opens another server, %s, and was left as it is", path, stored.URL)
		return "", nil
	case err == nil && stored.APIKey != "":
		if err := keepBeside(path); err != nil {
			return "", err
		}
		a.warn("%s held a key of %s that opens nothing now; it was kept as %s", path, stored.URL, path+oldSuffix)
	}
	return path, client.SaveCredentials(mine)
}

// oldSuffix marks the credentials that others replaced.
const oldSuffix = ".old"

func keepBeside(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return writeSecret(path+oldSuffix, b)
}
