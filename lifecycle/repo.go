package lifecycle

import (
	"context"
	"encoding/base64"
	"strings"

	"github.com/bothy-dev/bothy"
)

const (
	// cloneSeconds bounds the clone of a new sandbox's repository.
	cloneSeconds = 240
	maxGitLine   = 300
	// repoSecret is the name of the secret that holds a repository's token.
	repoSecret = "repo_token"
)

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

func (s *Service) git(ctx context.Context, id string, g bothy.Guest, args []string, seconds float64) error {
	failed := func(format string, args ...any) *bothy.Error {
		return bothy.Errorf(bothy.CodeCloneFailed, "the repository was not cloned: "+format, args...)
	}
	tooSlow := failed("it took longer than %d seconds", cloneSeconds).WithHint("Create the sandbox without repo, and run git clone --depth 1 in it.")
	if seconds <= 0 {
		return tooSlow
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
		return tooSlow
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
