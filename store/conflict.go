package store

import (
	"errors"
	"fmt"

	"github.com/bothy-dev/bothy"
)

// ErrLost is the cause of every failed change of a server that no longer has the store: another one
// has taken it over, or the other hosts have given this one up.
var ErrLost = errors.New("this server no longer has the store")

// Conflict says that a sandbox was not stored, because its row is not the one that the caller
// had read: something else has written it.
type Conflict struct {
	Sandbox string
	// Expected is the version that the caller had read, 0 for a new sandbox. Found is that of
	// the row, 0 if there is none.
	Expected, Found int64
}

func (c *Conflict) Error() string {
	return fmt.Sprintf("version %d of sandbox %s was expected and version %d found", c.Expected, c.Sandbox, c.Found)
}

// AsError returns the error for the caller, with c as its cause.
func (c *Conflict) AsError() error {
	say := func(format string, args ...any) *bothy.Error {
		return bothy.Errorf(bothy.CodeConflict, format+"; nothing was stored", args...).Because(c)
	}
	const lost = "The database was restored from an old backup, or records were deleted from it: restore the newest backup. To continue with it as it is, restart the server."
	const again = "Look at the sandbox again, and repeat the request if it still makes sense."
	switch {
	case c.Expected == 0:
		return say("the database already has a record of sandbox %s, version %d", c.Sandbox, c.Found).WithHint(again)
	case c.Found == 0:
		return say("the database no longer has a record of sandbox %s, whose version %d was expected", c.Sandbox, c.Expected).WithHint(lost)
	case c.Found < c.Expected:
		return say("the database has version %d of the record of sandbox %s, which is older than the expected version %d", c.Found, c.Sandbox, c.Expected).WithHint(lost)
	}
	return say("the database has version %d of the record of sandbox %s, and version %d was expected: something else has changed it", c.Found, c.Sandbox, c.Expected).WithHint(again)
}
