package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
)

// probeTimeout bounds the start of one sandbox. Even an emulated one on a busy host is faster.
const probeTimeout = 2 * time.Minute

// check starts a real sandbox.
func (p StartProbe) check(ctx context.Context) Result {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	s, err := p.Start(ctx)
	if err == nil {
		said := strings.TrimSpace(fmt.Sprintf("A sandbox started in %d ms, ran and ended. %s", s.Took.Milliseconds(), s.Detail))
		if s.Slow != "" {
			return warn(said, s.Slow)
		}
		return ok(said)
	}
	fix := "The findings above may say why; the server's log has the details."
	detail := err.Error()
	var e *bothy.Error
	if errors.As(err, &e) && e.Detail != "" {
		detail = e.Detail
		if e.Hint != "" {
			fix = e.Hint
		}
	}
	if p.Optional && bothy.ErrorCode(err) == bothy.CodeEngineMissing {
		return warn("It is not ready, and sandboxes can do without it: "+detail, fix)
	}
	return fail("A sandbox did not start: "+detail, fix)
}

func (h *Host) checkTemplates(context.Context) Result {
	names := templateNames(h.Templates)
	if len(names) == 0 {
		return warn(fmt.Sprintf("There are no templates in %s yet.", h.Templates),
			"Run: bothy up, then: bothy template build "+bothy.DefaultTemplate)
	}
	return ok(strings.Join(names, ", ") + ".")
}

// templateNames lists the templates whose current version has its image.
func templateNames(dir string) []string {
	manifests, _ := filepath.Glob(filepath.Join(dir, "*", "current", "manifest.json"))
	var names []string
	for _, path := range manifests {
		var t bothy.Template
		b, err := os.ReadFile(path)
		if err != nil || json.Unmarshal(b, &t) != nil {
			continue
		}
		if _, err := os.Stat(filepath.Join(filepath.Dir(path), "rootfs.erofs")); err == nil {
			names = append(names, t.Name)
		}
	}
	return names
}
