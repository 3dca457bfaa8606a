package usage

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/bothy-dev/bothy/store"
)

// A page of a result is computed in one pass that keeps only groups that can be on it: those
// after the previous page, and before the last of the groups that already fill it.

// Groups collects the groups of a page.
type Groups struct {
	After *store.UsageGroup
	limit int // 0 means no limit
	index map[string]*group
	List  []*group
	// Last is the last group that can still be on the page; nil while it is not full.
	Last *store.UsageGroup

	name    []byte
	scanner scanner // reused for all packs
}

// group is a group with its sort key.
type group struct {
	name string
	store.UsageGroup
}

func NewGroups(q store.UsageQuery) *Groups {
	return &Groups{After: q.After, limit: q.Limit, index: map[string]*group{}}
}

// slack is how many surplus groups are kept before they are dropped.
const slack = 1024

// Add adds to a group, unless it cannot be on the page. It keeps of.Labels.
func (g *Groups) Add(of store.UsageGroup, c store.Counts) {
	if g.After != nil && store.CompareUsage(of, *g.After) <= 0 || g.Last != nil && store.CompareUsage(of, *g.Last) > 0 {
		return
	}
	g.name = nameOf(g.name[:0], of)
	if was, ok := g.index[string(g.name)]; ok {
		was.Counts.Add(c)
		return
	}
	if g.limit > 0 && len(g.List) >= 2*g.limit+slack {
		g.Tighten()
		if store.CompareUsage(of, *g.Last) > 0 {
			return
		}
	}
	of.Counts = c
	made := &group{string(g.name), of}
	g.index[made.name] = made
	g.List = append(g.List, made)
}

// nameOf appends a unique key of a group that sorts as the groups do.
func nameOf(b []byte, of store.UsageGroup) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(of.At))
	b = appendWord(appendWord(appendWord(b, of.Project), of.Sandbox), of.Template)
	for _, s := range of.Labels {
		b = appendWord(b, s)
	}
	return b
}

// appendWord appends a string with a terminator that sorts before every other byte.
func appendWord(b []byte, s string) []byte {
	for strings.IndexByte(s, 0) >= 0 {
		i := strings.IndexByte(s, 0)
		b, s = append(append(b, s[:i]...), 0, 1), s[i+1:]
	}
	return append(append(b, s...), 0, 0)
}

func (g *Groups) sort() {
	slices.SortFunc(g.List, func(a, b *group) int { return strings.Compare(a.name, b.name) })
}

// Tighten drops groups beyond the page, and reports whether the page is full.
func (g *Groups) Tighten() bool {
	if g.limit == 0 || len(g.List) < g.limit {
		return false
	}
	if len(g.List) == g.limit && g.Last != nil {
		return true
	}
	g.sort()
	for _, of := range g.List[g.limit:] {
		delete(g.index, of.name)
	}
	clear(g.List[g.limit:])
	g.List = g.List[:g.limit]
	g.Last = &g.List[g.limit-1].UsageGroup
	return true
}

// FullBefore reports whether nothing from a time on can be on the page.
func (g *Groups) FullBefore(at int64) bool {
	return g.Tighten() && g.Last.At < at
}

func (g *Groups) Page() []store.UsageGroup {
	g.sort()
	n := len(g.List)
	if g.limit > 0 {
		n = min(n, g.limit)
	}
	list := make([]store.UsageGroup, n)
	for i := range list {
		list[i] = g.List[i].UsageGroup
	}
	return list
}

// Stretch is the period queried in a pack, relative to its first hour or day if it has them.
type Stretch struct {
	From, To int64
	// At is the time of the groups, or of the first one if the period is split by hours or
	// days.
	At    int64
	Split bool
}

// Scan sums up a pack.
func (p *Pack) Scan(q store.UsageQuery, t Stretch, into *Groups) {
	s := &into.scanner
	s.p, s.n, s.q, s.t, s.first = p, p.counts.records(), q, t, s.first[:0]
	if !s.choose() {
		return
	}
	of := store.UsageGroup{At: t.At}
	if q.Project {
		of.Project = p.Project
	}
	s.rank(of, into)
	s.sum()
	for i, record := range s.first {
		into.Add(s.group(of, int(record)), s.sums[i])
	}
}

