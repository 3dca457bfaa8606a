package metering

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

var _ bothy.UsageService = (*Meter)(nil)

const (
	defaultLimit = 1000
	maxLimit     = 10000
	// maxHours bounds the time range of a query, and maxHourly that of one by the hour.
	maxHours  = 20 * 366 * 24
	maxHourly = 366 * 24
	// fresh is how old an answer may be. Otherwise usage is counted again.
	fresh = time.Second
	// maxAt is more than the hours of any group's time.
	maxAt = 1 << 32
	// maxAsking bounds the concurrent queries. A project has one of them at most, so that the
	// others take turns with it.
	maxAsking = 2
	// costDigits is the precision to which a cost is rounded: a billionth.
	costDigits = 1e9
)

// Usage implements bothy.UsageService.
func (m *Meter) Usage(ctx context.Context, q bothy.UsageQuery) (*bothy.UsageReport, error) {
	caller, err := bothy.Require(ctx, bothy.ScopeSandboxesRead)
	if err != nil {
		return nil, err
	}
	if q.Project, err = m.visible(ctx, caller, q.Project); err != nil {
		return nil, err
	}
	sq, err := m.query(&q)
	if err != nil {
		return nil, err
	}
	if sq.After, err = parseCursor(q.Cursor, sq); err != nil {
		return nil, err
	}
	m.freshen(context.WithoutCancel(ctx))
	limit := cmp.Or(q.Limit, defaultLimit)
	sq.Limit = limit + 1 // to see whether this is the last page
	unlock, err := m.turns.LockIn(ctx, caller.ProjectID)
	if err != nil {
		return nil, err
	}
	defer unlock()
	found, total, err := m.ask(ctx, m.wholeMonths(sq))
	if err != nil {
		return nil, err
	}
	r := &bothy.UsageReport{
		From: time.Unix(sq.From*3600, 0).UTC(), To: time.Unix(sq.To*3600, 0).UTC(), GroupBy: q.GroupBy,
		Currency: m.o.Rates.Currency, Items: []bothy.UsageItem{}, Total: m.priced(total),
	}
	m.mu.Lock()
	r.AsOf = m.written.Wall
	m.mu.Unlock()
	if len(found) > limit {
		found = found[:limit]
		r.NextCursor = cursorOf(found[limit-1])
	}
	for _, g := range found {
		r.Items = append(r.Items, m.item(g, sq))
	}
	return r, nil
}

// ask waits for its turn, and queries the store for a page and the grand total.
func (m *Meter) ask(ctx context.Context, q store.UsageQuery) (found []store.UsageGroup, total store.Counts, err error) {
	select {
	case m.asking <- struct{}{}:
	case <-ctx.Done():
		return nil, total, ctx.Err()
	}
	defer func() { <-m.asking }()
	if found, err = m.o.Store.QueryUsage(ctx, q); err != nil {
		return nil, total, err
	}
	all := found
	if q.After != nil || len(found) == q.Limit {
		if all, err = m.o.Store.QueryUsage(ctx, store.UsageQuery{From: q.From, To: q.To, In: q.In}); err != nil {
			return nil, total, err
		}
	}
	for _, g := range all {
		total.Add(g.Counts)
	}
	return found, total, nil
}

// visible returns the project that the caller may query; "" means all.
func (m *Meter) visible(ctx context.Context, caller *bothy.Caller, asked string) (string, error) {
	operator := caller.IsOperator() && caller.Can(bothy.ScopeAdmin)
	switch {
	case operator && asked != "":
		return asked, m.o.Project(ctx, asked)
	case operator:
		return "", nil
	case asked == "" || asked == caller.ProjectID:
		return caller.ProjectID, nil
	}
	return "", bothy.Errorf(bothy.CodeProjectNotFound, "there is no project %q", asked).
		WithHint("Leave project out for your own.")
}

// query checks a query, fills in its defaults, and converts it to the store's.
func (m *Meter) query(q *bothy.UsageQuery) (sq store.UsageQuery, err error) {
	now := m.now().Wall
	if q.To.IsZero() {
		q.To = now
	}
	if q.From.IsZero() {
		q.From = monthOf(q.To)
	}
	sq.From, sq.To = hourOf(q.From), hourOf(q.To.Add(time.Hour-1))
	switch hours := sq.To - sq.From; {
	case q.To.Before(q.From):
		return sq, invalid("to, %s, is before from, %s", q.To.Format(time.RFC3339), q.From.Format(time.RFC3339)).WithHint("Swap them.")
	case hours > maxHours:
		return sq, invalid("from %s to %s is too long", q.From.Format(time.RFC3339), q.To.Format(time.RFC3339)).WithHint("Ask for 20 years at most.")
	case hours > maxHourly && slices.Contains(q.GroupBy, bothy.UsageByHour):
		return sq, invalid("from %s to %s is too long, by the hour", q.From.Format(time.RFC3339), q.To.Format(time.RFC3339)).
			WithHint("Ask for a year at most, or group by day.")
	}
	if q.Limit < 0 || q.Limit > maxLimit {
		return sq, invalid("limit is %d", q.Limit).WithHint("Give a value from 1 to %d.", maxLimit)
	}
	if len(q.GroupBy) == 0 {
		q.GroupBy = []string{bothy.UsageByDay}
	}
	sq.In = store.UsageKey{Project: q.Project, Template: q.Template, Sandbox: q.Sandbox}
	return sq, groupBy(&sq, q.GroupBy)
}

