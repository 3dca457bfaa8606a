package build

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/template/tree"
	"golang.org/x/sys/unix"
)

func TestASecretBelongsToItsUser(t *testing.T) {
	w := newWorld(t)
	r := w.build(bothy.BuildRequest{
		Secrets: []bothy.BuildSecret{{ID: "key", Value: "word"}},
		Dockerfile: "FROM base\nUSER app\n" +
			"RUN --mount=type=secret,id=key,uid=7,gid=9,mode=0440 owner /run/secrets/key\n" +
			"RUN --mount=type=secret,id=key,uid=7,target=/opt/key owner /opt/key && show /opt/key",
	})
	if !strings.Contains(r.log, "|7:9 440\n") || !strings.Contains(r.log, "|7:0 400\n") || !strings.Contains(r.log, "|***\n") || r.text("opt/key") != "none" {
		t.Errorf("%s %s", r.Error, r.log)
	}
}

func TestRunIsKept(t *testing.T) {
	w := newWorld(t)
	r := w.build(bothy.BuildRequest{
		Secrets: []bothy.BuildSecret{{ID: "key", Value: "word"}},
		Dockerfile: "FROM base\nRUN write /run/sshd/a 1 && write /run/gone x\n" +
			"RUN --mount=type=secret,id=key show /run/sshd/a && write /run/b 2 && remove /run/gone\n" +
			"RUN show /run/b && write /run/bothy/own x",
	})
	if r.text("run/sshd/a") != "1" || r.text("run/b") != "2" || r.text("run/gone") != "none" || r.text("run/secrets") != "none" || r.text("run/bothy") != "none" {
		t.Errorf("%s %s", r.Error, r.log)
	}
	r = w.build(bothy.BuildRequest{Dockerfile: "FROM made\nRUN remove /run/sshd && remove /run/b"})
	if n, err := r.files.Get("run"); err != nil || len(n.Names()) > 0 {
		t.Errorf("%s %s", r.Error, r.log)
	}
}

func TestRangesOfPorts(t *testing.T) {
	w := newWorld(t)
	r := w.build(bothy.BuildRequest{Dockerfile: "FROM base\nARG P=9000-9001\nEXPOSE 8000-8002 $P/UDP 80"})
	if want := []string{"80/tcp", "8000/tcp", "8001/tcp", "8002/tcp", "9000/udp", "9001/udp"}; r.template == nil || !slices.Equal(r.template.Image.ExposedPorts, want) {
		t.Errorf("%s %+v", r.Error, r.template)
	}
	for spec, want := range map[string]string{"8010-8000": "write a port", "80/odd": "write a port", "http": "write a port", "1-65535": "more than 2000"} {
		r := w.build(bothy.BuildRequest{Dockerfile: "FROM base\nEXPOSE " + spec})
		if !strings.Contains(r.Error, "line 2: ") || !strings.Contains(r.Error, want) {
			t.Errorf("%s: %s", spec, r.Error)
		}
	}
}

func TestSomeOfAFolderIsCopied(t *testing.T) {
	from := tree.New(epoch)
	for _, name := range []string{"a/b/1.txt", "a/b/2.md", "a/c/1.txt", "README.md", "d/a/b/x/y"} {
		if err := from.Put(name, &tree.Node{Mode: unix.S_IFREG | 0o644, Time: epoch}); err != nil {
			t.Fatal(err)
		}
	}
	try := func(line string) (*tree.Tree, error) {
		r, err := Dockerfile(strings.NewReader("FROM base\n"+line), ReadOptions{})
		if err != nil {
			return nil, err
		}
		to := tree.New(epoch)
		return to, (&copying{ctx: t.Context(), from: from, to: to, files: *r.Stages[0].Steps[0].Copy, now: epoch}).run()
	}
	for line, want := range map[string]string{
		"COPY --exclude=*.md --exclude=a/c . /p/":           "a/ a/b/ a/b/1.txt a/b/2.md d/ d/a/ d/a/b/ d/a/b/x/ d/a/b/x/y",
		"COPY --exclude=**/*.md --exclude=!b/2.md a /p/":    "b/ b/1.txt b/2.md c/ c/1.txt",
		"COPY --exclude=*.md README.md a/b/* /p/":           "1.txt",
		"ADD --exclude=**/*.txt a /p/":                      "b/ b/2.md c/",
		"COPY --parents a/*/1.txt README.md /p/":            "README.md a/ a/b/ a/b/1.txt a/c/ a/c/1.txt",
		"COPY --parents d/./a/b /p":                         "a/ a/b/ a/b/x/ a/b/x/y",
		"COPY --parents **/*.md /p/":                        "README.md a/ a/b/ a/b/2.md",
		"COPY --parents --exclude=**/x a/b/1.txt d/a/b /p/": "a/ a/b/ a/b/1.txt d/ d/a/ d/a/b/",
	} {
		files, err := try(line)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		if got := below(t, files, "p"); got != want {
			t.Errorf("%s copies %s instead of %s", line, got, want)
		}
	}
	for line, want := range map[string]string{
		"COPY --parents a/none /p/":       `"/a/none": not found`,
		"COPY --parents none/./a /p/":     `"/none": not found`,
		"COPY --exclude=[ a /p/":          "--exclude: ",
		"COPY --exclude=*.md --parents a": "line 2",
	} {
		if _, err := try(line); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", line, err)
		}
	}
	w := newWorld(t)
	id := w.upload("a/b/1.txt", "1", "README.md", "4")
	// What is excluded is not part of the key.
	file := "FROM base\nCOPY --exclude=README.md . /p/\nRUN write /done 1"
	w.build(bothy.BuildRequest{Dockerfile: file, ContextID: id})
	w.commands()
	w.build(bothy.BuildRequest{Dockerfile: file, ContextID: w.upload("a/b/1.txt", "1", "README.md", "other")})
	if ran := w.commands(); len(ran) > 0 {
		t.Errorf("%q ran again", ran)
	}
}

