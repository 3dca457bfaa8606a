// Package storetest is the test suite for every store.Store. Only tests of stores import it.
package storetest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// Maker opens stores for the suite.
type Maker func(t *testing.T, now func() time.Time) Opener

// Opener opens the same store each time it is called. The suite closes it.
type Opener func() store.Store

// Run runs the suite.
func Run(t *testing.T, make Maker) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, *fixture)
	}{
		{"sandbox comes back whole", testSandboxWhole},
		{"sandbox is replaced", testSandboxReplaced},
		{"sandbox versions", testSandboxVersions},
		{"sandbox version after a failure", testSandboxVersionAfterFailure},
		{"sandbox conflict changes nothing", testSandboxConflictChangesNothing},
		{"one of many writers of a sandbox wins", testSandboxWritersRace},
		{"sandbox is a copy", testSandboxCopy},
		{"sandboxes to resume", testSandboxesToResume},
		{"sandbox not found", testSandboxNotFound},
		{"sandboxes are filtered", testSandboxFilters},
		{"sandbox list is the project's alone", testSandboxProjects},
		{"sandbox pages are stable", testSandboxPages},
		{"sandbox cursor is checked", testBadCursor},
		{"sandboxes in state", testSandboxesInState},
		{"ended sandboxes are forgotten", testForgetSandboxes},
		{"snapshots", testSnapshots},
		{"snapshot pages are stable", testSnapshotPages},
		{"snapshots are within a quota", testSnapshotQuota},
		{"tokens", testTokens},
		{"token use is noted", testTouchToken},
		{"links", testLinks},
		{"links stay within bounds", testLinkBounds},
		{"links end with their key, sandbox and time", testLinksEnd},
		{"logins", testLogins},
		{"logins are bounded", testLoginsAreBounded},
		{"webhooks", testWebhooks},
		{"agents", testAgents},
		{"places", testPlaces},
		{"projects", testProjects},
		{"events", testEvents},
		{"old events are forgotten", testForgetEvents},
		{"much that is old is forgotten in parts", testForgetInParts},
		{"audit", testAudit},
		{"usage is written once", testUsageBatches},
		{"usage is summed up", testUsageQueries},
		{"budgets", testBudgets},
		{"answer is kept", testAnswerKept},
		{"answer is reserved once", testAnswerReservedOnce},
		{"answer is forgotten", testAnswerForgotten},
		{"what must run once", testReserveOnce},
		{"a sandbox by its key", testSandboxByKey},
		{"answer without its body", testAnswerDropped},
		{"all survives reopening", testReopen},
		{"many writers and readers", testConcurrent},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := &fixture{T: t, ctx: context.Background()}
			f.clock.at = epoch
			f.open = make(t, f.clock.now)
			f.Store = f.open()
			t.Cleanup(func() {
				if err := f.Store.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
			})
			test.run(t, f)
		})
	}
}

// epoch has nanosecond digits, which a store must preserve.
var epoch = time.Date(2026, 3, 1, 12, 30, 45, 123456789, time.UTC)

type fixture struct {
	*testing.T
	store.Store
	ctx   context.Context
	open  Opener
	clock clock
}

type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) forward(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

func (f *fixture) reopen() {
	f.Helper()
	if err := f.Store.Close(); err != nil {
		f.Fatalf("Close: %v", err)
	}
	f.Store = f.open()
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) wantCode(err error, want bothy.Code) {
	f.Helper()
	if got := bothy.ErrorCode(err); got != want {
		f.Fatalf("error %v has code %q, want %q", err, got, want)
	}
}
