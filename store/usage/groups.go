package usage

import (
	"encoding/binary"
	"slices"

	"github.com/bothy-dev/bothy/store"
)

// groups collects the groups of a page: only those that can be on it, which are after the
// previous page, and not after the last of those that already fill it.
type groups struct {
	after *store.UsageGroup
	limit int // 0 means no limit
	index map[string]*store.UsageGroup
	list  []*store.UsageGroup
	// last is the last group that can still be on the page; nil while it is not full.
	last *store.UsageGroup
	name []byte
}

func newGroups(q store.UsageQuery) *groups {
	return &groups{after: q.After, limit: q.Limit, index: map[string]*store.UsageGroup{}}
}

// slack is how many surplus groups are kept before they are dropped.
const slack = 1024

// add adds to a group, unless it cannot be on the page.
func (g *groups) add(of store.UsageGroup) {
	if g.after != nil && store.CompareUsage(of, *g.after) <= 0 || g.last != nil && store.CompareUsage(of, *g.last) > 0 {
		return
	}
	g.name = appendName(g.name[:0], of)
	if was, ok := g.index[string(g.name)]; ok {
		was.Counts.Add(of.Counts)
		return
	}
	g.index[string(g.name)] = &of
	g.list = append(g.list, &of)
	if len(g.list) > 2*g.limit+slack {
		g.tighten()
	}
}

// appendName appends what identifies a group.
func appendName(b []byte, of store.UsageGroup) []byte {
	b = binary.AppendVarint(b, of.At)
	for _, w := range append([]string{of.Project, of.Sandbox, of.Template}, of.Labels...) {
		b = append(binary.AppendUvarint(b, uint64(len(w))), w...)
	}
	return b
}

func (g *groups) sort() {
	slices.SortFunc(g.list, func(a, b *store.UsageGroup) int { return store.CompareUsage(*a, *b) })
}

// tighten drops groups beyond the page, and reports whether the page is full.
func (g *groups) tighten() bool {
	if g.limit == 0 || len(g.list) < g.limit {
		return false
	}
	g.sort()
	for _, of := range g.list[g.limit:] {
		delete(g.index, string(appendName(nil, *of)))
	}
	clear(g.list[g.limit:])
	g.list = g.list[:g.limit]
	g.last = g.list[g.limit-1]
	return true
}

// fullBefore reports whether nothing from a time on can be on the page.
func (g *groups) fullBefore(at int64) bool { return g.tighten() && g.last.At < at }

func (g *groups) page() []store.UsageGroup {
	g.sort()
	n := len(g.list)
	if g.limit > 0 {
		n = min(n, g.limit)
	}
	page := make([]store.UsageGroup, n)
	for i := range page {
		page[i] = *g.list[i]
	}
	return page
}
