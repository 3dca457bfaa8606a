package build

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

// Of a build that has ended little is left: what it is called and how it ended.
func TestEndedBuildsAreSmall(t *testing.T) {
	w := newWorld(t)
	var all []result
	for i := range 5 {
		all = append(all, w.build(bothy.BuildRequest{
			Dockerfile: fmt.Sprintf("FROM base\nRUN print %d\n", i) + strings.Repeat("# a comment\n", 80_000), Args: map[string]string{"A": strings.Repeat("a", 100_000)},
			Secrets: []bothy.BuildSecret{{ID: "a", Value: strings.Repeat("a", 100_000)}},
		}))
	}
	look := func(when string) {
		for _, r := range all {
			text, err := os.ReadFile(filepath.Join(w.records(), r.ID, "build.json"))
			if err != nil || len(text) > 2000 {
				t.Errorf("%s, the record has %d bytes: %v", when, len(text), err)
			}
			w.mu.Lock()
			kept, err := json.Marshal(w.Builder.builds[r.ID].req)
			w.mu.Unlock()
			if err != nil || len(kept) > 100 {
				t.Errorf("%s, %d bytes of the request are in memory: %v", when, len(kept), err)
			}
			if again := w.wait(w.me(), r.ID); again.log != r.log || again.State != r.State || again.Digest != r.Digest {
				t.Errorf("%s, %+v with the log %s", when, again.Build, again.log)
			}
		}
	}
	look("at the end")
	w.Builder.Close()
	w.open()
	look("after a restart")
}

func TestLargeRequests(t *testing.T) {
	w := newWorld(t)
	for what, req := range map[string]bothy.BuildRequest{
		"the Dockerfile": {Dockerfile: "FROM base\n" + strings.Repeat("#\n", maxDockerfile/2)},
		"arguments":      {Dockerfile: "FROM base", Args: map[string]string{"A": strings.Repeat("a", maxRequest)}},
		"many lines":     {Dockerfile: "FROM base", Secrets: []bothy.BuildSecret{{ID: "a", Value: strings.Repeat("abc\n", maxSecretLines)}}},
		"a secret":       {Dockerfile: "FROM base", Secrets: []bothy.BuildSecret{{ID: "a", Value: strings.Repeat("a", maxRequest)}}},
	} {
		req.Name = "made"
		if _, err := w.StartBuild(w.me(), req); bothy.ErrorCode(err) != bothy.CodeTooLarge || bothy.AsError(err).Hint == "" {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// record writes the record of a build that ended some minutes ago, with a log of so many bytes.
func (w *world) record(project string, minutes int, log int64) string {
	w.Helper()
	ended := time.Now().Add(-time.Duration(minutes) * time.Minute)
	id := fmt.Sprintf("bld_%s%d", project, minutes)
	text, err := json.Marshal(stored{
		Build:   bothy.Build{ID: id, State: bothy.BuildFailed, CreatedAt: ended, EndedAt: &ended},
		Project: project, Caller: bothy.Caller{ProjectID: project}, Events: 1,
	})
	dir := filepath.Join(w.o.Dir, "records", id)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "build.json"), text, 0o600)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "log.jsonl"), []byte("{}\n"), 0o600)
	}
	if err == nil && log > 0 {
		err = os.Truncate(filepath.Join(dir, "log.jsonl"), log)
	}
	if err != nil {
		w.Fatal(err)
	}
	return id
}

// A project's oldest builds are forgotten when it has too many, or their logs are too large.
func TestRecordsAreLimited(t *testing.T) {
	w := newWorld(t)
	w.Builder.Close()
	for i := range maxRecords + 3 {
		w.record("many", i, 0)
	}
	for i := range 10 {
		w.record("large", i, maxLog)
	}
	few := w.record("few", maxRecords+4, maxLog)
	w.open()
	for project, want := range map[string]int{"many": maxRecords, "large": maxLogs / maxLog, "few": 1} {
		list, err := w.Builds(w.as(project))
		if err != nil || len(list) != want {
			t.Fatalf("of %s there are %d builds: %v", project, len(list), err)
		}
		oldest := list[len(list)-1]
		if project != "few" && oldest.ID != fmt.Sprintf("bld_%s%d", project, want-1) {
			t.Errorf("the oldest of %s is %s", project, oldest.ID)
		}
	}
	if !w.Has(few) {
		t.Error("other projects' builds are forgotten")
	}
	if dirs, err := os.ReadDir(w.records()); err != nil || len(dirs) != maxRecords+maxLogs/maxLog+1 {
		t.Errorf("there are %d folders: %v", len(dirs), err)
	}
	// Those of a running server too.
	w.buildAs(w.as("many"), bothy.BuildRequest{Dockerfile: "FROM base"})
	w.Builder.Close() // waits for what follows the end of a build
	if list, err := w.Builds(w.as("many")); err != nil || len(list) != maxRecords {
		t.Errorf("after another there are %d: %v", len(list), err)
	}
}

// A long secret is masked in pieces: looking for all of it at once would take very long to prepare.
func TestLongSecretsAreMasked(t *testing.T) {
	secret := strings.Repeat("ab", 200_000)
	m := masker(&bothy.BuildRequest{Secrets: []bothy.BuildSecret{{Value: secret}}})
	if got := m.Replace("it is " + secret[:maxLine] + "."); strings.Contains(got, "ab") {
		t.Errorf("%.100q", got)
	}
}

func TestLogsAreLimited(t *testing.T) {
	w := newWorld(t)
	b, err := w.StartBuild(w.me(), bothy.BuildRequest{Name: "made", Dockerfile: "FROM base\nRUN wait"})
	if err != nil {
		t.Fatal(err)
	}
	<-w.entered
	w.Builder.mu.Lock()
	r := w.Builder.builds[b.ID]
	w.Builder.mu.Unlock()
	for range 5000 {
		r.say(bothy.BuildEvent{Message: strings.Repeat("x", maxLine)})
	}
	if _, err := w.CancelBuild(w.me(), b.ID); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(r.logFile())
	if err != nil || info.Size() > maxLog+2*maxLine {
		t.Errorf("the log has %d bytes: %v", info.Size(), err)
	}
	if log := w.wait(w.me(), b.ID).log; strings.Count(log, "the log is full") != 1 || !strings.HasSuffix(log, "cancelled|the build was cancelled\n") {
		t.Errorf("the log ends with %q", log[len(log)-200:])
	}
}
