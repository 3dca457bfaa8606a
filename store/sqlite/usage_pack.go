package sqlite

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"sort"
	"strings"

	"github.com/bothy-dev/bothy/store"
)

// A pack holds the records of one project and one stretch of time as columns, so
// that a question reads only what it asks about, and adds up millions of records
// in the time in which the database hands out thousands of rows.
//
// A column of words is
//
//	uint32 records, uint32 words, byte width, uint32 ends[words], text, ids[records]
//
// where the words are sorted and each id is width bytes. So ids compare as their
// words do. The column of counts is
//
//	uint32 records, byte widths[7], and for each meter counts[records]
//
// and 8 bytes of nothing, so that every count can be read as 8 bytes. All numbers
// are little-endian. What is stored ends with a CRC-32C of the rest.

// The parts of a pack, beside labelPart followed by the label's name.
const (
	partCounts   = "counts"
	partHour     = "hour"
	partTemplate = "template"
	partSandbox  = "sandbox"
	partLabel    = "label:"
)

var errBadPack = errors.New("a pack is damaged")

// words is a column of words; nil is one in which every word is "".
type words []byte

const wordsHead = 9

func (w words) records() int { return int(binary.LittleEndian.Uint32(w)) }
func (w words) len() int {
	if w == nil {
		return 1
	}
	return int(binary.LittleEndian.Uint32(w[4:]))
}

func (w words) end(i int) int {
	if i < 0 {
		return 0
	}
	return int(binary.LittleEndian.Uint32(w[wordsHead+4*i:]))
}

// bytes is the i-th word.
func (w words) bytes(i int) []byte {
	if w == nil {
		return nil
	}
	text := w[wordsHead+4*w.len():]
	return text[w.end(i-1):w.end(i)]
}

// ids are the column's words by record, width bytes each.
func (w words) ids() (ids []byte, width int) {
	n := w.len()
	return w[wordsHead+4*n+w.end(n-1):], int(w[8])
}

// id is which word a record has.
func (w words) id(record int) int {
	if w == nil {
		return 0
	}
	ids, width := w.ids()
	switch width {
	case 1:
		return int(ids[record])
	case 2:
		return int(binary.LittleEndian.Uint16(ids[2*record:]))
	}
	return int(binary.LittleEndian.Uint32(ids[4*record:]))
}

func (w words) of(record int) string { return string(w.bytes(w.id(record))) }

// search is where a word is, or would be.
func (w words) search(word string) (i int, found bool) {
	i = sort.Search(w.len(), func(i int) bool { return string(w.bytes(i)) >= word })
	return i, i < w.len() && string(w.bytes(i)) == word
}

func packWords(values []string) words {
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	sorted = slices.Compact(sorted)
	index := make(map[string]int, len(sorted))
	w := make(words, wordsHead, wordsHead+8*len(sorted)+4*len(values))
	binary.LittleEndian.PutUint32(w, uint32(len(values)))
	binary.LittleEndian.PutUint32(w[4:], uint32(len(sorted)))
	end := 0
	for i, word := range sorted {
		index[word] = i
		end += len(word)
		w = binary.LittleEndian.AppendUint32(w, uint32(end))
	}
	for _, word := range sorted {
		w = append(w, word...)
	}
	switch {
	case len(sorted) <= 1<<8:
		w[8] = 1
	case len(sorted) <= 1<<16:
		w[8] = 2
	default:
		w[8] = 4
	}
	for _, v := range values {
		w = binary.LittleEndian.AppendUint32(w, uint32(index[v]))
		w = w[:len(w)-4+int(w[8])]
	}
	return w
}

// counts is a column of counts.
type counts []byte

const (
	countsHead = 4 + len(store.Counts{})
	countsTail = 8
)

func (c counts) records() int { return int(binary.LittleEndian.Uint32(c)) }

// meter is where one meter's counts begin, how wide they are, and what to keep of
// 8 bytes that are read there.
type meter struct {
	at    int
	width int
	mask  uint64
}

