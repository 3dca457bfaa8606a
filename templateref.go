package bothy

import (
	"regexp"
	"strings"
	"sync"
)

// DefaultTag is the tag of a template's name that has none.
const DefaultTag = "latest"

// TemplateRef names a template: NAME, NAME:TAG, NAME@DIGEST or DIGEST.
type TemplateRef struct {
	Name   string // such as "tools" or "team/app"; empty where only a digest was given
	Tag    string // DefaultTag where none was given
	Digest string // "sha256:<hex>" or empty
}

// Compiled when they are needed: every sandbox's processes link this.
var (
	templateName = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}(/[a-z0-9][a-z0-9._-]{0,62}){0,3}$`)
	})
	templateTag    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,62}$`) })
	templateDigest = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^sha256:[0-9a-f]{64}$`) })
)

// TagOrDefault is the template's tag.
func (t *Template) TagOrDefault() string {
	if t.Tag == "" {
		return DefaultTag
	}
	return t.Tag
}

// Ref is the template's name with its tag.
func (t *Template) Ref() string { return TemplateRef{Name: t.Name, Tag: t.TagOrDefault()}.String() }

// ValidTemplateName reports whether s can name a template, with a tag or without.
func ValidTemplateName(s string) bool {
	r, err := ParseTemplateRef(s)
	return err == nil && r.Digest == ""
}

// ParseTemplateRef parses a caller's reference to a template.
func ParseTemplateRef(s string) (TemplateRef, error) {
	r := TemplateRef{Tag: DefaultTag}
	rest := s
	if templateDigest().MatchString(s) {
		r.Digest, rest = s, ""
		return r, nil
	}
	rest, digest, ok := strings.Cut(rest, "@")
	if ok {
		if !templateDigest().MatchString(digest) {
			return r, invalidTemplateRef(s)
		}
		r.Digest = digest
	}
	if i := strings.LastIndexByte(rest, ':'); i >= 0 {
		rest, r.Tag = rest[:i], rest[i+1:]
	}
	if len(s) > 200+len(digest) || !templateName().MatchString(rest) || !templateTag().MatchString(r.Tag) || rest == "sha256" {
		return r, invalidTemplateRef(s)
	}
	r.Name = rest
	return r, nil
}

// String is the reference without what goes without saying.
func (r TemplateRef) String() string {
	s := r.Name
	if r.Name != "" && r.Tag != DefaultTag && r.Digest == "" {
		s += ":" + r.Tag
	}
	if r.Digest == "" {
		return s
	}
	if s != "" {
		s += "@"
	}
	return s + r.Digest
}

func invalidTemplateRef(s string) error {
	return Errorf(CodeInvalid, "%q cannot be the name of a template", s).
		WithHint("Use up to 63 small letters, digits, dots, dashes and underscores, beginning with a letter or a digit; " +
			"up to four such parts with / between them, and :TAG or @sha256:DIGEST behind.")
}
