// Package usage stores usage in packs: columnar blocks for one project and one period. A query
// reads only the columns that it needs, so summing up millions of records takes as long as
// reading thousands of rows from the database.
//
// Usage is first written as rows: amounts of each meter by hour and key (project, template,
// sandbox, labels). Rows are authoritative. Once a period is over, packs are made from them, by
// day for hours and by month for days. A damaged or missing pack is rebuilt, and queries use
// the rows meanwhile. Package store/sqlite stores rows and packs, and decides which to use.
//
// A result is a page of groups in order. It is computed in one pass over the packs that keeps
// only the groups that can still be on the page.
package usage

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"sort"
	"strings"

	"github.com/bothy-dev/bothy/store"
)

// A pack contains the records of one project and one period as columns. The formats are as
// follows.
//
// A column of words (strings) is
//
//  	uint32 records, uint32 words, byte id width, byte end width, ends[words], text, ids[records]
//
// where the words are sorted, so that ids compare as their words do. An id width of 0 means
// that each record's id is its index. An end width of 0 means that all words have the same
// length, which is given by a single end of 4 bytes. A column of counts is
//
//  	uint32 records, {byte width, uint64 least}[7], and for each meter counts[records]
//
// where each count is relative to least. It is followed by 8 zero bytes, so that every count
// can be read as 8 bytes. All numbers are little-endian. A stored part ends with a CRC-32C of
// the rest. The counts and all small columns are stored together.

// The parts of a pack, besides PartLabel followed by the label's name.
const (
	PartCounts   = "counts"
	PartHour     = "hour"
	PartTemplate = "template"
	PartSandbox  = "sandbox"
	PartLabel    = "label:"
)

// words is a column of strings; nil is a column of empty strings.
type words []byte

const wordsHead = 10

func (w words) len() int {
	if w == nil {
		return 1
	}
	return int(binary.LittleEndian.Uint32(w[4:]))
}

// number reads a number of width 1, 2 or 4.
func number(b []byte, width, i int) int {
	switch width {
	case 1:
		return int(b[i])
	case 2:
		return int(binary.LittleEndian.Uint16(b[2*i:]))
	}
	return int(binary.LittleEndian.Uint32(b[4*i:]))
}

func appendNumber(b []byte, width, n int) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(n))
	return b[:len(b)-4+width]
}

// widthOf is the width needed for numbers up to n.
func widthOf(n int) int {
	switch {
	case n < 1<<8:
		return 1
	case n < 1<<16:
		return 2
	}
	return 4
}

// text is the offset and length of the text.
func (w words) text() (at, length int) {
	n, width := w.len(), int(w[9])
	if width == 0 {
		return wordsHead + 4, n * number(w[wordsHead:], 4, 0)
	}
	return wordsHead + width*n, number(w[wordsHead:], width, n-1)
}

// bytes is the i-th word.
func (w words) bytes(i int) []byte {
	if w == nil {
		return nil
	}
	at, _ := w.text()
	width := int(w[9])
	if width == 0 {
		length := number(w[wordsHead:], 4, 0)
		return w[at+i*length : at+(i+1)*length]
	}
	from := 0
	if i > 0 {
		from = number(w[wordsHead:], width, i-1)
	}
	return w[at+from : at+number(w[wordsHead:], width, i)]
}

// ids are the ids of all records, width bytes each.
func (w words) ids() (ids []byte, width int) {
	at, length := w.text()
	return w[at+length:], int(w[8])
}

// id is the index of a record's word.
func (w words) id(record int) int {
	if w == nil {
		return 0
	}
	ids, width := w.ids()
	if width == 0 {
		return record
	}
	return number(ids, width, record)
}

func (w words) of(record int) string { return string(w.bytes(w.id(record))) }

// search returns the index of a word, or where it would be inserted.
func (w words) search(word string) (i int, found bool) {
	i = sort.Search(w.len(), func(i int) bool { return string(w.bytes(i)) >= word })
	return i, i < w.len() && string(w.bytes(i)) == word
}

