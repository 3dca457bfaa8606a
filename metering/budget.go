package metering

import (
	"context"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/money"
	"github.com/bothy-dev/bothy/store"
)

type budgetID struct {
	kind store.BudgetKind
	id   string
}

// budget is a budget with what has been spent in its current period.
type budget struct {
	store.Budget
	period    period
	spent     store.Counts
	enforcing bool
}

// period is a month, or the life of a tree.
type period struct {
	name     string
	from, to int64 // in hours since the epoch; to is not included
	resets   *time.Time
}

func periodOf(kind store.BudgetKind, now time.Time) period {
	if kind == store.BudgetTree {
		return period{name: "life", from: 0, to: 1 << 40}
	}
	first := monthOf(now)
	next := first.AddDate(0, 1, 0)
	return period{name: first.Format("2006-01"), from: hourOf(first), to: hourOf(next), resets: &next}
}

func monthOf(t time.Time) time.Time {
	t = t.UTC()
	return time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC)
}

func hourOf(t time.Time) int64 { return floorDiv(t.Unix(), 3600) }

func (m *Meter) loadBudgets(ctx context.Context) error {
	all, err := m.o.Store.Budgets(ctx)
	if err != nil {
		return err
	}
	for _, b := range all {
		id := budgetID{b.Kind, b.ID}
		m.budgets[id] = &budget{Budget: b}
		if err := m.refresh(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// reloadBudgets reads the budgets that other servers have set, and what their sandboxes have
// spent.
func (m *Meter) reloadBudgets(ctx context.Context) {
	m.putting.Lock()
	all, err := m.o.Store.Budgets(ctx)
	if err == nil {
		there := map[budgetID]bool{}
		m.mu.Lock()
		for _, b := range all {
			id := budgetID{b.Kind, b.ID}
			there[id] = true
			if was := m.budgets[id]; was != nil {
				was.Budget = b
			} else {
				m.budgets[id] = &budget{Budget: b}
			}
		}
		for id := range m.budgets {
			if !there[id] {
				delete(m.budgets, id)
			}
		}
		m.mu.Unlock()
	}
	m.putting.Unlock()
	for _, b := range all {
		if err == nil {
			err = m.refresh(ctx, budgetID{b.Kind, b.ID})
		}
	}
	if err != nil && ctx.Err() == nil {
		m.log.Warn("the spending of other hosts cannot be read", "error", err)
	}
}

// bounded reports whether a project has a budget. It is called with m.mu held.
func (m *Meter) bounded(project string) bool {
	return m.budgets[budgetID{store.BudgetProject, project}] != nil
}

// spend adds counts to the budgets that they count against. It is called with
// m.mu held.
func (m *Meter) spend(key store.UsageKey, hour int64, c store.Counts) {
	for _, id := range []budgetID{{store.BudgetProject, key.Project}, {store.BudgetTree, key.Root}} {
		if b := m.budgets[id]; b != nil && b.period.name != "" && b.period.from <= hour && hour < b.period.to {
			b.spent.Add(c)
		}
	}
}

// refresh sets a budget's sum to that of its current period.
func (m *Meter) refresh(ctx context.Context, id budgetID) error {
	m.flushing.Lock() // so that nothing moves from memory to the store meanwhile
	defer m.flushing.Unlock()
	p := periodOf(id.kind, m.now().Wall)
	spent, err := m.storedSum(ctx, id, p)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	b := m.budgets[id]
	if b == nil {
		return nil
	}
	count := func(key store.UsageKey, hour int64, c store.Counts) {
		ours := key.Project == id.id
		if id.kind == store.BudgetTree {
			ours = key.Root == id.id
		}
		if ours && p.from <= hour && hour < p.to {
			spent.Add(c)
		}
	}
	for _, batch := range m.queue {
		for _, r := range batch.Rows {
			count(r.UsageKey, r.Hour, r.Counts)
		}
	}
	for _, d := range m.due {
		for k, c := range d.rows {
			count(k.UsageKey, k.hour, c)
		}
	}
	if m.stored != nil {
		for k, c := range m.stored.rows {
			count(k.UsageKey, k.hour, c)
		}
	}
	b.period, b.spent = p, spent
	return nil
}

// storedSum returns the store's sum for a budget's period.
func (m *Meter) storedSum(ctx context.Context, id budgetID, p period) (c store.Counts, err error) {
	if id.kind == store.BudgetTree {
		return m.o.Store.TreeUsage(ctx, id.id)
	}
	groups, err := m.o.Store.QueryUsage(ctx, store.UsageQuery{From: p.from, To: p.to, In: store.UsageKey{Project: id.id}})
	for _, g := range groups {
		c.Add(g.Counts)
	}
	return c, err
}

// SetProjectBudget limits what a project may spend in a month. 0 means no limit.
func (m *Meter) SetProjectBudget(ctx context.Context, project string, amount float64) error {
	return m.setBudget(ctx, store.Budget{Kind: store.BudgetProject, ID: project, Project: project, Amount: amount})
}

// SetTreeBudget limits what a sandbox and everything forked from it may spend. 0 means no limit.
func (m *Meter) SetTreeBudget(ctx context.Context, root, project string, amount float64) error {
	return m.setBudget(ctx, store.Budget{Kind: store.BudgetTree, ID: root, Project: project, Amount: amount})
}

// CheckBudget refuses a budget that is invalid, or that nothing can use up.
func (m *Meter) CheckBudget(amount float64) error {
	if err := bothy.CheckBudget(amount); err != nil {
		return err
	}
	if amount > 0 && m.o.Rates.Free() {
		return bothy.Errorf(bothy.CodeInvalid, "all rates of this server are 0, so a budget has no effect").
			WithHint("The operator sets prices under rates in the server's settings.")
	}
	return nil
}

func (m *Meter) setBudget(ctx context.Context, b store.Budget) error {
	if err := m.CheckBudget(b.Amount); err != nil {
		return err
	}
	if err := m.putBudget(ctx, b); err != nil || b.Amount == 0 {
		return err
	}
	m.count(ctx, true, func(s *span) bool { return s.key.Project == b.Project })
	return m.refresh(ctx, budgetID{b.Kind, b.ID})
}

func (m *Meter) putBudget(ctx context.Context, b store.Budget) error {
	m.putting.Lock()
	defer m.putting.Unlock()
	if err := m.o.Store.PutBudget(ctx, b); err != nil {
		return err
	}
	id := budgetID{b.Kind, b.ID}
	m.mu.Lock()
	defer m.mu.Unlock()
	if b.Amount == 0 {
		delete(m.budgets, id)
		return nil
	}
	if was := m.budgets[id]; was != nil {
		was.Budget = b
	} else {
		m.budgets[id] = &budget{Budget: b}
	}
	return nil
}

// ProjectBudget returns a project's budget, nil for none.
func (m *Meter) ProjectBudget(project string) *bothy.BudgetState {
	return m.budgetState(budgetID{store.BudgetProject, project})
}

// TreeBudget returns the budget of a sandbox and everything forked from it, nil for none.
func (m *Meter) TreeBudget(root string) *bothy.BudgetState {
	return m.budgetState(budgetID{store.BudgetTree, root})
}

func (m *Meter) budgetState(id budgetID) *bothy.BudgetState {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := m.budgets[id]
	if b == nil {
		return nil
	}
	p := periodOf(id.kind, m.now().Wall)
	s := &bothy.BudgetState{Limit: b.Amount, Currency: m.o.Rates.Currency, ResetsAt: p.resets}
	if p.name == b.period.name {
		s.Used = m.cost(b.spent)
	}
	return s
}

// Allow returns an error with CodeBudget if a sandbox must not run because a budget that it
// counts against is used up.
func (m *Meter) Allow(sb *store.Sandbox) error {
	for _, b := range []struct {
		whose, hint string
		state       *bothy.BudgetState
	}{
		{"the project's budget", "The operator can raise it: bothy project set " + sb.ProjectID + " --budget AMOUNT.", m.ProjectBudget(sb.ProjectID)},
		{"the budget of sandbox " + sb.BudgetRoot + " and its forks", "Raise it: bothy budget " + sb.ID + " AMOUNT, or PATCH the sandbox's budget.", m.TreeBudget(sb.BudgetRoot)},
	} {
		s := b.state
		if s == nil || s.Used < s.Limit {
			continue
		}
		when := ""
		if s.ResetsAt != nil {
			when = ", until " + s.ResetsAt.Format(time.DateOnly)
		}
		return bothy.Errorf(bothy.CodeBudget, "%s of %s %s is used up: %s %s are spent%s",
			b.whose, money.Text(s.Limit), s.Currency, money.Text(s.Used), s.Currency, when).WithHint("%s", b.hint)
	}
	return nil
}

// watchBudgets reports budgets that are nearly or completely used up, and pauses what counts
// against the latter.
func (m *Meter) watchBudgets(ctx context.Context) {
	m.mu.Lock()
	host := m.host
	ids := make([]budgetID, 0, len(m.budgets))
	for id := range m.budgets {
		ids = append(ids, id)
	}
	m.mu.Unlock()
	if host == nil {
		return
	}
	for _, id := range ids {
		m.watchBudget(ctx, host, id)
	}
}

func (m *Meter) watchBudget(ctx context.Context, host Host, id budgetID) {
	m.mu.Lock()
	b := m.budgets[id]
	stale := b != nil && b.period.name != periodOf(id.kind, m.now().Wall).name
	m.mu.Unlock()
	if stale {
		if err := m.refresh(ctx, id); err != nil {
			m.log.Warn("the spending of a budget cannot be read", "budget", id.id, "error", err)
			return
		}
	}
	m.mu.Lock()
	if b = m.budgets[id]; b == nil {
		m.mu.Unlock()
		return
	}
	used := m.cost(b.spent)
	over := used >= b.Amount
	var tell string
	switch {
	case over && b.Exceeded != b.period.name:
		tell = bothy.EventBudgetExceeded
		b.Exceeded, b.Warned = b.period.name, b.period.name
	case used >= m.o.WarnAt*b.Amount && b.Warned != b.period.name:
		tell = bothy.EventBudgetWarning
		b.Warned = b.period.name
	}
	enforce := over && !b.enforcing
	b.enforcing = b.enforcing || enforce
	said := b.Budget
	m.mu.Unlock()

	if tell != "" {
		m.emitBudget(ctx, host, tell, said, used)
	}
	if enforce {
		m.enforcing.Go(func() {
			root := ""
			if id.kind == store.BudgetTree {
				root = id.id
			}
			host.PauseOverBudget(ctx, said.Project, root)
			m.mu.Lock()
			defer m.mu.Unlock()
			b.enforcing = false
		})
	}
}

// emitBudget records the event once in each period. The event is recorded before that is stored:
// twice is better than never.
func (m *Meter) emitBudget(ctx context.Context, host Host, typ string, b store.Budget, used float64) {
	sandbox := ""
	if b.Kind == store.BudgetTree {
		sandbox = b.ID
	}
	m.log.Info("a budget is nearly or completely used up", "event", typ, "kind", b.Kind, "id", b.ID, "used", used, "limit", b.Amount)
	host.EmitEvent(ctx, typ, b.Project, sandbox, map[string]string{
		"budget": string(b.Kind), "limit": money.Text(b.Amount), "used": money.Text(used), "currency": m.o.Rates.Currency,
	})
	m.putting.Lock()
	defer m.putting.Unlock()
	m.mu.Lock()
	now := m.budgets[budgetID{b.Kind, b.ID}]
	changed := now == nil || now.Budget != b
	m.mu.Unlock()
	if changed {
		return
	}
	if err := m.o.Store.PutBudget(ctx, b); err != nil {
		m.log.Warn("the warning about a budget cannot be stored", "id", b.ID, "error", err)
	}
}

func (m *Meter) cost(c store.Counts) float64 { return m.o.Rates.Cost(usage(c)) }

// usage converts counts to the units of the API, without cost.
func usage(c store.Counts) bothy.Usage {
	return bothy.Usage{
		VCPUSeconds: float64(c[store.VCPU]) / 1e6, CPUSeconds: float64(c[store.CPU]) / 1e6,
		MemoryMBSeconds: float64(c[store.Memory]) / 1e3, EgressBytes: c[store.Egress], IngressBytes: c[store.Ingress],
		SnapshotMBSeconds: float64(c[store.Snapshots]) / 1e3, TemplateMBSeconds: float64(c[store.Templates]) / 1e3,
	}
}

// Trees returns the roots that have a budget.
func (m *Meter) Trees() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var roots []string
	for id := range m.budgets {
		if id.kind == store.BudgetTree {
			roots = append(roots, id.id)
		}
	}
	return roots
}