// wholeMonths extends a query that reaches up to now to the end of the month, where nothing is
// yet: months are already added up, hours are not.
func (m *Meter) wholeMonths(q store.UsageQuery) store.UsageQuery {
	now := m.now().Wall
	if q.To > hourOf(now) {
		q.To = max(q.To, hourOf(monthOf(now).AddDate(0, 1, 0)))
	}
	return q
}

// maxLabels bounds the labels of one query.
const maxLabels = 4

func groupBy(sq *store.UsageQuery, words []string) error {
	seen := map[string]bool{}
	for _, word := range words {
		if seen[word] {
			return badGroup(word, "is there twice")
		}
		seen[word] = true
		switch word {
		case bothy.UsageByDay:
			sq.Day = true
		case bothy.UsageByHour:
			sq.Hour = true
		case bothy.UsageByProject:
			sq.Project = true
		case bothy.UsageByTemplate:
			sq.Template = true
		case bothy.UsageBySandbox:
			sq.Sandbox = true
		default:
			label, ok := strings.CutPrefix(word, bothy.UsageByLabel)
			if !ok || label == "" {
				return badGroup(word, "is not one of them")
			}
			if sq.Labels = append(sq.Labels, label); len(sq.Labels) > maxLabels {
				return badGroup(word, "is one label too many")
			}
		}
	}
	if sq.Day && sq.Hour {
		return badGroup(bothy.UsageByDay, "and hour exclude each other")
	}
	return nil
}

func badGroup(word, why string) error {
	return invalid("group_by: %q %s", word, why).
		WithHint("Give a list of day or hour, project, template, sandbox, and label:KEY for a key of the metadata.")
}

func invalid(format string, args ...any) *bothy.Error {
	return bothy.Errorf(bothy.CodeInvalid, format, args...)
}

// cursorOf encodes the last group of a page: its time, project, template, sandbox and labels.
func cursorOf(g store.UsageGroup) string {
	b, _ := json.Marshal(append([]string{strconv.FormatInt(g.At, 10), g.Project, g.Template, g.Sandbox}, g.Labels...)) // strings can always be encoded
	return base64.RawURLEncoding.EncodeToString(b)
}

// parseCursor decodes that group; nil for the first page.
func parseCursor(cursor string, q store.UsageQuery) (*store.UsageGroup, error) {
	if cursor == "" {
		return nil, nil
	}
	var words []string
	var at int64
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil {
		err = json.Unmarshal(b, &words)
	}
	if err == nil && len(words) == 4+len(q.Labels) {
		if at, err = strconv.ParseInt(words[0], 10, 64); err == nil && (at >= 0 && at <= maxAt) {
			return &store.UsageGroup{At: at, Project: words[1], Template: words[2], Sandbox: words[3], Labels: words[4:]}, nil
		}
	}
	return nil, invalid("the cursor %q is not one that an answer to this question held", cursor).
		WithHint("Pass the next_cursor of the page before, unchanged and with the same question, or leave it out to start at the first page.")
}

// freshen counts and writes usage since the last time.
func (m *Meter) freshen(ctx context.Context) {
	now := m.now()
	m.mu.Lock()
	old := elapsed(m.written, now) >= fresh
	m.mu.Unlock()
	if !old {
		return
	}
	now = m.countAll(ctx)
	if m.flush(ctx) == nil {
		m.hasWritten(now)
	}
}

func (m *Meter) priced(c store.Counts) bothy.Usage {
	u := usage(c)
	u.Cost = math.Round(m.o.Rates.Cost(u)*costDigits) / costDigits
	return u
}

func (m *Meter) item(g store.UsageGroup, q store.UsageQuery) bothy.UsageItem {
	i := bothy.UsageItem{Project: g.Project, Template: g.Template, Sandbox: g.Sandbox, Usage: m.priced(g.Counts)}
	switch {
	case q.Hour:
		i.Hour = time.Unix(g.At*3600, 0).UTC().Format(time.RFC3339)
	case q.Day:
		i.Day = time.Unix(g.At*24*3600, 0).UTC().Format(time.DateOnly)
	}
	for n, label := range q.Labels {
		if i.Labels == nil {
			i.Labels = map[string]string{}
		}
		i.Labels[label] = g.Labels[n]
	}
	return i
}
