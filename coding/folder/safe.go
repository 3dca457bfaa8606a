package folder

import (
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bothy-dev/bothy/internal/links"
)

// harmless are the entries of a repository's .git that git only reads as data. Others stay in
// the sandbox: hooks and settings are programs that git would execute on this host.
var harmless = []string{
	"HEAD", "ORIG_HEAD", "FETCH_HEAD", "MERGE_HEAD", "MERGE_MSG", "MERGE_MODE", "AUTO_MERGE", "CHERRY_PICK_HEAD", "REVERT_HEAD",
	"COMMIT_EDITMSG", "index", "logs", "objects", "packed-refs", "refs",
}

// refused says why an entry is not copied out of a sandbox, or "".
func refused(name string, remote map[string]entry) string {
	if why := refusedName(name); why != "" {
		return why
	}
	dir, last := path.Split(name)
	switch {
	case strings.EqualFold(name, ".git") && remote[name].there() && remote[name].Kind != kindFolder:
		return "it would make another place a repository here"
	case strings.EqualFold(last, "HEAD") && dir != ".git/" && remote[dir+"objects"].there() && remote[dir+"refs"].there():
		return "the folder would be a repository, with settings that git would run here"
	}
	return ""
}

// refusedName says why nothing of that name is copied out of a sandbox, or "".
func refusedName(name string) string {
	parts := strings.Split(name, "/")
	at := slices.IndexFunc(parts, func(p string) bool { return strings.EqualFold(p, ".git") })
	switch {
	case at < 0:
		return ""
	case at > 0 || parts[0] != ".git":
		return "a repository inside of another one could bring hooks and settings that git would run here"
	case len(parts) == 1:
		return ""
	case !slices.Contains(harmless, parts[1]) || strings.HasPrefix(name, ".git/objects/info/"):
		return "git could run what it says on this host"
	case strings.HasSuffix(name, ".lock"):
		return "git is at work there"
	}
	return ""
}

// refusedLink says why a link is not made on this host, or "".
func refusedLink(name, target string) string {
	switch {
	case strings.HasPrefix(name, ".git/"):
		return "it is a link in a repository's .git"
	case target == "" || filepath.IsAbs(target):
		return "it is a link to " + target + ", outside of the folder"
	case !filepath.IsLocal(path.Join(path.Dir(name), target)) || links.Climbs(target):
		return "it is a link to " + target + ", which leads out of the folder or may do so later"
	}
	return ""
}
