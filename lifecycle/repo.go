package lifecycle

import (
	"context"
	"encoding/base64"
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/bothy-dev/bothy"
)

const (
	// cloneSeconds bounds the clone of a new sandbox's repository.
	cloneSeconds = 240
	maxRepo      = 2048
	maxGitLine   = 300
	// repoSecret is the name of the secret that holds a repository's token.
	repoSecret = "repo_token"
)

// repo is the repository that a new sandbox starts with.
type repo struct {
	url    string
	host   string
	port   uint16
	ref    string // may be empty
	folder string // below the folder where commands start
}

var (
	plainName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]*$`)
	plainRef  = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._/+@-]*$`)
	commitID  = regexp.MustCompile(`^[0-9a-f]{40}$`)
)

// parseRepo reads URL#REF, where the reference is a branch, a tag or a whole commit id.
func parseRepo(text string) (*repo, error) {
	address, ref, hasRef := strings.Cut(text, "#")
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Scheme != "https" || u.Hostname() == "" || u.RawQuery != "" || len(text) > maxRepo:
		return nil, invalid("repo is not the HTTPS URL of a git repository").WithHint("Write it as in https://git.example.org/team/app#main.")
	case u.User != nil:
		return nil, invalid("repo holds a user name or password").WithHint("Give the token in repo_token: it then never enters the sandbox.")
	case hasRef && !plainRef.MatchString(ref):
		return nil, invalid("%q is not a branch, a tag or a commit", ref).WithHint("Write it after the URL, as in https://git.example.org/team/app#v1.2, or omit it with the \"#\".")
	}
	r := &repo{url: address, host: u.Hostname(), port: 443, ref: ref, folder: strings.TrimSuffix(path.Base(u.Path), ".git")}
	if u.Port() != "" {
		port, err := strconv.ParseUint(u.Port(), 10, 16)
		if err != nil || port == 0 {
			return nil, invalid("repo has the port %s", u.Port()).WithHint("Give a number from 1 to 65535.")
		}
		r.port = uint16(port)
	}
	if !plainName.MatchString(r.folder) {
		return nil, invalid("the path of repo does not end in the name of a repository").WithHint("Write it as in https://git.example.org/team/app.")
	}
	return r, nil
}

// repoOf returns the repository of a request, or nil, and puts its token among the request's secrets.
func repoOf(req *bothy.SandboxCreate) (*repo, error) {
	if req.Repo == "" {
		if req.RepoToken != "" {
			return nil, invalid("there is a repo_token and no repo").WithHint("Give the repository's URL in repo.")
		}
		return nil, nil
	}
	r, err := parseRepo(req.Repo)
	if err == nil && req.RepoToken != "" {
		basic := "Basic " + base64.StdEncoding.EncodeToString([]byte("x-access-token:"+req.RepoToken))
		token := bothy.Secret{Name: repoSecret, Value: basic, Hosts: []string{r.host}, Header: "Authorization", Override: true}
		req.Secrets = append(req.Secrets[:len(req.Secrets):len(req.Secrets)], token)
	}
	return r, err
}

// checkRepo returns an error if a sandbox with this network cannot reach the repository.
func (s *Service) checkRepo(text string, n bothy.Network) error {
	if text == "" {
		return nil
	}
	r, err := parseRepo(text)
	if err != nil || s.o.CheckReach == nil {
		return err
	}
	return s.o.CheckReach(n, r.host, r.port)
}

// clone has the sandbox's own git clone the repository. If that fails, the sandbox is ended.
func (s *Service) clone(ctx context.Context, id string, r *repo) error {
	err := s.use(ctx, id, bothy.ScopeSandboxesWrite, func(g bothy.Guest) error {
		begun := s.clock.Now()
		for _, args := range r.commands() {
			left := cloneSeconds - s.clock.Now().Sub(begun).Seconds()
			if err := s.git(ctx, id, g, args, left); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		if terr := s.Terminate(context.WithoutCancel(ctx), id); terr != nil {
			s.log.Warn("cannot end a sandbox whose repository was not cloned", "sandbox", id, "err", terr)
		}
	}
	return err
}

func (r *repo) commands() [][]string {
	clone := []string{"clone", "--quiet"}
	switch {
	case commitID.MatchString(r.ref):
		clone = append(clone, "--no-checkout")
	case r.ref != "":
		clone = append(clone, "--branch", r.ref)
	}
	all := [][]string{append(clone, "--", r.url, r.folder)}
	if commitID.MatchString(r.ref) {
		all = append(all, []string{"-C", r.folder, "checkout", "--quiet", "--detach", r.ref})
	}
	return all
}

func (s *Service) git(ctx context.Context, id string, g bothy.Guest, args []string, seconds float64) error {
	failed := func(format string, args ...any) *bothy.Error {
		return bothy.Errorf(bothy.CodeCloneFailed, "the repository was not cloned: "+format, args...)
	}
	if seconds <= 0 {
		return failed("it took longer than %d seconds", cloneSeconds).WithHint("Create the sandbox without repo, and run git clone --depth 1 in it.")
	}
	var res *bothy.ExecResult
	err := s.inTime(ctx, id, seconds, true, func(ctx context.Context) (err error) {
		res, err = g.Exec(ctx, bothy.ExecRequest{
			Command: bothy.Command{Args: append([]string{"git"}, args...)}, Env: map[string]string{"GIT_TERMINAL_PROMPT": "0"}, TimeoutSeconds: seconds,
		})
		return err
	})
	switch {
	case bothy.ErrorCode(err) == bothy.CodeCommandNotFound:
		return failed("the template has no git").WithHint("Choose a template that has git.")
	case err != nil:
		return err
	case res.TimedOut:
		return s.git(ctx, id, g, args, 0)
	case res.ExitCode != 0:
		return failed("%s", lastLine(res.Stderr)).WithHint("Check the URL, the reference and, for a private repository, repo_token.")
	}
	return nil
}

// lastLine is what git said last, for an error.
func lastLine(text string) string {
	text = strings.TrimSpace(text)
	line := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text[strings.LastIndexAny(text, "\r\n")+1:])
	if line == "" {
		return "git said nothing"
	}
	return strings.ToValidUTF8(line[:min(len(line), maxGitLine)], "")
}
