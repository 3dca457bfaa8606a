package lifecycle_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/lifecycle"
)

const commit = "0123456789abcdef0123456789abcdef01234567"

// withGit is a world whose guests run git, which says something and ends with a code.
func withGit(t *testing.T, said string, code int) (*world, *[]string) {
	w := newWorld(t)
	var ran []string
	w.guests.onAdd = func(g *guest) {
		g.run = func(req bothy.ExecRequest) *bothy.ExecResult {
			ran = append(ran, strings.Join(req.Command.Args, " "))
			if req.Env["GIT_TERMINAL_PROMPT"] != "0" || req.TimeoutSeconds <= 0 || req.TimeoutSeconds > 240 || req.User != "" {
				t.Errorf("git is run as %+v", req)
			}
			return &bothy.ExecResult{ExitCode: code, Stderr: said, TimedOut: said == "slow"}
		}
	}
	return w, &ran
}

func TestRepositoryIsCloned(t *testing.T) {
	w, ran := withGit(t, "", 0)
	const url = "https://git.example.org:8443/team/app.git"
	for _, c := range []struct {
		repo string
		want []string
	}{
		{url, []string{"git clone --quiet -- " + url + " app"}},
		{url + "#release/1.2", []string{"git clone --quiet --branch release/1.2 -- " + url + " app"}},
		{url + "#" + commit, []string{"git clone --quiet --no-checkout -- " + url + " app", "git -C app checkout --quiet --detach " + commit}},
	} {
		*ran = nil
		w.create(bothy.SandboxCreate{Repo: c.repo})
		if !slices.Equal(*ran, c.want) {
			t.Errorf("%s: %q", c.repo, *ran)
		}
	}
}

// The token is a secret of the repository's host, beside the caller's own.
func TestTokenOfARepositoryIsASecret(t *testing.T) {
	w, ran := withGit(t, "", 0)
	own := []bothy.Secret{{Name: "OWN", Value: "v", Hosts: []string{"api.example.org"}}}
	sb := w.create(bothy.SandboxCreate{Repo: "https://git.example.org/team/app", RepoToken: "the-token", Secrets: own})
	if !slices.Equal(sb.SecretNames, []string{"OWN", "repo_token"}) {
		t.Errorf("the secrets are %q", sb.SecretNames)
	}
	if strings.Contains(strings.Join(*ran, "\n"), "the-token") {
		t.Errorf("git was given the token: %q", *ran)
	}
}

func TestFailedCloneLeavesNothing(t *testing.T) {
	for said, want := range map[string]string{
		"remote: no\nfatal: repository 'x' not found\n": "fatal: repository 'x' not found",
		"":                       "git said nothing",
		"fatal: \x1b[31mred\n\n": "fatal:  [31mred",
		"slow":                   "240 seconds",
	} {
		w, _ := withGit(t, said, 128)
		_, err := w.Create(w.me(), bothy.SandboxCreate{Repo: "https://git.example.org/team/app"})
		if bothy.ErrorCode(err) != bothy.CodeCloneFailed || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", said, err)
		}
		page, err := w.List(w.me(), bothy.SandboxFilter{States: bothy.LiveStates})
		if err != nil || len(page.Items) != 0 {
			t.Errorf("%q: %d sandboxes are left, %v", said, len(page.Items), err)
		}
	}
}

func TestRepositoryIsCheckedBeforeAnythingIsMade(t *testing.T) {
	w := newWorld(t)
	w.reopen(func(o *lifecycle.Options) {
		o.CheckReach = func(n bothy.Network, host string, port uint16) error {
			if n.Mode == bothy.NetworkOpen && host == "git.example.org" && port == 8443 {
				return nil
			}
			return bothy.Errorf(bothy.CodeInvalid, "out of reach")
		}
	})
	for _, repo := range []string{
		"git.example.org/a", "http://git.example.org/a", "ssh://git.example.org/a", "/a", "https:///a", "https://me:secret@git.example.org/a", "https://git.example.org/",
		"https://git.example.org/..", "https://git.example.org/-a", "https://git.example.org/a#", "https://git.example.org/a#-x", "https://git.example.org/a#x y", "https://git.example.org:0/a",
		"https://git.example.org/a?b", "https://git.example.org/" + strings.Repeat("a", 3000), "https://git.example.org/out/of/reach",
	} {
		_, err := w.Create(w.me(), bothy.SandboxCreate{Repo: repo, Network: &bothy.Network{Mode: bothy.NetworkOpen}})
		if bothy.ErrorCode(err) != bothy.CodeInvalid || strings.Contains(err.Error(), "secret") {
			t.Errorf("%.60s: %v", repo, err)
		}
	}
	_, err := w.Create(w.me(), bothy.SandboxCreate{RepoToken: "alone"})
	wantCode(t, err, bothy.CodeInvalid)
	_, err = w.Create(w.me(), bothy.SandboxCreate{Repo: "https://git.example.org:8443/a"})
	wantCode(t, err, bothy.CodeInvalid) // the network is off
	page, err := w.List(w.me(), bothy.SandboxFilter{})
	if err != nil || len(page.Items) != 0 {
		t.Errorf("there are %d sandboxes, %v", len(page.Items), err)
	}
}
