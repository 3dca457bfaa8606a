package build

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/klauspost/compress/zstd"
)

func TestStepsMakeATemplate(t *testing.T) {
	w := newWorld(t)
	id := w.upload("app/f", "F", "app/skip.log", "L", ".dockerignore", "*.log\napp/*.log\n", "Dockerfile", "")
	r := w.build(bothy.BuildRequest{ContextID: id, Args: map[string]string{"WHO": "me"}, Dockerfile: `FROM base AS first
RUN write /made one
FROM first
ARG WHO
ENV NAME=$WHO BOTH="$WHO and $BASE"
WORKDIR /srv
COPY --chown=app:team app .
RUN write /srv/env $BOTH && remove /old
COPY --from=first /made copy
USER app
LABEL a=b org.opencontainers.image.description="What it is for"
EXPOSE 80
CMD ["serve"]`})
	for name, want := range map[string]string{"made": "one", "srv/f": "F", "srv/skip.log": "none", "srv/env": "me and 1", "old": "none", "srv/copy": "one", "etc/hostname": "sandbox\n"} {
		if got := r.text(name); got != want {
			t.Errorf("%s is %q, not %q", name, got, want)
		}
	}
	if n, _ := r.files.Get("srv/f"); n == nil || n.UID != 7 || n.GID != 9 || n.Time.Unix() != 1e9 {
		t.Errorf("srv/f is %+v", n)
	}
	m := r.template
	if m.User != "app" || m.Cwd != "/srv" || m.Env["NAME"] != "me" || m.Env["BASE"] != "1" || m.Image.Labels["a"] != "b" || m.Description != "What it is for" || m.Image.ExposedPorts[0] != "80/tcp" || !slices.Equal(m.Entrypoint, []string{"serve"}) {
		t.Errorf("the manifest is %+v %+v", m, m.Image)
	}
	if r.State != bothy.BuildSucceeded || r.Done != r.Steps || w.left() != 0 {
		t.Errorf("%+v, and %d sandboxes are left", r.Build, w.left())
	}
}

func TestWorkspaceBelongsToTheUser(t *testing.T) {
	w := newWorld(t)
	steps := "\nRUN write /workspace/repo/f x\nRUN write /srv/f x\nCOPY --chown=7:9 f /workspace/theirs"
	for end, want := range map[string]uint32{"": 1000, "\nUSER user": 1000, "\nUSER app": 0} {
		r := w.build(bothy.BuildRequest{Dockerfile: "FROM base" + steps + end, ContextID: w.upload("f", "x")})
		for name, uid := range map[string]uint32{"workspace": 1000, "workspace/repo": want, "workspace/repo/f": want, "workspace/theirs": 7, "srv/f": 0} {
			if n, err := r.files.Get(name); err != nil || n.UID != uid && !(name == "workspace" && end == "\nUSER app") {
				t.Errorf("%q: %s: %+v, %v", end, name, n, err)
			}
		}
	}
}

func TestWhatIsKnownIsNotDoneAgain(t *testing.T) {
	w := newWorld(t)
	file := "FROM base\nCOPY f /f\nRUN write /a 1\nRUN write /b 2"
	first := w.build(bothy.BuildRequest{Dockerfile: file, ContextID: w.upload("f", "x")})
	if got := w.commands(); len(got) != 2 {
		t.Fatalf("ran %q", got)
	}
	again := w.build(bothy.BuildRequest{Dockerfile: file, ContextID: w.upload("f", "x", "other", "y")})
	if got := w.commands(); len(got) != 0 || again.Digest != first.Digest || again.Cached != again.Steps {
		t.Errorf("again, ran %q for %+v", got, again.Build)
	}
	last := w.build(bothy.BuildRequest{Dockerfile: strings.Replace(file, "/b 2", "/b 3", 1), ContextID: w.upload("f", "x")})
	if got := w.commands(); !slices.Equal(got, []string{"write /b 3"}) || last.text("a") != "1" || last.text("b") != "3" {
		t.Errorf("with another last step, ran %q", got)
	}
	w.build(bothy.BuildRequest{Dockerfile: file, ContextID: w.upload("f", "changed")})
	if got := w.commands(); len(got) != 2 {
		t.Errorf("with another file, ran %q", got)
	}
	w.build(bothy.BuildRequest{Dockerfile: file, ContextID: w.upload("f", "x"), NoCache: true})
	if got := w.commands(); len(got) != 2 {
		t.Errorf("without the cache, ran %q", got)
	}
	// What was done again is what later builds find.
	w.build(bothy.BuildRequest{Dockerfile: "FROM base\nRUN write /at time", NoCache: true})
	fresh := w.build(bothy.BuildRequest{Dockerfile: "FROM base\nRUN write /at time", NoCache: true})
	w.commands()
	found := w.build(bothy.BuildRequest{Dockerfile: "FROM base\nRUN write /at time"})
	if got := w.commands(); len(got) != 0 || found.Digest != fresh.Digest {
		t.Errorf("after a build without the cache, ran %q for %s, and that has made %s", got, found.Digest, fresh.Digest)
	}
	if entry, err := w.library.LookupFor(t.Context(), bothy.DefaultProject, "made"); err != nil || sumOf(t, entry.RootFS) != entry.Digest {
		t.Errorf("the digest is not that of the image: %v", err)
	}
	w.build(bothy.BuildRequest{Dockerfile: "FROM base\nENV A=1\nRUN write /a 1", ContextID: w.upload("f", "x")})
	if got := w.commands(); len(got) != 1 {
		t.Errorf("with another environment, ran %q", got)
	}
}

