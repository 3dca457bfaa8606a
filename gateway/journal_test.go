package gateway

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

func newJournals(t *testing.T) (*Journals, string) {
	dir := filepath.Join(t.TempDir(), "network")
	j, err := OpenJournals(dir)
	if err != nil {
		t.Fatal(err)
	}
	return j, dir
}

func TestLogAndCountersSurviveTheGateway(t *testing.T) {
	journals, _ := newJournals(t)
	var counted bothy.NetworkCounters
	for round := range 3 {
		l := newLab(t, func(o *Options) { o.Journal = journals.Open("sbx1") })
		if got := l.gateway.Counters(); got != counted {
			t.Fatalf("round %d starts with the counters %+v, want %+v", round, got, counted)
		}
		if n := len(l.gateway.Log(time.Time{})); n != round*3 {
			t.Fatalf("round %d starts with %d lines", round, n)
		}
		l.net.serve("5.6.7.8:9000", echo)
		l.policy(open)
		c := l.mustDial("5.6.7.8:9000")
		if err := ping(c, "hello"); err != nil {
			t.Fatal(err)
		}
		c.Close()
		eventually(t, "the connection ends", func() bool { return len(l.gateway.Log(time.Time{})) == round*3+2 })
		if _, err := l.dial("10.1.2.3:80"); err == nil {
			t.Fatal("a private address was reached")
		}
		counted = l.gateway.Counters()
		if err := l.gateway.Close(); err != nil {
			t.Fatal(err)
		}
		lines, err := journals.Read("sbx1")
		if err != nil || len(lines) != (round+1)*3 {
			t.Fatalf("after round %d: %d lines, %v", round, len(lines), err)
		}
		last := lines[len(lines)-1]
		if last.Address != "10.1.2.3" || last.Allowed || last.Reason == "" {
			t.Errorf("the last line is %+v", last)
		}
	}
	if counted.EgressBytes != 15 || counted.IngressBytes != 15 {
		t.Errorf("the counters are %+v after three times five bytes each way", counted)
	}
	if lines, err := journals.Read("sbx2"); err != nil || lines != nil {
		t.Errorf("another sandbox: %v, %v", lines, err)
	}
}

// The counters are written while a connection is open, so that a server that is killed loses little
// of them.
func TestCountersAreWrittenWhileConnectionsAreOpen(t *testing.T) {
	journals, _ := newJournals(t)
	clock := newManualClock()
	l := newLab(t, func(o *Options) { o.Clock, o.Journal = clock, journals.Open("sbx") })
	l.net.serve("5.6.7.8:9000", echo)
	l.policy(open)
	c := l.mustDial("5.6.7.8:9000")
	if err := ping(c, "hello"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the counters are on disk", func() bool {
		clock.advance(countEvery)
		_, counts, err := journals.Open("sbx").load()
		return err == nil && counts == bothy.NetworkCounters{EgressBytes: 5, IngressBytes: 5}
	})
}

func TestJournalIsBounded(t *testing.T) {
	journals, dir := newJournals(t)
	j := journals.Open("sbx")
	if err := j.count(bothy.NetworkCounters{EgressBytes: 7}); err != nil {
		t.Fatal(err)
	}
	const lines = 5000
	for i := range lines {
		err := j.record(bothy.NetworkDecision{Time: time.Unix(int64(i), 0), Protocol: "tcp", Reason: strings.Repeat("x", 100)})
		if err != nil {
			t.Fatal(err)
		}
	}
	var size int64
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		info, _ := e.Info()
		size += info.Size()
	}
	if len(entries) != 2 || size > 2*segmentSize+1024 {
		t.Errorf("%d files have %d bytes", len(entries), size)
	}
	got, counts, err := j.load()
	if err != nil || len(got) < 500 || len(got) > logSize || !got[len(got)-1].Time.Equal(time.Unix(lines-1, 0)) {
		t.Errorf("%d lines are read, %v", len(got), err)
	}
	if counts.EgressBytes != 7 {
		t.Errorf("the counters were lost with the old file: %+v", counts)
	}
}

func TestTornLineIsLeftOut(t *testing.T) {
	journals, dir := newJournals(t)
	for i := range 2 {
		j := journals.Open("sbx")
		if err := j.record(bothy.NetworkDecision{Protocol: "tcp", Port: uint16(i + 1)}); err != nil {
			t.Fatal(err)
		}
		j.close()
		f, err := os.OpenFile(filepath.Join(dir, "sbx.jsonl"), os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(f, `{"time":"2026-`)
		f.Close()
	}
	lines, err := journals.Read("sbx")
	if err != nil || len(lines) != 2 || lines[0].Port != 1 || lines[1].Port != 2 {
		t.Errorf("read %+v, %v", lines, err)
	}
}

func TestSweepRemovesJournalsOfOldSandboxes(t *testing.T) {
	journals, dir := newJournals(t)
	for _, id := range []string{"stays", "goes"} {
		j := journals.Open(id)
		for range 2 * segmentSize / 200 {
			_ = j.record(bothy.NetworkDecision{Reason: string(bytes.Repeat([]byte("y"), 200))})
		}
		j.close()
	}
	if err := journals.Sweep(func(id string) bool { return id == "stays" }); err != nil {
		t.Fatal(err)
	}
	entries, _ := os.ReadDir(dir)
	if len(entries) != 2 || !strings.HasPrefix(entries[0].Name(), "stays.") || !strings.HasPrefix(entries[1].Name(), "stays.") {
		t.Errorf("left: %v", entries)
	}
}

// The network works even if the disk cannot be written.
func TestUnwritableJournalDoesNotStopTheNetwork(t *testing.T) {
	journals, dir := newJournals(t)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	l := newLab(t, func(o *Options) { o.Journal = journals.Open("sbx") })
	l.net.serve("5.6.7.8:9000", echo)
	l.policy(open)
	for i := range 3 {
		if err := ping(l.mustDial("5.6.7.8:9000"), fmt.Sprint("hello ", i)); err != nil {
			t.Fatal(err)
		}
	}
}
