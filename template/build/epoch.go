package build

import (
	"strconv"
	"time"

	"github.com/bothy-dev/bothy"
)

// epochArg is the build argument that limits the times of all files in the image, in seconds
// since 1970, so that a later build produces the same image. Every command gets it as a
// variable, and many programs respect it.
const epochArg = "SOURCE_DATE_EPOCH"

// sourceDate parses the argument; nil if it is not given.
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