type scanner struct {
	p *Pack
	n int
	q store.UsageQuery
	t Stretch

	// records are the selected records, and ranks the ranks of their groups, in the order of
	// the groups; size is above the largest rank.
	records []int32
	ranks   []uint64
	size    uint64
	low     bound
	high    bound

	sums     []store.Counts
	first    []int32 // one record of each group
	numbered []int32 // the group of each record
	table    []int32
}

// cleared returns n zeros, reusing the slice if it is large enough.
func cleared[T any](s []T, n int) []T {
	s = slices.Grow(s[:0], n)[:n]
	clear(s)
	return s
}

// choose selects the records that match the query.
func (s *scanner) choose() bool {
	template, sandbox := -1, -1
	var ok bool
	if in := s.q.In.Template; in != "" {
		if template, ok = s.p.templates.search(in); !ok {
			return false
		}
	}
	if in := s.q.In.Sandbox; in != "" {
		if sandbox, ok = s.p.sandboxes.search(in); !ok {
			return false
		}
	}
	s.records = slices.Grow(s.records[:0], s.n)
	for i := range s.n {
		if s.p.hours != nil && (int64(s.p.hours[i]) < s.t.From || int64(s.p.hours[i]) >= s.t.To) ||
			template >= 0 && s.p.templates.id(i) != template || sandbox >= 0 && s.p.sandboxes.id(i) != sandbox {
			continue
		}
		s.records = append(s.records, int32(i))
	}
	return len(s.records) > 0
}

// rank ranks the records by their groups, and drops those that cannot be on the page.
func (s *scanner) rank(of store.UsageGroup, into *Groups) {
	s.ranks, s.size = cleared(s.ranks, len(s.records)), 1
	s.low, s.high = bound{exact: true}, bound{exact: true}
	if into.After == nil {
		s.low = bound{}
	}
	if into.Last == nil {
		s.high = bound{at: 1}
	}
	after, last := into.After, into.Last
	if after == nil {
		after = &of
	}
	if last == nil {
		last = &of
	}
	if s.t.Split {
		s.grow(spans, s.searchHour(after.At), s.searchHour(last.At))
		for i, r := range s.records {
			s.ranks[i] = uint64(s.p.hours[r])
		}
	} else {
		s.low.fix(cmp.Compare(after.At, of.At))
		s.high.fix(cmp.Compare(last.At, of.At))
	}
	s.low.fix(cmp.Compare(after.Project, of.Project))
	s.high.fix(cmp.Compare(last.Project, of.Project))
	if s.q.Sandbox {
		s.words(s.p.sandboxes, after.Sandbox, last.Sandbox)
	}
	if s.q.Template {
		s.words(s.p.templates, after.Template, last.Template)
	}
	for n, label := range s.q.Labels {
		var a, l string
		if n < len(after.Labels) {
			a = after.Labels[n]
		}
		if n < len(last.Labels) {
			l = last.Labels[n]
		}
		s.words(s.p.labels[label], a, l)
	}
	s.within()
}

// spans is above the number of hours or days in a pack.
const spans = 1 << 8

func (s *scanner) searchHour(at int64) place {
	switch h := at - s.t.At; {
	case h < 0:
		return place{}
	case h >= spans:
		return place{at: spans}
	default:
		return place{uint64(h), true}
	}
}

// place is the index of a value in a column, or where it would be.
type place struct {
	at    uint64
	found bool
}

// bound is a rank. If it is not exact, the group is not in the pack, and it is the next rank.
type bound struct {
	at    uint64
	exact bool
}

// next extends the rank by another column.
func (b *bound) next(size uint64, p place) {
	b.at *= size
	if b.exact {
		b.at, b.exact = b.at+p.at, p.found
	}
}

// fix is next for a column with a single value, given how the bound compares to it.
func (b *bound) fix(compared int) {
	switch {
	case compared < 0:
		b.next(1, place{})
	case compared > 0:
		b.next(1, place{at: 1})
	}
}

