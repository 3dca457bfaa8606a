package template

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy"
)

const (
	// ownerName is the file that a folder's server locks. It says who that is.
	ownerName = ".server"
	// ownPatience is how long Own waits for a server that is about to end.
	ownPatience = 5 * time.Second
)

// folderOwner is the server that uses a folder of templates.
type folderOwner struct {
	PID  int    `json:"pid"`
	Home string `json:"home"`
}

// Own makes a folder of templates that of one server until it calls free or ends: no other could
// tell which images the server's sandboxes and snapshots need. The kernel frees the folder of a
// server that was killed.
func Own(ctx context.Context, dir, home string) (free func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("lock the templates: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, ownerName), os.O_CREATE|os.O_RDWR, 0o600)
	if errors.Is(err, unix.EROFS) {
		return func() {}, nil // nothing is ever deleted from it
	}
	if err != nil {
		return nil, fmt.Errorf("lock the templates: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, ownPatience)
	defer cancel()
	switch err := flock(ctx, f, func() {}); {
	case err != nil && ctx.Err() != nil:
		defer f.Close()
		return nil, owned(dir, f)
	case err != nil:
		f.Close()
		return nil, fmt.Errorf("lock the templates in %s: %w", dir, err)
	}
	// Without the text, for want of disk space, the lock is as good.
	text, _ := json.Marshal(folderOwner{os.Getpid(), home})
	if n, err := f.WriteAt(text, 0); err == nil {
		_ = f.Truncate(int64(n))
	}
	return func() { f.Close() }, nil
}

// owned is the refusal of a folder that another server has locked.
func owned(dir string, f *os.File) error {
	var by folderOwner
	who, stop := "another server", "stop that server"
	text := make([]byte, 8<<10)
	n, _ := f.ReadAt(text, 0)
	if err := json.Unmarshal(text[:n], &by); err == nil && by.Home != "" {
		who = fmt.Sprintf("the server with the process id %d and the home %s", by.PID, by.Home)
		stop = fmt.Sprintf("stop that server with BOTHY_HOME=%s bothy down", by.Home)
	}
	return bothy.Errorf(bothy.CodeConflict, "the templates in %s are used by %s", dir, who).
		WithHint("Give this server a folder of its own with BOTHY_TEMPLATES, or %s.", stop)
}
