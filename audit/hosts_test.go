package audit_test

import (
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/audit"
	"github.com/bothy-dev/bothy/store/postgres"
	"github.com/bothy-dev/bothy/store/postgres/pgtest"
)

// The hosts of a cluster write one chain. Concurrent records are neither lost nor written twice, and the
// chain is valid, whichever host checks it.
func TestHostsWriteOneChain(t *testing.T) {
	url := pgtest.ForTest(t).Database(t)
	var logs []*audit.Log
	for _, name := range []string{"one", "two", "three"} {
		s, err := postgres.Open(t.Context(), url, postgres.WithMember(postgres.Member{Name: name, Address: name + ":7710"}), postgres.WithHome(name), postgres.WithHolder(name))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		l, err := audit.Open(t.Context(), s, audit.Options{Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		logs = append(logs, l)
	}
	const writers, each = 4, 100
	var wg sync.WaitGroup
	for h, l := range logs {
		for w := range writers {
			wg.Go(func() {
				for i := range each {
					l.Record(bothy.AuditRecord{Time: time.Now(), ProjectID: "default", TokenID: "tok_a", Action: "exec", RequestID: fmt.Sprint(h, "-", w, "-", i), Status: 200})
				}
			})
		}
	}
	wg.Wait()
	for _, l := range logs {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s, err := postgres.Open(t.Context(), url, postgres.WithMember(postgres.Member{Name: "four", Address: "four:7710"}), postgres.WithHome("four"), postgres.WithHolder("four"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	l, err := audit.Open(t.Context(), s, audit.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := l.CheckAudit(operator, 0, "")
	if err != nil || !c.OK || c.Records != int64(len(logs)*writers*each) {
		t.Errorf("%+v, %v", c, err)
	}
	seen := map[string]int{}
	lines, err := s.AuditLines(t.Context(), bothy.AuditFilter{Limit: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		seen[line.Record]++
	}
	if len(seen) != len(logs)*writers*each {
		t.Errorf("%d different records", len(seen))
	}
}