// below lists what a folder has.
func below(t *testing.T, files *tree.Tree, dir string) string {
	t.Helper()
	n, err := files.Get(dir)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	_ = tree.Walk(n, func(name string, n *tree.Node) error {
		if n.IsDir() {
			name += "/"
		}
		if name != "/" {
			list = append(list, name)
		}
		return nil
	})
	slices.Sort(list)
	return strings.Join(list, " ")
}

func TestTimesOfFoldersThatAreCopiedInto(t *testing.T) {
	w := newWorld(t)
	r := w.build(bothy.BuildRequest{
		Dockerfile: "FROM base\nCOPY f /bin/f\nCOPY dir /etc\nCOPY f /opt/x/f",
		ContextID:  w.upload("f", "1", "dir/", "", "dir/in/g", "2"),
	})
	if r.files == nil {
		t.Fatal(r.Error)
	}
	for _, name := range []string{"", "bin", "etc", "opt", "opt/x"} {
		if n, err := r.files.Get(name); err != nil || n.Time.Before(r.StartedAt.Truncate(1e9)) {
			t.Errorf("/%s: %+v %v", name, n, err)
		}
	}
}

func TestChownOfAnArchive(t *testing.T) {
	w := newWorld(t)
	r := w.build(bothy.BuildRequest{Dockerfile: "FROM base\nADD --chown=app:team a.tar /in/\nADD a.tar /as/", ContextID: w.upload("a.tar", string(tarOf("d/f", "1")))})
	for name, want := range map[string]string{"in/d": "7:9", "in/d/f": "7:9", "as/d/f": "0:0"} {
		if r.files == nil {
			t.Fatal(r.Error)
		}
		n, err := r.files.Get(name)
		if err != nil || fmt.Sprintf("%d:%d", n.UID, n.GID) != want {
			t.Errorf("%s: %+v %v", name, n, err)
		}
	}
}

func TestOnbuild(t *testing.T) {
	w := newWorld(t)
	id := w.upload("f", "context")
	r := w.build(bothy.BuildRequest{
		Name: "parent", Dockerfile: "FROM base AS one\nONBUILD ARG A=1\nONBUILD RUN write /on $A\nONBUILD COPY f /f\nRUN write /own 1\n" +
			"FROM one AS two\nRUN show /on\nFROM one", ContextID: id, Target: "one",
	})
	if r.template == nil || len(r.template.Image.OnBuild) != 3 || r.text("on") != "none" {
		t.Fatalf("%s %+v", r.Error, r.template)
	}
	r = w.build(bothy.BuildRequest{Name: "child", Dockerfile: "FROM parent\nRUN show /on && write /after x", ContextID: id, Args: map[string]string{"A": "given"}})
	if r.text("on") != "given" || r.text("f") != "context" || r.text("after") != "x" || len(r.template.Image.OnBuild) > 0 || !strings.Contains(r.log, "[2/4] ONBUILD RUN write /on $A|") {
		t.Errorf("%s %s", r.Error, r.log)
	}
	r = w.build(bothy.BuildRequest{Name: "grandchild", Dockerfile: "FROM child\nRUN remove /on"})
	if r.template == nil || r.text("on") != "none" {
		t.Errorf("%s %s", r.Error, r.log)
	}
	r = w.build(bothy.BuildRequest{Dockerfile: "FROM base AS one\nONBUILD RUN write /on 1\nFROM one"})
	if r.text("on") != "1" {
		t.Errorf("%s %s", r.Error, r.log)
	}
	r = w.build(bothy.BuildRequest{Dockerfile: "FROM parent"})
	if !strings.Contains(r.Error, `line 1: "/f": not found`) {
		t.Errorf("without the file: %s", r.Error)
	}
}

func TestALaterStageIsNamed(t *testing.T) {
	w := newWorld(t)
	r := w.build(bothy.BuildRequest{Dockerfile: "FROM node-22\nRUN write /a 1\nFROM base AS node-22\nRUN write /b 1", Target: "0"})
	if !strings.Contains(r.Error, "line 1: the stage node-22 begins later, on line 3") {
		t.Error(r.Error)
	}
}
