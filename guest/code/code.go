// Package code runs pieces of code in contexts: processes in which variables
// persist from one piece to the next. A context is a Jupyter kernel if one is
// installed for its language, and otherwise one of our own small drivers. Only
// the guest's agent uses it.
//
// Contexts cost nothing until the first piece of code runs.
package code

import (
	"crypto/rand"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/guest/account"
	"github.com/bothy-dev/bothy/guest/command"
)

// maxContexts bounds the contexts of a sandbox.
const maxContexts = 64

// Host is what contexts need from the agent.
type Host interface {
	// Identity returns who runs code, where, with which environment, and a
	// number that changes whenever these do.
	Identity() (Identity, error)
	// Start starts a program.
	Start(s command.Spec) (*command.Process, error)
}

// Identity is who runs code.
type Identity struct {
	User *account.User
	Cwd  string
	// Env is the whole environment of a new process, and Own the part that was set for the
	// sandbox.
	Env []string
	Own map[string]string
	// Generation changes whenever the sandbox is adopted.
	Generation int
}

// Output is produced by code while it runs: text on a stream, or something displayed.
type Output struct {
	Stream, Text string
	Data         bothy.CodeOutput
	// Value is set if Data is the value of the last expression.
	Value bool
}

// Result says how a piece of code ended.
type Result struct {
	Error          *bothy.CodeError
	ExecutionCount int
	Duration       time.Duration
	TimedOut       bool
	OOMKilled      bool
	Truncated      bool
	Hint           string
	// ExitCode is the exit code of a shell's code.
	ExitCode *int
}

// Manager holds the contexts of a sandbox. Its methods may be called from many
// goroutines at once.
type Manager struct {
	host Host
	dir  string // folder of the kernels' sockets

	mu       sync.Mutex
	contexts map[string]*Context
	closed   bool
}

// New returns a manager without contexts. The sockets of its kernels are in dir.
func New(host Host, dir string) *Manager {
	return &Manager{host: host, dir: dir, contexts: make(map[string]*Context)}
}

// Context is a place where code runs.
type Context struct {
	ID, Language, Cwd string
	CreatedAt         time.Time

	m     *Manager
	turn  chan struct{} // holds one token: its holder runs code
	ended chan struct{} // closed when the context is removed

	mu      sync.Mutex
	kernel  kernel   // nil until it is needed, and after it died
	fresh   bool     // only warming has run in the kernel
	adopted int      // the generation that the kernel knows
	pieces  []*piece // pieces of code, in the order in which they arrived
}

// languages maps the names that callers use to those of contexts.
var languages = map[string]string{
	"": bothy.DefaultLanguage, "python": "python", "python3": "python", "py": "python",
	"javascript": "javascript", "js": "javascript", "node": "javascript",
	"bash": "bash", "sh": "bash", "shell": "bash",
}

func language(name string) (string, error) {
	if l, ok := languages[strings.ToLower(name)]; ok {
		return l, nil
	}
	return "", bothy.Errorf(bothy.CodeUnsupported, "code in %q cannot be run", name).
		WithHint("Languages are python, javascript and bash, as far as the template has them.")
}

// Create makes a context.
func (m *Manager) Create(lang, cwd string) (*Context, error) {
	lang, err := language(lang)
	if err != nil {
		return nil, err
	}
	return m.add("ctx_"+strings.ToLower(rand.Text()), lang, cwd)
}

func (m *Manager) add(id, lang, cwd string) (*Context, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, bothy.Errorf(bothy.CodeConflict, "the sandbox is ending")
	}
	if c := m.contexts[id]; c != nil {
		return c, nil
	}
	if len(m.contexts) >= maxContexts {
		return nil, bothy.Errorf(bothy.CodeCapacity, "there are %d contexts already", maxContexts).
			WithHint("Delete those that are not used any more.")
	}
	c := &Context{
		ID: id, Language: lang, Cwd: cwd, CreatedAt: time.Now(), m: m,
		turn: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	m.contexts[id] = c
	return c, nil
}

// Find returns a context by its id. Without an id it returns the language's default context,
// which has the language's name.
func (m *Manager) Find(id, lang string) (*Context, error) {
	if id == "" {
		lang, err := language(lang)
		if err != nil {
			return nil, err
		}
		return m.add(lang, lang, "")
	}
	m.mu.Lock()
	c := m.contexts[id]
	m.mu.Unlock()
	if c == nil {
		return nil, bothy.Errorf(bothy.CodeContextNotFound, "there is no context %q", id).
			WithHint("Create one, or leave the context out to use the language's own.")
	}
	if lang != "" {
		if l, err := language(lang); err != nil || l != c.Language {
			return nil, bothy.Errorf(bothy.CodeInvalid, "the context %q is for %s and not for %q", id, c.Language, lang)
		}
	}
	return c, nil
}

// List returns the contexts, oldest first.
func (m *Manager) List() []*Context {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []*Context
	for _, c := range m.contexts {
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b *Context) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return list
}

// Delete ends a context.
func (m *Manager) Delete(id string) error {
	c, err := m.Find(id, "")
	if err != nil {
		return err
	}
	m.mu.Lock()
	mine := m.contexts[id] == c
	delete(m.contexts, id)
	m.mu.Unlock()
	if mine {
		close(c.ended)
		c.stop()
	}
	return nil
}

// Close ends all contexts.
func (m *Manager) Close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	for _, c := range m.List() {
		_ = m.Delete(c.ID)
	}
}
