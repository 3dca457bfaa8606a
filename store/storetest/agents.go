package storetest

import (
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

func testAgents(t *testing.T, f *fixture) {
	want := full[store.AgentAttachment](t)
	want.Sandbox.EndWhenIdle = false // no request can ask for it
	want.ID, want.ProjectID, want.CreatedAt, want.Sandbox.Network.Mode = "whole", "p", epoch, bothy.NetworkOff
	f.must(f.PutAgents(f.ctx, want))
	f.must(f.PutAgents(f.ctx, &store.AgentAttachment{AgentAttachment: bothy.AgentAttachment{ID: "later", ProjectID: "p", CreatedAt: epoch.Add(time.Second)}}))
	f.must(f.PutAgents(f.ctx, &store.AgentAttachment{AgentAttachment: bothy.AgentAttachment{ID: "other", ProjectID: "q", CreatedAt: epoch}}))
	f.must(f.PutAgentSession(f.ctx, "whole", "s1", []byte("first")))
	f.must(f.PutAgentSession(f.ctx, "whole", "s1", []byte{0, 0xff}))
	f.must(f.PutAgentSession(f.ctx, "whole", "s2", []byte("second")))
	f.must(f.PutAgentSession(f.ctx, "other", "s1", []byte("other")))
	f.reopen()

	want.State, want.LastError, want.Sessions = "", "", nil // are not kept
	got, err := f.Agents(f.ctx, "p")
	f.must(err)
	equal(t, len(got), 2)
	equal(t, got[0], want)
	all, err := f.Agents(f.ctx, "")
	f.must(err)
	equal(t, len(all), 3)
	none, err := f.Agents(f.ctx, "none")
	f.must(err)
	equal(t, len(none), 0)
	sessions, err := f.AgentSessions(f.ctx, "whole")
	f.must(err)
	equal(t, sessions, map[string][]byte{"s1": {0, 0xff}, "s2": []byte("second")})
	f.must(f.DeleteAgentSession(f.ctx, "whole", "s2"))
	f.must(f.DeleteAgentSession(f.ctx, "whole", "s2"))

	f.wantCode(f.DeleteAgents(f.ctx, "q", "whole"), bothy.CodeNotFound)
	f.must(f.DeleteAgents(f.ctx, "p", "whole"))
	f.wantCode(f.DeleteAgents(f.ctx, "p", "whole"), bothy.CodeNotFound)
	sessions, err = f.AgentSessions(f.ctx, "whole")
	f.must(err)
	equal(t, sessions, map[string][]byte{})
	sessions, err = f.AgentSessions(f.ctx, "other")
	f.must(err)
	equal(t, sessions, map[string][]byte{"s1": []byte("other")})
}
