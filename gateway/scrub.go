package gateway

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"html"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

const (
	// minScrubbed is the minimum length of a value that is searched for in answers. A shorter
	// one would match by accident.
	minScrubbed = 6
	// minCore is the same for a piece of base64.
	minCore = 8
)

// replacement is one form of a value, and its replacement for the sandbox.
type replacement struct{ value, shown string }

// formsOf lists the forms in which a value could come back: as is, as encoded
// in a URL, in JSON and in HTML, and inside base64.
func formsOf(value, placeholder string) []replacement {
	if len(value) < minScrubbed {
		return nil
	}
	inJSON, _ := json.Marshal(value)
	var forms []replacement
	for _, v := range []string{value, url.QueryEscape(value), url.PathEscape(value), string(inJSON[1 : len(inJSON)-1]), html.EscapeString(value)} {
		forms = append(forms, replacement{v, placeholder})
	}
	for shift := range 3 {
		for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			if core := base64Core(encoding, value, shift); len(core) >= minCore {
				forms = append(forms, replacement{core, strings.Repeat("*", len(core))})
			}
		}
	}
	return slices.Compact(forms)
}

// base64Core returns the characters that value has in the base64 of any text that contains it at
// an offset of shift modulo 3.
func base64Core(encoding *base64.Encoding, value string, shift int) string {
	all := encoding.EncodeToString(append(make([]byte, shift), value...))
	first := (8*shift + 5) / 6
	last := 8 * (shift + len(value)) / 6
	if first >= last {
		return ""
	}
	return all[first:last]
}

// scrubber removes values from a host's answer.
type scrubber struct{ needles []needle }

// needle is a replacement as bytes.
type needle struct{ value, shown []byte }

// newScrubber returns nil if there is nothing to remove. With sameLength the sandbox sees as
// many asterisks as the value has characters.
func newScrubber(forms []replacement, sameLength bool) *scrubber {
	if len(forms) == 0 {
		return nil
	}
	s := &scrubber{}
	for _, f := range forms {
		n := needle{[]byte(f.value), []byte(f.shown)}
		if sameLength {
			n.shown = bytes.Repeat([]byte("*"), len(n.value))
		}
		s.needles = append(s.needles, n)
	}
	// The longest first: one may be part of another.
	slices.SortStableFunc(s.needles, func(a, b needle) int { return cmp.Compare(len(b.value), len(a.value)) })
	return s
}

// header cleans the values of a header or a trailer.
func (s *scrubber) header(h http.Header) {
	for _, values := range h {
		for i, v := range values {
			clean, _ := s.clean(nil, []byte(v), true)
			values[i] = string(clean)
		}
	}
}

// next finds the first value in b. It returns the index -1 if there is none.
func (s *scrubber) next(b []byte) (at int, found needle) {
	at = -1
	for _, n := range s.needles {
		if i := bytes.Index(b, n.value); i >= 0 && (at < 0 || i < at) {
			at, found = i, n
			b = b[:i+len(n.value)]
		}
	}
	return at, found
}

// unfinished returns how many bytes at the end of b could be the beginning of a value.
func (s *scrubber) unfinished(b []byte) int {
	most := 0
	for _, one := range s.needles {
		for n := min(len(one.value)-1, len(b)); n > most; n-- {
			if bytes.HasSuffix(b, one.value[:n]) {
				most = n
			}
		}
	}
	return most
}

// clean appends b without values to out, and returns the part that has to wait for more bytes,
// which is empty at the end.
func (s *scrubber) clean(out, b []byte, end bool) (cleaned, rest []byte) {
	for {
		at, found := s.next(b)
		if at < 0 {
			break
		}
		out = append(append(out, b[:at]...), found.shown...)
		b = b[at+len(found.value):]
	}
	cut := len(b)
	if !end {
		cut -= s.unfinished(b)
	}
	return append(out, b[:cut]...), b[cut:]
}

// scrubbedReader is a body without values. It holds bytes back only while they could be the
// beginning of one.
type scrubbedReader struct {
	src      io.Reader
	scrubber *scrubber

	// in is the read buffer; it begins with held bytes that wait for more.
	in   []byte
	held int
	// out is what was cleaned and not yet read, in the memory of cleaned.
	cleaned, out []byte
	err          error
}

const scrubBuffer = 16 << 10

// Read implements io.Reader.
func (r *scrubbedReader) Read(p []byte) (int, error) {
	for len(r.out) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		r.fill()
	}
	n := copy(p, r.out)
	r.out = r.out[n:]
	return n, nil
}

func (r *scrubbedReader) fill() {
	if room := r.held + scrubBuffer; len(r.in) < room {
		r.in = append(make([]byte, 0, room), r.in[:r.held]...)[:room]
	}
	n, err := r.src.Read(r.in[r.held : r.held+scrubBuffer])
	r.err = err
	var rest []byte
	r.cleaned, rest = r.scrubber.clean(r.cleaned[:0], r.in[:r.held+n], err != nil)
	r.out = r.cleaned
	r.held = copy(r.in, rest)
}
