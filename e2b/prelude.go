package e2b

import (
	"context"
	_ "embed"
	"sync"

	"github.com/bothy-dev/bothy"
)

// preludes are run in an interpreter before a client's first code, by language: E2B's clients
// expect to start in the user's home.
var preludes = map[string]string{
	"python":     pythonPrelude,
	"javascript": `process.cwd() === "/workspace" && process.chdir(require("node:os").homedir())`,
	"bash":       `[[ $PWD == /workspace ]] && cd ~ || true`,
}

//go:embed prelude.py
var pythonPrelude string

// prepared are the contexts in which the prelude has run. After a restart of the server it runs
// once more, which does no harm.
type prepared struct {
	mu  sync.Mutex
	set map[string]struct{}
}

// maxPrepared limits the cache. It is emptied beyond that.
const maxPrepared = 20000

func (p *prepared) has(sandbox, context string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.set[sandbox+" "+context]
	return ok
}

func (p *prepared) add(sandbox, context string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.set == nil || len(p.set) >= maxPrepared {
		p.set = map[string]struct{}{}
	}
	p.set[sandbox+" "+context] = struct{}{}
}

func (p *prepared) drop(sandbox, context string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.set, sandbox+" "+context)
}

// prepare runs the prelude in a context unless it has run there. A context without a language is
// looked up.
func (d *Door) prepare(ctx context.Context, t target, contextID, language string) error {
	name := contextID
	if name == "" {
		if language == "" {
			language = bothy.DefaultLanguage
		}
		name = language
	}
	if d.prepared.has(t.id, name) {
		return nil
	}
	if language == "" {
		all, err := d.Code.Contexts(ctx, t.id)
		if err != nil {
			return err
		}
		for _, c := range all {
			if c.ID == contextID {
				language = c.Language
			}
		}
	}
	if code := preludes[language]; code != "" {
		_, err := d.Code.RunCode(ctx, t.id, bothy.CodeRequest{Code: code, ContextID: contextID, Language: language, Quiet: true})
		if err != nil {
			return err
		}
	}
	d.prepared.add(t.id, name)
	return nil
}