func packWords(values []string) words {
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	sorted = slices.Compact(sorted)
	w := make(words, wordsHead)
	binary.LittleEndian.PutUint32(w, uint32(len(values)))
	binary.LittleEndian.PutUint32(w[4:], uint32(len(sorted)))
	length, alike := 0, true
	for _, word := range sorted {
		length += len(word)
		alike = alike && len(word) == len(sorted[0])
	}
	if alike {
		w = appendNumber(w, 4, len(sorted[0]))
	} else {
		width, end := widthOf(length), 0
		w[9] = byte(width)
		for _, word := range sorted {
			end += len(word)
			w = appendNumber(w, width, end)
		}
	}
	for _, word := range sorted {
		w = append(w, word...)
	}
	if slices.Equal(sorted, values) {
		return w
	}
	width := widthOf(len(sorted) - 1)
	w[8] = byte(width)
	for _, v := range values {
		i, _ := slices.BinarySearch(sorted, v)
		w = appendNumber(w, width, i)
	}
	return w
}

// counts is a column of counts.
type counts []byte

const (
	countsHead = 4 + 9*len(store.Counts{})
	countsTail = 8
)

func (c counts) records() int { return int(binary.LittleEndian.Uint32(c)) }

// meter describes one meter's counts: their offset and width, the mask for 8 bytes read there,
// and the amount to add.
type meter struct {
	at, width int
	mask      uint64
	least     int64
}

func (c counts) meters() (list [len(store.Counts{})]meter) {
	at := countsHead
	for i := range list {
		width := int(c[4+9*i])
		list[i] = meter{at, width, uint64(1)<<(8*width) - 1, int64(binary.LittleEndian.Uint64(c[5+9*i:]))} // a shift by 64 gives 0, so the mask has all bits set
		at += width * c.records()
	}
	return list
}

func packCounts(values []store.Counts) counts {
	c := make(counts, countsHead)
	binary.LittleEndian.PutUint32(c, uint32(len(values)))
	for i := range (store.Counts{}) {
		least, width := values[0][i], 0
		for _, v := range values {
			least = min(least, v[i])
		}
		for _, v := range values {
			for width < 8 && uint64(v[i]-least)>>(8*width) != 0 {
				width++
			}
		}
		c[4+9*i] = byte(width)
		binary.LittleEndian.PutUint64(c[5+9*i:], uint64(least))
		for _, v := range values {
			c = binary.LittleEndian.AppendUint64(c, uint64(v[i]-least))
			c = c[:len(c)-8+width]
		}
	}
	return append(c, make([]byte, countsTail)...)
}

// Pack holds the parts of a pack that a query needs; others may be missing.
type Pack struct {
	Project string
	counts  counts
	// hours are relative to the pack's first; nil for packs of days or months. In a pack merged
	// from several days for one query, they are days.
	hours     []byte
	templates words
	sandboxes words
	labels    map[string]words
}

// castagnoli is the polynomial with hardware support.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sealed is a part with its checksum, as stored.
func sealed(part []byte) []byte {
	return binary.LittleEndian.AppendUint32(slices.Clip(part), crc32.Checksum(part, castagnoli))
}

// Set adds a stored part, and reports whether its checksum is correct.
func (p *Pack) Set(part string, data []byte) bool {
	n := len(data) - 4
	if n < 0 || crc32.Checksum(data[:n], castagnoli) != binary.LittleEndian.Uint32(data[n:]) {
		return false
	}
	if data = data[:n]; part != PartCounts {
		return p.column(part, data)
	}
	// The counts, and columns so small that always reading them is cheaper:
	// {uint32 bytes, byte length of the name, name, column}.
	for len(data) > 5 {
		size, name := int(binary.LittleEndian.Uint32(data)), int(data[4])
		if data = data[5:]; name+size > len(data) || !p.column(string(data[:name]), data[name:name+size:name+size]) {
			return false
		}
		data = data[name+size:]
	}
	return len(data) == 0
}

func (p *Pack) column(part string, data []byte) bool {
	switch part {
	case PartCounts:
		p.counts = data
		return len(data) >= countsHead+countsTail
	case PartHour:
		p.hours = data
		return true
	case PartTemplate:
		p.templates = data
	case PartSandbox:
		p.sandboxes = data
	default:
		if p.labels == nil {
			p.labels = map[string]words{}
		}
		p.labels[strings.TrimPrefix(part, PartLabel)] = data
	}
	return len(data) > wordsHead
}

// Lacks reports whether parts that the query needs are missing.
func (p *Pack) Lacks(q store.UsageQuery, hours bool) bool {
	return p.counts == nil || hours && p.hours == nil || p.templates == nil && (q.Template || q.In.Template != "") ||
		p.sandboxes == nil && (q.Sandbox || q.In.Sandbox != "")
}

// smallColumn is the size in bytes per record up to which a column is stored with the counts.
const smallColumn = 2

