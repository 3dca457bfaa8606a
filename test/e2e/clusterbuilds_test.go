package e2e

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
)

// makes reports whether a host runs a build, or has run it.
func (s *server) makes(id string) bool {
	all, err := filepath.Glob(filepath.Join(s.Home, "builds", "records", id+"*"))
	return err == nil && len(all) > 0
}

// Every host can show, follow and cancel the builds of templates.
// Identical requests share a build, whichever hosts they reach. A build of a lost host is reported as
// lost and can be started again.
func TestAnyHostKnowsABuild(t *testing.T) {
	t.Parallel()
	hosts := newShortLeaseHosts(t, "one", "two")
	ctx, cancel := context.WithTimeout(t.Context(), 2*hangs)
	defer cancel()
	req := bothy.BuildRequest{Name: "cluster-built", Dockerfile: "FROM " + templateName + "\nRUN echo be\"\"gan; until [ -e /nothing ]; do sleep 0.1; done\n"}
	b, err := hosts[0].Builder.StartBuild(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := hosts[1].Builder.StartBuild(ctx, req); err != nil || again.ID != b.ID {
		t.Errorf("the same request at the other host: %+v, %v", again, err)
	}
	for _, s := range hosts {
		if got, err := s.Builder.Build(ctx, b.ID); err != nil || got.ID != b.ID || got.Name != req.Name {
			t.Errorf("the build at %s: %+v, %v", s.Address, got, err)
		}
		list, err := s.Builder.Builds(ctx)
		if err != nil || !slices.ContainsFunc(list, func(x *bothy.Build) bool { return x.ID == b.ID }) {
			t.Errorf("the list at %s: %+v, %v", s.Address, list, err)
		}
		// Its log is followed while it grows.
		seen := false
		follow, stop := context.WithCancel(ctx)
		err = s.Builder.BuildLog(follow, b.ID, 0, func(_ int64, e bothy.BuildEvent) error {
			if strings.Contains(e.Message, "began") {
				seen = true
				stop()
			}
			return nil
		})
		stop()
		if !seen {
			t.Errorf("the log at %s: %v", s.Address, err)
		}
	}
	maker := slices.IndexFunc(hosts, func(s *server) bool { return s.makes(b.ID) })
	if maker < 0 {
		t.Fatal("no host runs the build")
	}
	other := hosts[1-maker]
	a := &agent{T: t, ctx: ctx}
	a.call(other, "initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`)
	shown := func(s *server, id string) string {
		return a.call(s, "tools/call", `{"name":"get_build","arguments":{"build_id":"`+id+`"}}`)
	}
	for _, s := range hosts {
		if got := shown(s, b.ID); !strings.Contains(got, b.ID) || strings.Contains(got, `"isError":true`) {
			t.Errorf("an agent at %s gets the build %s", s.Address, got)
		}
	}
	if _, err := other.Builder.CancelBuild(ctx, b.ID); err != nil {
		t.Fatal(err)
	}
	if err := other.Builder.BuildLog(ctx, b.ID, 0, func(int64, bothy.BuildEvent) error { return nil }); err != nil {
		t.Error(err)
	}
	if got, err := other.Builder.Build(ctx, b.ID); err != nil || got.State != bothy.BuildCancelled {
		t.Errorf("the cancelled build: %+v, %v", got, err)
	}

	second, err := other.Builder.StartBuild(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	if err := hosts[maker].Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the build is said to be lost", func() bool {
		_, err := other.Builder.Build(ctx, second.ID)
		return bothy.ErrorCode(err) == bothy.CodeNotFound && strings.Contains(err.Error(), "on a lost host: "+[]string{"one", "two"}[maker])
	})
	if got := shown(other, second.ID); !strings.Contains(got, `"isError":true`) || !strings.Contains(got, "on a lost host: "+[]string{"one", "two"}[maker]) {
		t.Errorf("an agent gets the lost build %s", got)
	}
	req.Dockerfile = "FROM " + templateName + "\nRUN echo again\n"
	third, err := other.Builder.StartBuild(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Builder.BuildLog(ctx, third.ID, 0, func(int64, bothy.BuildEvent) error { return nil }); err != nil {
		t.Error(err)
	}
	if got, err := other.Builder.Build(ctx, third.ID); err != nil || got.State != bothy.BuildSucceeded {
		t.Errorf("the second build is %+v, %v", got, err)
	}

	// When it is back, the first host continues its build, as any server does.
	if err := hosts[maker].Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the build is known again, and ends", func() bool {
		got, err := other.Builder.CancelBuild(ctx, second.ID)
		if err != nil {
			hosts[maker].kept(t)
		}
		return err == nil && got.State.Ended()
	})
}

// kept starts a host again that the others have given up, as a service manager does: one that had too
// little of a busy computer to renew a short lease.
func (s *server) kept(t *testing.T) {
	t.Helper()
	state, ended := s.Ended()
	if !ended {
		return
	}
	if !strings.Contains(strings.Join(s.Log(), "\n"), "the other hosts have given this one up") {
		t.Fatalf("the host at %s ended by itself: %v", s.Address, state)
	}
	t.Logf("the host at %s was given up; it is started again", s.Address)
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
}
