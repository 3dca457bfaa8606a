package lifecycle

import (
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/bothy-dev/bothy"
)

// maxRepo bounds the address of a repository.
const maxRepo = 2048

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
		return nil, bothy.Errorf(bothy.CodeInvalid, "repo is not the HTTPS URL of a git repository").WithHint("Write it as in https://git.example.org/team/app#main.")
	case u.User != nil:
		return nil, bothy.Errorf(bothy.CodeInvalid, "repo holds a user name or password").WithHint("Give the token in repo_token: it then never enters the sandbox.")
	case hasRef && !plainRef.MatchString(ref):
		return nil, bothy.Errorf(bothy.CodeInvalid, "%q is not a branch, a tag or a commit", ref).WithHint("Write it after the URL, as in https://git.example.org/team/app#v1.2, or omit it with the \"#\".")
	}
	r := &repo{url: address, host: u.Hostname(), port: 443, ref: ref, folder: strings.TrimSuffix(path.Base(u.Path), ".git")}
	if u.Port() != "" {
		port, err := strconv.ParseUint(u.Port(), 10, 16)
		if err != nil || port == 0 {
			return nil, bothy.Errorf(bothy.CodeInvalid, "repo has the port %s", u.Port()).WithHint("Give a number from 1 to 65535.")
		}
		r.port = uint16(port)
	}
	if !plainName.MatchString(r.folder) {
		return nil, bothy.Errorf(bothy.CodeInvalid, "the path of repo does not end in the name of a repository").WithHint("Write it as in https://git.example.org/team/app.")
	}
	return r, nil
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