func TestArgumentsHoldInStagesThatFollow(t *testing.T) {
	w := newWorld(t)
	r := w.build(bothy.BuildRequest{
		Args:       map[string]string{"V": "7"},
		Dockerfile: "ARG V\nFROM base AS first\nARG V\nARG W=8\nFROM first\nRUN write /args $V-$W\nFROM base\nCOPY --from=1 /args /args\nRUN write /none $V-",
	})
	if r.text("args") != "7-8" || r.text("none") != "-" {
		t.Errorf("%s: %q and %q", r.Error, r.text("args"), r.text("none"))
	}
}

func TestFailuresNameTheLine(t *testing.T) {
	w := newWorld(t)
	id := w.upload("f", "x", "dir/g", "y")
	for file, want := range map[string]string{
		"FROM base\n\nRUN fail":                                      "line 3: the command ended with exit code 3: fail",
		"FROM base\nRUN slow":                                        "line 2: the command did not end within",
		"FROM base\nCOPY missing /x":                                 `line 2: "/missing": not found`,
		"FROM base\nCOPY f dir /x":                                   "line 2: with several sources",
		"FROM base\nCOPY --chown=nobody f /x":                        "line 2: there is no user nobody",
		"FROM base\nCOPY --chmod=rw f /x":                            "line 2: --chmod=rw",
		"FROM base\nCOPY dir /old":                                   "line 2: /old exists and is not a folder",
		"FROM base\nCOPY ../../etc/passwd /x":                        `line 2: "/etc/passwd": not found`,
		"FROM base\nRUN --mount=type=secret,id=k,required=true true": "line 2: the secret k is required",
		"FROM base\nRUN --mount=type=bind,source=no,target=/m true":  "line 2: RUN --mount=type=bind",
		"FROM ./there":                                               "line 1",
	} {
		r := w.build(bothy.BuildRequest{Dockerfile: file, ContextID: id})
		if r.State != bothy.BuildFailed || !strings.Contains(r.Error, want) || r.template != nil {
			t.Errorf("%q: %s: %s", file, r.State, r.Error)
		}
	}
	if w.left() != 0 {
		t.Errorf("%d sandboxes are left", w.left())
	}
	if _, err := w.library.Lookup("made"); err == nil {
		t.Error("a build that failed has made a template")
	}
	for file, want := range map[string]string{"FROM base\nONBUILD RUN --network=host x": "line 2: ONBUILD", "": "neither a Dockerfile"} {
		if _, err := w.StartBuild(w.me(), bothy.BuildRequest{Name: "made", Dockerfile: file}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", file, err)
		}
	}
}