func (s *scanner) words(w words, after, last string) {
	if w == nil {
		s.low.fix(cmp.Compare(after, ""))
		s.high.fix(cmp.Compare(last, ""))
		return
	}
	where := func(word string) place {
		i, found := w.search(word)
		return place{uint64(i), found}
	}
	ids, width := w.ids()
	size := s.grow(uint64(w.len()), where(after), where(last))
	switch width {
	case 0:
		for i, r := range s.records {
			s.ranks[i] = s.ranks[i]*size + uint64(r)
		}
	case 1:
		for i, r := range s.records {
			s.ranks[i] = s.ranks[i]*size + uint64(ids[r])
		}
	case 2:
		for i, r := range s.records {
			s.ranks[i] = s.ranks[i]*size + uint64(binary.LittleEndian.Uint16(ids[2*r:]))
		}
	default:
		for i, r := range s.records {
			s.ranks[i] = s.ranks[i]*size + uint64(binary.LittleEndian.Uint32(ids[4*r:]))
		}
	}
}

// most is the largest possible rank.
const most = 1 << 62

// grow extends the ranks by a column of the given size.
func (s *scanner) grow(size uint64, after, last place) uint64 {
	if s.size > most/size {
		s.compactRanks()
	}
	s.size *= size
	s.low.next(size, after)
	s.high.next(size, last)
	return size
}

// compactRanks renumbers the ranks without gaps.
func (s *scanner) compactRanks() {
	used := slices.Clone(s.ranks)
	slices.Sort(used)
	used = slices.Compact(used)
	for i, r := range s.ranks {
		at, _ := slices.BinarySearch(used, r)
		s.ranks[i] = uint64(at)
	}
	for _, b := range []*bound{&s.low, &s.high} {
		at, found := slices.BinarySearch(used, b.at)
		b.at, b.exact = uint64(at), b.exact && found
	}
	s.size = uint64(len(used))
}

// within drops the records outside the bounds.
func (s *scanner) within() {
	low, high := s.low.at, s.high.at // not included
	if s.low.exact {
		low++
	}
	if s.high.exact {
		high++
	}
	if low == 0 && high >= s.size {
		return
	}
	n := 0
	for i, r := range s.ranks {
		if r >= low && r < high {
			s.ranks[n], s.records[n] = r, s.records[i]
			n++
		}
	}
	s.ranks, s.records = s.ranks[:n], s.records[:n]
}

// sum sums up the records of each rank.
func (s *scanner) sum() {
	group := s.numbers()
	s.sums = cleared(s.sums, len(s.first))
	for m, at := range s.p.counts.meters() {
		if at.width == 0 && at.least == 0 {
			continue
		}
		for i, r := range s.records {
			s.sums[group[i]][m] += at.least + int64(binary.LittleEndian.Uint64(s.p.counts[at.at+at.width*int(r):])&at.mask)
		}
	}
}

// numbers returns the group index of each record.
func (s *scanner) numbers() []int32 {
	s.numbered = cleared(s.numbered, len(s.records))
	group := s.numbered
	number := func(i int, of *int32) {
		if *of == 0 {
			s.first = append(s.first, s.records[i])
			*of = int32(len(s.first)) // index plus one
		}
		group[i] = *of - 1
	}
	if s.size <= uint64(4*len(s.records)) {
		s.table = cleared(s.table, int(s.size))
		table := s.table
		for i, r := range s.ranks {
			number(i, &table[r])
		}
		return group
	}
	table := make(map[uint64]int32, len(s.records))
	for i, r := range s.ranks {
		n := table[r]
		if n == 0 {
			number(i, &n)
			table[r] = n
		}
		group[i] = n - 1
	}
	return group
}

// group returns the group of a record.
func (s *scanner) group(of store.UsageGroup, record int) store.UsageGroup {
	if s.t.Split {
		of.At += int64(s.p.hours[record])
	}
	if s.q.Template {
		of.Template = s.p.templates.of(record)
	}
	if s.q.Sandbox {
		of.Sandbox = s.p.sandboxes.of(record)
	}
	if len(s.q.Labels) > 0 {
		of.Labels = make([]string, len(s.q.Labels))
		for n, label := range s.q.Labels {
			of.Labels[n] = s.p.labels[label].of(record)
		}
	}
	return of
}

// Within drops projects that cannot be on the page.
func (g *Groups) Within(q store.UsageQuery, projects []string) []string {
	if !q.Project || q.Day || q.Hour {
		return projects
	}
	return slices.DeleteFunc(slices.Clone(projects), func(p string) bool {
		return g.After != nil && p < g.After.Project || g.Last != nil && p > g.Last.Project
	})
}
