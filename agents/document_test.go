package agents

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/agents/agentstest"
	"github.com/bothy-dev/bothy/internal/bounded"
)

// working attaches an environment of a service, and works for it until the test ends.
func working(t *testing.T, q *agentstest.Service, s *Service) {
	t.Helper()
	workingAs(t, asAdmin(t, "p"), q, s)
}

func workingAs(t *testing.T, caller context.Context, q *agentstest.Service, s *Service) {
	t.Helper()
	t.Cleanup(q.Close)
	stop := time.AfterFunc(time.Minute, q.Close) // so that no call waits forever
	t.Cleanup(func() { stop.Stop() })
	_, err := s.AttachAgents(caller, bothy.AgentAttach{
		Environment: "env_1", Key: testKey, URL: q.URL,
		Sandbox: &bothy.SandboxCreate{Secrets: []bothy.Secret{{Name: "A", Value: "the-value", Hosts: []string{"a.example.org"}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// No service can choose where a memory store is copied to on this host.
func TestSessionCannotNameHostPaths(t *testing.T) {
	for name, resources := range map[string]string{
		"a type twice":       `"resources":[%[1]s,{"type":"file","type":"memory_store","memory_store_id":"%[2]s","access":"read_write","mount_path":"%[3]s"}]`,
		"a path twice":       `"resources":[%[1]s,{"type":"memory_store","memory_store_id":"%[2]s","access":"read_write","mount_path":"/mnt/memory/b","mount_path":"%[3]s"}]`,
		"resources twice":    `"resources":[%[1]s],"resources":[%[1]s,{"type":"memory_store","memory_store_id":"%[2]s","access":"read_write","mount_path":"%[3]s"}]`,
		"another case":       `"resources":[%[1]s,{"Type":"file","type":"memory_store","memory_store_id":"%[2]s","access":"read_write","Mount_Path":"/mnt/memory/b","mount_path":"%[3]s"}]`,
		"a path of the host": `"resources":[%[1]s,{"type":"memory_store","memory_store_id":"%[2]s","access":"read_write","mount_path":"%[3]s"}]`,
		"a name as a path":   `"resources":[%[1]s,{"type":"memory_store","memory_store_id":"%[2]s","access":"read_write","mount_path":"","name":"../../../..%[3]s"}]`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := agentstest.New("env_1", testKey, time.Minute)
			working(t, q, newTestService(t, newStore()))
			outside := t.TempDir()
			victim := filepath.Join(outside, "etc", "x.service.d")
			good := q.MemoryStore("/mnt/memory/a", "read_write", map[string]string{"/a.md": "a"})
			bad := q.MemoryStore(victim, "read_write", map[string]string{"/x.conf": "[Service]"})
			x := q.Session(nil, good, bad)
			first := fmt.Sprintf(`{"type":"memory_store","memory_store_id":"%s","access":"read_write","mount_path":"/mnt/memory/a"}`, good.ID)
			x.Answer([]byte(`{"id":"` + x.ID + `","type":"session","agent":{"skills":[]},` + fmt.Sprintf(resources, first, bad.ID, victim) + `}`))
			x.Start("bash", map[string]any{"command": "true"})
			x.End()
			q.AwaitRest(x.ID)
			if found, err := os.ReadDir(outside); err != nil || len(found) > 0 {
				t.Errorf("the service wrote to the host: %v, %v", found, err)
			}
		})
	}
}

func TestUnambiguous(t *testing.T) {
	for doc, want := range map[string]string{
		`{"a":1,"a":2}`:                              "twice",
		`{"a":1,"b":{"c":1,"d":2,"c":[]}}`:           "twice",
		`[{"type":1,"Type":2}]`:                      "twice",
		`{"k":1,"\u212a":2}`:                         "twice", // the sign of kelvin
		`{"a":1,"\u0061":2}`:                         "twice",
		`{"a":{"a":[{"a":1},{"a":"a"}]},"b":"a"}`:    "",
		"[" + strings.Repeat("0,", maxValues) + "0]": "values",
		`[]`:               "",
		`"a"`:              "",
		`{"a":`:            "EOF",
		"{\"a\":\"\xff\"}": "UTF-8",
		strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth):     "",
		strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1): "nested",
	} {
		_, err := bounded.Unambiguous([]byte(doc), maxDepth, maxValues)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %q", doc, err, want)
		}
	}
}

func TestDescribe(t *testing.T) {
	store := func(fields string) string {
		return `{"id":"s","resources":[{"type":"file","mount_path":"x"},{"type":"memory_store","memory_store_id":"m1",` + fields + `}]}`
	}
	for doc, want := range map[string]string{ // the path and access of the store, or ! and a part of the error
		store(`"access":"read_only","mount_path":"/mnt/a"`): "/mnt/a true",
		store(`"access":"read_write","mount_path":""`):      "/workspace/memory/m1 false",
		store(`"name":"notes"`):                             "/workspace/memory/notes false",
		store(`"name":"../../etc"`):                         "/workspace/memory/etc false",
		store(`"name":".."`):                                "!cannot be mounted",
		store(`"mount_path":"/a"`):                          "!cannot be mounted",
		store(`"mount_path":"/a/../etc/b"`):                 "!cannot be mounted",
		store(`"mount_path":"a/b"`):                         "!cannot be mounted",
		store(`"mount_path":"/mnt/a"},{"type":"memory_store","memory_store_id":"m2","mount_path":"/mnt/a/b"`): "!overlap",
		`{"resources":[{"type":"memory_store","memory_store_id":"../x","mount_path":"/mnt/a"}]}`:              "!not the id",
		`{"agent":{"skills":[{"skill_id":"..","version":"1"}]}}`:                                              "!not the id",
		`{"resources":{}}`: "!cannot be read",
		`{"id":"s"} {}`:    "!cannot be read",
	} {
		d, err := describe([]byte(doc))
		var all []volume
		if err == nil {
			all, err = d.stores()
		}
		got := ""
		switch {
		case err != nil:
			got = "!" + err.Error()
		case len(all) == 1:
			got = fmt.Sprint(all[0].path, " ", all[0].readOnly)
		}
		if part, refused := strings.CutPrefix(want, "!"); !refused && got != want || refused && !(strings.HasPrefix(got, "!") && strings.Contains(got, part)) {
			t.Errorf("%s: %q, want %q", doc, got, want)
		}
	}
}