func TestSecretsStayNowhere(t *testing.T) {
	w := newWorld(t)
	const secret = "tops3cret-value"
	r := w.build(bothy.BuildRequest{
		Secrets: []bothy.BuildSecret{{ID: "key", Value: secret}},
		Dockerfile: "FROM base\nRUN --mount=type=secret,id=key show /run/secrets/key && write /done yes\n" +
			"RUN --mount=type=secret,id=key,env=KEY print $KEY",
	})
	if r.text("done") != "yes" || r.text("run/secrets/key") != "none" || r.text("run/secrets") != "none" {
		t.Errorf("%s %s", r.Error, r.log)
	}
	if strings.Contains(r.log, secret) || !strings.Contains(r.log, "***") {
		t.Errorf("the log is %s", r.log)
	}
	w.Builder.Close()
	for _, disk := range w.secretFiles {
		_ = os.Remove(disk)
	}
	err := filepath.WalkDir(w.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if bytes.Contains(bytes.ToLower(text), []byte(secret)) {
			t.Errorf("%s holds the secret", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestMountsAreNotPartOfTheTemplate(t *testing.T) {
	w := newWorld(t)
	r := w.build(bothy.BuildRequest{ContextID: w.upload("d/f", "bound"), Dockerfile: `FROM base
RUN --mount=type=cache,target=/c write /c/kept yes
RUN --mount=type=cache,target=/c show /c/kept
RUN --mount=type=bind,source=d,target=/b show /b/f && write /b/lost x
RUN --mount=type=tmpfs,target=/etc write /etc/lost x && write /out x
RUN --network=none show /old`})
	if r.State != bothy.BuildSucceeded || !strings.Contains(r.log, "|yes\n") || !strings.Contains(r.log, "|bound\n") {
		t.Fatalf("%s\n%s", r.Error, r.log)
	}
	for _, name := range []string{"c", "b", "etc/lost"} {
		if got := r.text(name); got != "none" {
			t.Errorf("%s is in the template: %q", name, got)
		}
	}
	if r.text("out") != "x" || !strings.Contains(r.text("etc/passwd"), "app") {
		t.Error("what the command wrote elsewhere is lost, or what was hidden is")
	}
	if w.networks[0] != bothy.NetworkRestricted || w.networks[4] != bothy.NetworkOff {
		t.Errorf("networks %v", w.networks)
	}
}

func TestProjectsDoNotShareWhatCommandsMake(t *testing.T) {
	w := newWorld(t)
	req := bothy.BuildRequest{Name: "made", Dockerfile: "FROM base\nRUN write /a 1"}
	w.build(req)
	w.commands()
	j := &job{b: w.Builder, project: "other"}
	k := &job{b: w.Builder, project: bothy.DefaultProject}
	m := &mounts{j: j}
	n := &mounts{j: k}
	_ = m.cache(context.Background(), Mount{Target: "/c"})
	_ = n.cache(context.Background(), Mount{Target: "/c"})
	if m.list[0].cache == n.list[0].cache {
		t.Error("two projects use one cache")
	}
}

func TestCancelLeavesNothing(t *testing.T) {
	w := newWorld(t)
	b, err := w.StartBuild(w.me(), bothy.BuildRequest{Name: "made", Dockerfile: "FROM base\nRUN wait"})
	if err != nil {
		t.Fatal(err)
	}
	<-w.entered
	same, err := w.StartBuild(w.me(), bothy.BuildRequest{Name: "made", Dockerfile: "FROM base\nRUN wait"})
	if err != nil || same.ID != b.ID {
		t.Errorf("the same request is another build: %v %v", same, err)
	}
	got, err := w.CancelBuild(w.me(), b.ID)
	if err != nil || got.State != bothy.BuildCancelled {
		t.Fatalf("%+v %v", got, err)
	}
	if w.left() != 0 {
		t.Errorf("%d sandboxes are left", w.left())
	}
	if again, err := w.CancelBuild(w.me(), b.ID); err != nil || again.State != bothy.BuildCancelled {
		t.Errorf("again: %+v %v", again, err)
	}
	if _, err := w.library.Lookup("made"); err == nil {
		t.Error("it has made a template")
	}
	if work, _ := os.ReadDir(w.work); len(work) != 0 {
		t.Errorf("the folder of work holds %v", work)
	}
	for _, op := range []func(context.Context, string) (*bothy.Build, error){w.Builder.Build, w.CancelBuild} {
		if _, err := op(w.as("strangers"), b.ID); bothy.ErrorCode(err) != bothy.CodeNotFound {
			t.Errorf("a stranger: %v", err)
		}
	}
}

func TestBuildsSurviveARestart(t *testing.T) {
	w := newWorld(t)
	req := bothy.BuildRequest{Name: "made", Dockerfile: "FROM base\nRUN write /a 1\nRUN --mount=type=secret,id=k,env=K wait", Secrets: []bothy.BuildSecret{{ID: "k", Value: "word"}}}
	b, err := w.StartBuild(w.me(), req)
	if err != nil {
		t.Fatal(err)
	}
	<-w.entered
	w.Builder.Close()
	w.commands()
	w.open()
	<-w.entered
	if got := w.commands(); !slices.Equal(got, []string{"wait"}) {
		t.Errorf("after the restart, ran %q", got)
	}
	if got, err := w.Builder.Build(w.me(), b.ID); err != nil || got.State != bothy.BuildRunning {
		t.Errorf("%+v %v", got, err)
	}
	if _, err := w.CancelBuild(w.me(), b.ID); err != nil {
		t.Fatal(err)
	}
	w.Builder.Close()
	w.open()
	if got, err := w.Builder.Build(w.me(), b.ID); err != nil || got.State != bothy.BuildCancelled {
		t.Errorf("after another: %+v %v", got, err)
	}
	if list, err := w.Builds(w.me()); err != nil || len(list) != 1 {
		t.Errorf("%v %v", list, err)
	}
}

func TestLogsCanBeJoinedAgain(t *testing.T) {
	w := newWorld(t)
	r := w.build(bothy.BuildRequest{Dockerfile: "FROM base\nRUN print one && print two"})
	all := strings.Count(r.log, "\n")
	var numbers []int64
	if err := w.BuildLog(w.me(), r.ID, int64(all-2), func(n int64, _ bothy.BuildEvent) error { numbers = append(numbers, n); return nil }); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(numbers, []int64{int64(all - 2), int64(all - 1)}) {
		t.Errorf("events %v of %d", numbers, all)
	}
}

func TestContextsThatNoHostShouldSend(t *testing.T) {
	w := newWorld(t)
	for name, body := range map[string][]byte{
		"no tar": []byte(strings.Repeat("x", 2000)), "half a gzip": {0x1f, 0x8b, 8, 0}, "a device": deviceTar(),
	} {
		if c, err := w.UploadContext(w.me(), bytes.NewReader(body)); bothy.ErrorCode(err) != bothy.CodeInvalid {
			t.Errorf("%s: %+v %v", name, c, err)
		}
	}
	if left, _ := os.ReadDir(w.contexts()); len(left) != 0 {
		t.Errorf("%v is left", left)
	}
	if _, err := w.UploadContext(w.me(), bytes.NewReader(wideWindow())); bothy.ErrorCode(err) != bothy.CodeTooLarge || !strings.Contains(err.Error(), "in its window") {
		t.Errorf("a context that takes much memory to decompress: %v", err)
	}
	w.maxFiles = 3
	_, err := w.UploadContext(w.me(), bytes.NewReader(tarOf("a", "", "b", "", "c", "", "d", "")))
	if bothy.ErrorCode(err) != bothy.CodeInvalid || !strings.Contains(err.Error(), "more than 3 files") {
		t.Errorf("too many files: %v", err)
	}
	if left, _ := os.ReadDir(w.contexts()); len(left) != 0 {
		t.Errorf("%v is left of too many files", left)
	}
	if _, err := w.StartBuild(w.me(), bothy.BuildRequest{Name: "made", Dockerfile: "FROM base", ContextID: "ctx_../../etc/passwd"}); bothy.ErrorCode(err) != bothy.CodeInvalid {
		t.Errorf("a context that is none: %v", err)
	}
}

// wideWindow is compressed with zstd, and refers back by up to 128 MB.
func wideWindow() []byte {
	var b bytes.Buffer
	z, _ := zstd.NewWriter(&b, zstd.WithWindowSize(128<<20))
	for range 4 { // in pieces, so that its size is unknown to the reader
		_, _ = z.Write(make([]byte, 1<<20))
	}
	_ = z.Close()
	return b.Bytes()
}

func sumOf(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256(text))
}

// One project's builds leave room for those of others, however many there are.
func TestBuildsOfOneProjectLeaveRoom(t *testing.T) {
	w := newWorld(t)
	var ids []string
	for i := range maxAtOnce + 1 {
		b, err := w.StartBuild(w.me(), bothy.BuildRequest{Name: fmt.Sprint("many", i), Dockerfile: fmt.Sprintf("FROM base\nENV N=%d\nRUN wait", i)})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, b.ID)
	}
	for range maxOfProject {
		<-w.entered
	}
	other := w.as("another")
	b, err := w.StartBuild(other, bothy.BuildRequest{Name: "made", Dockerfile: "FROM base\nRUN write /a 1"})
	if err == nil {
		err = w.BuildLog(other, b.ID, 0, func(int64, bothy.BuildEvent) error { return nil }) // to its end
	}
	if err == nil {
		b, err = w.Builder.Build(other, b.ID)
	}
	if err != nil || b.State != bothy.BuildSucceeded {
		t.Errorf("another project's build: %+v, %v", b, err)
	}
	if running := w.left(); running != maxOfProject {
		t.Errorf("%d commands of one project are run at once", running)
	}
	for _, id := range ids {
		if b, err := w.CancelBuild(w.me(), id); err != nil || b.State != bothy.BuildCancelled {
			t.Errorf("%+v, %v", b, err)
		}
	}
}
