// Package lateregexp is what is used of package regexp, for expressions that most
// processes never use.
package lateregexp

import (
	"regexp"
	"sync"

	"gvisor.dev/gvisor/pkg/tuning"
)

// Regexp is compiled when it is first used.
type Regexp struct {
	text     string
	once     sync.Once
	compiled *regexp.Regexp
}

// MustCompile returns an expression that panics when it is used, if it is none.
func MustCompile(text string) *Regexp {
	r := &Regexp{text: text}
	if !tuning.On("regexps") {
		r.get()
	}
	return r
}

func (r *Regexp) get() *regexp.Regexp {
	r.once.Do(func() { r.compiled = regexp.MustCompile(r.text) })
	return r.compiled
}

func (r *Regexp) FindString(s string) string             { return r.get().FindString(s) }
func (r *Regexp) MatchString(s string) bool              { return r.get().MatchString(s) }
func (r *Regexp) FindSubmatch(b []byte) [][]byte         { return r.get().FindSubmatch(b) }
func (r *Regexp) FindStringSubmatch(s string) []string   { return r.get().FindStringSubmatch(s) }
func (r *Regexp) FindAllString(s string, n int) []string { return r.get().FindAllString(s, n) }
func (r *Regexp) ReplaceAllFunc(b []byte, f func([]byte) []byte) []byte {
	return r.get().ReplaceAllFunc(b, f)
}
func (r *Regexp) ReplaceAllString(s, by string) string { return r.get().ReplaceAllString(s, by) }