// Parts returns all parts as they are stored.
func (p *Pack) Parts() map[string][]byte {
	columns := map[string][]byte{PartCounts: p.counts, PartTemplate: p.templates, PartSandbox: p.sandboxes}
	if p.hours != nil {
		columns[PartHour] = p.hours
	}
	for label, w := range p.labels {
		columns[PartLabel+label] = w
	}
	stored := map[string][]byte{}
	var first []byte
	for _, part := range slices.Sorted(maps.Keys(columns)) {
		data := columns[part]
		if part != PartCounts && (len(data) > smallColumn*p.counts.records()+chunkRecords || len(part) > 255) {
			stored[part] = sealed(data)
			continue
		}
		first = append(binary.LittleEndian.AppendUint32(first, uint32(len(data))), byte(len(part)))
		first = append(append(first, part...), data...)
	}
	stored[PartCounts] = sealed(first)
	return stored
}

// Record is an input of a pack.
type Record struct {
	hour              byte // relative to the pack's first
	template, Sandbox string
	labels            map[string]string
	store.Counts
}

// Packer collects records.
type Packer struct {
	Records []Record
	parsed  map[string]map[string]string
}

// Add adds a record; hour is relative to the pack's first, and labels is JSON or empty. Records
// without usage are skipped.
func (p *Packer) Add(hour int64, template, sandbox, labels string, c store.Counts) error {
	if c == (store.Counts{}) {
		return nil
	}
	values, ok := p.parsed[labels]
	if !ok && labels != "" {
		if err := json.Unmarshal([]byte(labels), &values); err != nil {
			return fmt.Errorf("the labels of %s: %w", sandbox, err)
		}
		if p.parsed == nil {
			p.parsed = map[string]map[string]string{}
		}
		p.parsed[labels] = values
	}
	p.Records = append(p.Records, Record{byte(hour), template, sandbox, values, c})
	return nil
}

// PackRecords packs records, or returns nil if there are none.
func PackRecords(project string, records []Record, hours bool) *Pack {
	if len(records) == 0 {
		return nil
	}
	p := &Pack{Project: project, labels: map[string]words{}}
	column := func(of func(*Record) string) words {
		values := make([]string, len(records))
		for i := range records {
			values[i] = of(&records[i])
		}
		return packWords(values)
	}
	values := make([]store.Counts, len(records))
	for i, r := range records {
		values[i] = r.Counts
		if hours {
			p.hours = append(p.hours, r.hour)
		}
	}
	p.counts = packCounts(values)
	p.templates = column(func(r *Record) string { return r.template })
	p.sandboxes = column(func(r *Record) string { return r.Sandbox })
	for label := range labelsOf(records) {
		p.labels[label] = column(func(r *Record) string { return r.labels[label] })
	}
	return p
}

// labelsOf returns the values of each label.
func labelsOf(records []Record) map[string]map[string]bool {
	found := map[string]map[string]bool{}
	for _, r := range records {
		for label, value := range r.labels {
			if found[label] == nil {
				found[label] = map[string]bool{}
			}
			found[label][value] = true
		}
	}
	return found
}

// chunkRecords is the number of records in a chunk of a pack. Larger parts would make the
// database's driver allocate memory from the system each time.
const chunkRecords = 768

// Chunks divides the records of days and months by sandbox, so that one sandbox's are found
// without reading the others.
func Chunks(records []Record) [][]Record {
	slices.SortFunc(records, func(a, b Record) int { return strings.Compare(a.Sandbox, b.Sandbox) })
	return slices.Collect(slices.Chunk(records, chunkRecords))
}

// Digest sums up records that differ only in high-cardinality fields: the sandbox, and the
// labels returned in left.
func Digest(records []Record) (sums []Record, left []string) {
	kept := map[string]bool{}
	for label, values := range labelsOf(records) {
		if kept[label] = 8*len(values) <= len(records); !kept[label] {
			left = append(left, label)
		}
	}
	names := slices.Sorted(maps.Keys(kept))
	index := map[string]int{}
	for _, r := range records {
		name := appendWord(nil, r.template)
		sum := Record{template: r.template, labels: map[string]string{}}
		for _, label := range names {
			if value, has := r.labels[label]; has && kept[label] {
				name = appendWord(appendWord(name, label), value)
				sum.labels[label] = value
			}
		}
		i, ok := index[string(name)]
		if !ok {
			i = len(sums)
			index[string(name)], sums = i, append(sums, sum)
		}
		sums[i].Add(r.Counts)
	}
	return sums, left
}
