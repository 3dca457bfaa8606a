package builds

import (
	"encoding/hex"
	"slices"
	"strings"

	"github.com/bothy-dev/bothy"
)

// minRefuse is the length of the shortest entry, so that none matches by chance.
const minRefuse = 8

// CheckRefuse checks the entries of a list of builds to refuse.
func CheckRefuse(entries []string) error {
	for _, e := range entries {
		if len(e) < minRefuse || strings.TrimSpace(e) != e {
			return bothy.Errorf(bothy.CodeInvalid, "engines.refuse has the entry %q, which is too short or has spaces around it", e).
				WithHint("Give a build's name or its beginning, the SHA-256 of one of its files or the first %d digits of it, or a version, as `bothy doctor` lists them.", minRefuse)
		}
	}
	return nil
}

// RefusedBy returns the first entry that matches a build, or "": the beginning of its name or of
// the SHA-256 of one of its files, or one of its versions. Of an unknown build, only the name
// can match.
func RefusedBy(entries []string, name string, b *Build) string {
	for _, e := range entries {
		if strings.HasPrefix(name, e) {
			return e
		}
		if b == nil {
			continue
		}
		if slices.Contains(b.Versions, e) {
			return e
		}
		digits := strings.ToLower(strings.TrimPrefix(e, "sha256:"))
		if !isHexPrefix(digits) {
			continue
		}
		if slices.ContainsFunc(b.Files, func(f File) bool { return strings.HasPrefix(f.SHA256, digits) }) {
			return e
		}
	}
	return ""
}

func isHexPrefix(s string) bool {
	_, err := hex.DecodeString(s[:len(s)&^1])
	return err == nil && len(s) >= minRefuse
}

func (s *Store) refused(name string, b *Build) string { return RefusedBy(s.o.Refuse, name, b) }

func refusedError(name, by string) *bothy.Error {
	why := "which the operator refuses (engines.refuse)"
	if by != name {
		why = "which the operator refuses (" + by + " in engines.refuse)"
	}
	return Unusable("%s", why)
}