func (c counts) meters() (list [len(store.Counts{})]meter) {
	at := countsHead
	for i := range list {
		width := int(c[4+i])
		list[i] = meter{at: at, width: width, mask: uint64(1)<<(8*width) - 1} // of 8 bytes all
		at += width * c.records()
	}
	return list
}

func packCounts(values []store.Counts) counts {
	c := make(counts, countsHead)
	binary.LittleEndian.PutUint32(c, uint32(len(values)))
	for i := range (store.Counts{}) {
		width := 0
		for _, v := range values {
			for width < 8 && uint64(v[i])>>(8*width) != 0 {
				width++
			}
		}
		c[4+i] = byte(width)
		for _, v := range values {
			c = binary.LittleEndian.AppendUint64(c, uint64(v[i]))
			c = c[:len(c)-8+width]
		}
	}
	return append(c, make([]byte, countsTail)...)
}

// pack is what a question needs of a pack: the parts that it does not ask for may
// be missing.
type pack struct {
	project string
	counts  counts
	// hours are since the pack's first; nil for a pack of days or months. In one
	// that is made of several days for a question they are days.
	hours     []byte
	templates words
	sandboxes words
	labels    map[string]words
}

// castagnoli is the polynomial that processors have an instruction for.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sealed is a part as it is stored: with its checksum.
func sealed(part []byte) []byte {
	return binary.LittleEndian.AppendUint32(slices.Clip(part), crc32.Checksum(part, castagnoli))
}

// set adds a part as it was stored.
func (p *pack) set(part string, data []byte) error {
	n := len(data) - 4
	if n < 0 || crc32.Checksum(data[:n], castagnoli) != binary.LittleEndian.Uint32(data[n:]) {
		return fmt.Errorf("%w: %s", errBadPack, part)
	}
	switch data = data[:n]; part {
	case partCounts:
		p.counts = data
	case partHour:
		p.hours = data
	case partTemplate:
		p.templates = data
	case partSandbox:
		p.sandboxes = data
	default:
		if p.labels == nil {
			p.labels = map[string]words{}
		}
		p.labels[strings.TrimPrefix(part, partLabel)] = data
	}
	return nil
}

// parts are all parts as they are stored.
func (p *pack) parts() map[string][]byte {
	m := map[string][]byte{partCounts: sealed(p.counts), partTemplate: sealed(p.templates), partSandbox: sealed(p.sandboxes)}
	if p.hours != nil {
		m[partHour] = sealed(p.hours)
	}
	for label, w := range p.labels {
		m[partLabel+label] = sealed(w)
	}
	return m
}

// packer collects records.
type packer struct {
	hours                []byte
	templates, sandboxes []string
	counts               []store.Counts
	labels               map[string][]string // shorter where the last records have none
	parsed               map[string]map[string]string
}

// add adds a record; hour is since the pack's first. labels is JSON or empty.
// What is nothing is left out.
func (p *packer) add(hour int64, template, sandbox, labels string, c store.Counts) error {
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
	for label, value := range values {
		if p.labels == nil {
			p.labels = map[string][]string{}
		}
		p.labels[label] = append(p.filled(label), value)
	}
	p.hours = append(p.hours, byte(hour))
	p.templates = append(p.templates, template)
	p.sandboxes = append(p.sandboxes, sandbox)
	p.counts = append(p.counts, c)
	return nil
}

// filled is a label's column up to the records that there are.
func (p *packer) filled(label string) []string {
	column := p.labels[label]
	return append(column, make([]string, len(p.counts)-len(column))...)
}

// pack packs what was added, or returns nil if that is nothing.
func (p *packer) pack(hours bool) *pack {
	if len(p.counts) == 0 {
		return nil
	}
	made := &pack{counts: packCounts(p.counts), templates: packWords(p.templates), sandboxes: packWords(p.sandboxes), labels: map[string]words{}}
	if hours {
		made.hours = p.hours
	}
	for label := range p.labels {
		made.labels[label] = packWords(p.filled(label))
	}
	return made
}
