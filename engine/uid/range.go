package uid

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/bothy-dev/bothy"
)

// Range is the ids from First to Last, inclusive.
type Range struct{ First, Last int }

// mostID is the highest id that no program mistakes for a negative number.
const mostID = 1<<31 - 1

// Defaults are tried in turn. The first is in a range that systemd's list of ids leaves unused,
// far above what adduser gives to people and containers; the second is for hosts that are
// themselves containers, with 65,536 ids.
var defaults = []Range{{1_900_000_000, 1_900_999_999}, {40_000, 59_999}}

// Parse reads a range such as 200000-265535. The empty string means the default range.
func Parse(text string) (Range, error) {
	if text == "" {
		return Range{}, nil
	}
	first, last, _ := strings.Cut(text, "-")
	a, aerr := strconv.Atoi(strings.TrimSpace(first))
	b, berr := strconv.Atoi(strings.TrimSpace(last))
	if aerr != nil || berr != nil || a < 1 || b < a || b > mostID {
		return Range{}, bothy.Errorf(bothy.CodeInvalid, "engine.uids is %q, which is not a range of user ids", text).
			WithHint("Give the first and the last, from 1 to %d, such as %s; leave it empty for the default.", mostID, defaults[0])
	}
	return Range{a, b}, nil
}

// String returns the form that Parse reads.
func (r Range) String() string { return fmt.Sprintf("%d-%d", r.First, r.Last) }

func (r Range) size() int { return r.Last - r.First + 1 }

func (r Range) overlaps(o Range) bool { return r.First <= o.Last && o.First <= r.Last }

// files are the host's lists of assigned ids. Tests replace them.
type files struct{ uidMap, passwd, group, subuid, subgid string }

var accounts = files{"/proc/self/uid_map", "/etc/passwd", "/etc/group", "/etc/subuid", "/etc/subgid"}

func defaultRange(f files) (Range, error) {
	var first error
	for _, r := range defaults {
		err := r.check(f)
		if err == nil {
			return r, nil
		}
		if first == nil {
			first = err
		}
	}
	return Range{}, first
}

// check refuses ids that this host cannot use, or that are already assigned. A machine's
// group id equals its user id.
func (r Range) check(f files) error {
	if !r.within(f.uidMap) {
		return bothy.Errorf(bothy.CodeInvalid, "this host does not have all of the user ids %s", r).
			WithHint("In a container, set engine.uids to a range that /proc/self/uid_map has.")
	}
	if 65534 >= r.First && 65534 <= r.Last || r.overlaps(Range{61184, 65519}) {
		return r.taken("the host's own: nobody, and services with dynamic users")
	}
	for _, file := range []struct {
		path   string
		ranges bool
	}{{f.passwd, false}, {f.group, false}, {f.subuid, true}, {f.subgid, true}} {
		if who := r.owner(file.path, file.ranges); who != "" {
			return r.taken(fmt.Sprintf("%s's in %s", who, file.path))
		}
	}
	return nil
}

func (r Range) taken(whose string) error {
	return bothy.Errorf(bothy.CodeInvalid, "of the user ids %s for sandboxes some are %s", r, whose).
		WithHint("Set engine.uids to a range that is not in use, such as %s.", defaults[0])
}

// within reports whether this process's user namespace maps all the ids.
func (r Range) within(uidMap string) bool {
	for fields := range lines(uidMap, " ") {
		f := numbers(fields)
		if len(f) == 3 && f[0] <= r.First && r.Last < f[0]+f[2] {
			return true
		}
	}
	return false
}

// owner finds an account, or a range, in a file that overlaps the range.
func (r Range) owner(path string, ranges bool) string {
	for fields := range lines(path, ":") {
		if len(fields) < 3 {
			continue
		}
		f := numbers(fields[1:3])
		switch {
		case ranges && len(f) == 2 && f[1] > 0 && r.overlaps(Range{f[0], f[0] + f[1] - 1}):
			return fields[0]
		case !ranges && len(fields) > 2:
			if n, err := strconv.Atoi(fields[2]); err == nil && r.overlaps(Range{n, n}) {
				return fields[0]
			}
		}
	}
	return ""
}

// lines yields the fields of each line of a file, which may not exist.
func lines(path, separator string) func(yield func([]string) bool) {
	return func(yield func([]string) bool) {
		f, err := os.Open(path)
		if err != nil {
			return
		}
		defer f.Close()
		for s := bufio.NewScanner(f); s.Scan(); {
			fields := strings.Split(s.Text(), separator)
			if separator == " " {
				fields = strings.Fields(s.Text())
			}
			if !yield(fields) {
				return
			}
		}
	}
}

// numbers parses the fields. It returns nil if one is not a number.
func numbers(fields []string) (found []int) {
	for _, f := range fields {
		n, err := strconv.Atoi(f)
		if err != nil {
			return nil
		}
		found = append(found, n)
	}
	return found
}
