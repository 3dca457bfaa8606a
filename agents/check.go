package agents

import (
	"cmp"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/bothy-dev/bothy"
)

// The labels that identify the sandbox of a session.
const (
	LabelAttachment = "bothy.agents"
	LabelSession    = "bothy.agents.session"
)

// sessionTimeout is the time of a session's sandbox, after which it is paused.
const sessionTimeout = 3600

var (
	environmentForm = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,200}$`)
	toolForm        = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)
)

// attachmentOf returns the attachment that a request describes, without an id.
func attachmentOf(req bothy.AgentAttach) (*bothy.AgentAttachment, sealed, error) {
	invalid := func(format string, args ...any) (*bothy.AgentAttachment, sealed, error) {
		return nil, sealed{}, bothy.Errorf(bothy.CodeInvalid, format, args...)
	}
	a := &bothy.AgentAttachment{
		Environment: req.Environment, URL: strings.TrimRight(cmp.Or(req.URL, bothy.AgentsURL), "/"), Tools: req.Tools,
		MaxSessions: cmp.Or(req.MaxSessions, defaultSessions),
	}
	if !environmentForm.MatchString(a.Environment) {
		return invalid("environment: %q is not the id of an environment, such as env_01ABC", a.Environment)
	}
	if n := len(req.Key); n < 8 || n > 4096 || strings.ContainsFunc(req.Key, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return invalid("key: this is not an environment key; copy it as it was shown when it was made")
	}
	if a.MaxSessions < 1 || a.MaxSessions > bothy.MaxAgentSessions {
		return invalid("max_sessions is %d; give a number from 1 to %d", a.MaxSessions, bothy.MaxAgentSessions)
	}
	if err := checkURL(a.URL); err != nil {
		return nil, sealed{}, err
	}
	for i, t := range a.Tools {
		if !toolForm.MatchString(t.Name) || slices.Contains(builtIn, t.Name) || t.Command == "" ||
			slices.ContainsFunc(a.Tools[:i], func(o bothy.AgentTool) bool { return o.Name == t.Name }) {
			return invalid("tools: %q needs a command and a name of its own: letters, digits, _ and -, and none of %s", t.Name, strings.Join(builtIn, ", "))
		}
	}
	secret := sealed{Key: req.Key}
	if req.Sandbox != nil {
		a.Sandbox = *req.Sandbox
		if a.Sandbox.Name != "" {
			return invalid("sandbox.name: each session has a sandbox of its own, so they cannot share a name")
		}
		for _, l := range []string{LabelAttachment, LabelSession} {
			if _, ok := a.Sandbox.Metadata[l]; ok {
				return invalid("sandbox.metadata: %s is set by the server", l)
			}
		}
		secret.Secrets = a.Sandbox.Secrets
		a.Sandbox.Secrets = slices.Clone(a.Sandbox.Secrets)
		for i := range a.Sandbox.Secrets {
			a.Sandbox.Secrets[i].Value = ""
		}
	}
	return a, secret, nil
}

func checkURL(text string) error {
	u, err := url.Parse(text)
	bad := err != nil || len(text) > 2000 || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != ""
	if !bad {
		a, err := netip.ParseAddr(u.Hostname())
		bad = err == nil && a.Zone() != ""
	}
	if !bad && u.Scheme == "http" { // the key must not cross a network in the clear
		a, err := netip.ParseAddr(u.Hostname())
		bad = u.Hostname() != "localhost" && (err != nil || !a.IsLoopback())
	}
	if bad {
		return bothy.Errorf(bothy.CodeInvalid, "url: it is not the address of a service").
			WithHint("Leave it out, or give one that begins with https:// and a host; http:// only leads to this host.")
	}
	return nil
}

// clearDir removes an earlier server's leftovers from a folder.
func clearDir(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		_ = os.RemoveAll(filepath.Join(dir, e.Name()))
	}
}
