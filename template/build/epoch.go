package build

import (
	"strconv"
	"time"

	"github.com/bothy-dev/bothy"
)

// epochArg is the argument by which a build says that nothing in the image is younger than
// a time, in seconds since 1970, so that building again on another day makes the same
// image. Every command gets it, and many programs heed it.
const epochArg = "SOURCE_DATE_EPOCH"

// sourceDate reads the argument; nil if it is not given.
func sourceDate(args map[string]string) (*time.Time, error) {
	text, ok := args[epochArg]
	if !ok {
		return nil, nil
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seconds < 0 || seconds > 1<<33 {
		return nil, bothy.Errorf(bothy.CodeInvalid, "the argument %s is %q", epochArg, text).
			WithHint("Give a time in whole seconds since 1970, as `git log -1 --format=%%ct` prints that of a commit.")
	}
	at := time.Unix(seconds, 0)
	return &at, nil
}
