package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/client"
	"github.com/bothy-dev/bothy/internal/freeport"
	"github.com/bothy-dev/bothy/test/cli/pretend"
)

// scripts is the folder with the scripts, which read like documentation.
const scripts = "../test/cli/testdata"

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"bothy": bothyOrServer})
}

// bothyOrServer is the program that scripts run. If a script asks for it, `bothy serve` is a fake
// server, since a real one needs root.
func bothyOrServer() {
	if len(os.Args) > 1 && os.Args[1] == "serve" && os.Getenv("PRETEND_SERVE") != "" {
		os.Exit(pretend.Serve(os.Args[2:]))
	}
	os.Exit(Main("dev", ""))
}

// TestScripts runs the scripts against a fake server, or against the real one that BOTHY_TEST_URL and
// BOTHY_TEST_KEY name.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 scripts,
		RequireExplicitExec: true,
		Setup:               setup,
		Condition:           condition,
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits":    exits,
			"save":     save,
			"live":     live,
			"stranger": stranger,
		},
	})
}

// condition implements [root], and [pretend] for a fake server.
func condition(name string) (bool, error) {
	switch name {
	case "root":
		return os.Geteuid() == 0, nil
	case "pretend":
		return os.Getenv(realURL) == "", nil
	}
	return false, fmt.Errorf("unknown condition %q", name)
}

// A real server to run the scripts against, and an admin's key to it.
const (
	realURL = "BOTHY_TEST_URL"
	realKey = "BOTHY_TEST_KEY"
)

type sessionKey struct{}

// setup gives every script its own server, or at least its own project.
func setup(env *testscript.Env) error {
	program, err := exec.LookPath("bothy")
	if err != nil {
		return err
	}
	env.Setenv("BOTHY", program)
	// With the race detector every program otherwise waits for a second at its end.
	env.Setenv("GORACE", "atexit_sleep_ms=0")
	address, taken, err := freeport.Take("127.0.0.1")
	if err != nil {
		return err
	}
	env.Defer(func() { _ = taken.Close() })
	env.Setenv("PORT", strings.TrimPrefix(address, "127.0.0.1:"))
	home := filepath.Join(env.WorkDir, "home")
	env.Setenv("HOME", home)
	state, err := stateFolder(env)
	if err != nil {
		return err
	}
	env.Setenv("BOTHY_HOME", state)
	keys, templates := pretendServer, os.Getenv("BOTHY_TEMPLATES")
	if os.Getenv(realURL) != "" { // a script may start a server, whose templates are its own
		keys, templates = realProject, filepath.Join(state, "linked")
		if out, err := exec.Command("../scripts/own-templates", templates).CombinedOutput(); err != nil {
			return fmt.Errorf("link the templates: %w: %s", err, out)
		}
	}
	env.Setenv("BOTHY_TEMPLATES", templates)
	if err := keys(env); err != nil {
		return err
	}
	s := newSession(client.New(env.Getenv("BOTHY_URL"), env.Getenv("BOTHY_API_KEY")))
	env.Values[sessionKey{}] = s
	env.Defer(func() { endAll(s) })
	return os.MkdirAll(home, 0o755)
}

// stateFolder makes a BOTHY_HOME that sentries, which run without privileges, can enter.
func stateFolder(env *testscript.Env) (string, error) {
	dir, err := os.MkdirTemp("", "bothy-state-")
	if err != nil {
		return "", err
	}
	env.Defer(func() {
		down := exec.Command("bothy", "down", "--terminate")
		down.Env = append(os.Environ(), "BOTHY_HOME="+dir)
		_ = down.Run()
		_ = os.RemoveAll(dir)
	})
	return dir, os.Chmod(dir, 0o711)
}

func pretendServer(env *testscript.Env) error {
	dir, err := os.MkdirTemp("", "bothy-pretend-")
	if err != nil {
		return err
	}
	world, err := pretend.New(dir)
	if err != nil {
		return err
	}
	server := httptest.NewServer(world.Handler())
	env.Defer(func() {
		server.CloseClientConnections()
		server.Close()
		world.Close()
		_ = os.RemoveAll(dir)
	})
	env.Setenv("BOTHY_URL", server.URL)
	env.Setenv("BOTHY_API_KEY", pretend.Key)
	env.Setenv("READ_KEY", pretend.ReadKey)
	return nil
}

func realProject(env *testscript.Env) error {
	url := os.Getenv(realURL)
	admin := client.New(url, os.Getenv(realKey))
	project := "scripts-" + strings.ToLower(rand.Text())
	if _, err := admin.Projects.CreateProject(context.Background(), bothy.ProjectCreate{ID: project, Plan: bothy.PlanUnlimited}); err != nil {
		return err
	}
	for name, scopes := range map[string][]bothy.Scope{
		"BOTHY_API_KEY": bothy.AllScopes, "READ_KEY": {bothy.ScopeSandboxesRead},
	} {
		token, err := admin.Tokens.CreateToken(context.Background(), bothy.TokenCreate{ProjectID: project, Scopes: scopes})
		if err != nil {
			return err
		}
		env.Setenv(name, token.Key)
	}
	env.Setenv("BOTHY_URL", url)
	return nil
}

// endAll terminates sandboxes that a script left behind.
func endAll(s *session) {
	list, _ := allSandboxes(context.Background(), s, bothy.SandboxFilter{States: bothy.LiveStates})
	for _, id := range sandboxIDs(list) {
		_ = s.sandboxes.Terminate(context.Background(), id)
	}
}

// exits runs a command and checks its exit code:
//
//	exits 3 bothy get sbx_nothing
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	code := 0
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if code != want {
		ts.Fatalf("exit code %d, want %d", code, want)
	}
}

// save stores the output of the last command, or the first group of a pattern in it:
//
//	save ID
//	save PID 'pid (\d+)'
func save(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: save VARIABLE [PATTERN]")
	}
	value := strings.TrimSpace(ts.ReadFile("stdout"))
	if len(args) == 2 {
		found := regexp.MustCompile(args[1]).FindStringSubmatch(value)
		if len(found) != 2 {
			ts.Fatalf("%q is not in %q", args[1], value)
		}
		value = found[1]
	}
	ts.Setenv(args[0], value)
}

// live checks the number of live sandboxes:
//
//	live 0
func live(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: live COUNT")
	}
	list, err := allSandboxes(context.Background(), ts.Value(sessionKey{}).(*session), bothy.SandboxFilter{States: bothy.LiveStates})
	ts.Check(err)
	if got := strconv.Itoa(len(list)); got != args[0] {
		ts.Fatalf("%s sandboxes live, want %s", got, args[0])
	}
}

// stranger writes the archive of a snapshot that another server signed:
//
//	stranger FILE
func stranger(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: stranger FILE")
	}
	dir, err := os.MkdirTemp("", "bothy-stranger-")
	ts.Check(err)
	defer os.RemoveAll(dir)
	world, err := pretend.New(dir)
	ts.Check(err)
	defer world.Close()
	l, ctx := world.Lifecycle, bothy.WithCaller(context.Background(), &bothy.Caller{ProjectID: bothy.DefaultProject, Scopes: bothy.AllScopes})
	sandbox, err := l.Create(ctx, bothy.SandboxCreate{})
	ts.Check(err)
	snap, err := l.CreateSnapshot(ctx, sandbox.ID, bothy.SnapshotCreate{Name: "nothing"})
	ts.Check(err)
	f, err := os.Create(ts.MkAbs(args[0]))
	ts.Check(err)
	defer f.Close()
	ts.Check(l.ExportSnapshot(ctx, snap.ID, "", f))
}
