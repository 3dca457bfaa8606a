package gateway

import (
	"sync"
	"syscall"
	"time"

	"golang.org/x/time/rate"
)

// maxServerConns limits the connections of all sandboxes of a process, if the
// process may open enough descriptors.
const maxServerConns = 64 << 10

// Budget limits the connections to the outside that all gateways of a process hold together,
// because each takes a descriptor of the process. Shares depend on what is left: a sandbox may
// hold at most as many as are free, and a project twice as many. So one greedy sandbox gets
// half, two get a third each, and some are always free for sandboxes that have few. The methods
// may be called from many goroutines.
type Budget struct {
	max int
	// lines limits log lines about refusals.
	lines *rate.Limiter

	mu       sync.Mutex
	total    int
	projects map[string]int
}

// NewBudget returns a budget of n connections, for Options.Budget.
func NewBudget(max int) *Budget {
	return &Budget{max: max, projects: map[string]int{}, lines: rate.NewLimiter(rate.Every(time.Minute), 1)}
}

// serverBudget is shared by the gateways that were given no other. It leaves half of the
// descriptors to the rest of the server.
var serverBudget = sync.OnceValue(func() *Budget {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return NewBudget(maxServerConns)
	}
	return NewBudget(int(min(limit.Cur/2, maxServerConns)))
})

// Open returns how many connections are held.
func (b *Budget) Open() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.total
}

// take takes one connection for a sandbox that already holds the given number.
func (b *Budget) take(project string, held int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	free := b.max - b.total
	if held >= free || project != "" && b.projects[project] >= 2*free {
		return false
	}
	b.total++
	b.projects[project]++
	return true
}

// put gives one back.
func (b *Budget) put(project string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.total--
	if b.projects[project]--; b.projects[project] == 0 {
		delete(b.projects, project)
	}
}

// SetOwner sets the project that owns the sandbox. Connections count for the project that owned
// it when they were opened.
func (g *Gateway) SetOwner(project string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.project = project
}

// spend takes one connection out of the server's budget, and returns a function
// that gives it back, or nil if there is none left for this sandbox. The caller
// holds g.mu.
func (g *Gateway) spend() (giveBack func()) {
	project := g.project
	if !g.budget.take(project, g.spent) {
		if g.budget.lines.Allow() {
			g.log.Warn("gateway: a sandbox is refused connections, because the server has too many", "open", g.budget.Open(), "of", g.budget.max, "its own", g.spent)
		}
		return nil
	}
	g.spent++
	return sync.OnceFunc(func() {
		g.budget.put(project)
		g.mu.Lock()
		g.spent--
		g.mu.Unlock()
	})
}
