package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

// program is a program or language that sandboxes run. Its line ends with 0 if it does what it should.
type program struct {
	name     string
	template string
	// Packages of Debian, of Python and of Node that it needs, beside what the template has.
	apt, pip, npm string
	// did says what the line does.
	did, line string
	// vm has it run in a virtual machine as well.
	vm bool
	// long keeps it out of `make test`, as does a download.
	long bool
}

func (p program) short() bool { return p.apt+p.pip+p.npm == "" && !p.long }

// install is a line that installs what it needs, or "".
func (p program) install() string {
	var do []string
	if p.apt != "" {
		do = append(do, "sudo DEBIAN_FRONTEND=noninteractive apt-get -q install --yes --no-install-recommends "+p.apt)
	}
	if p.pip != "" {
		do = append(do, "pip install -q "+p.pip)
	}
	if p.npm != "" {
		do = append(do, "npm install --no-fund --no-audit "+p.npm)
	}
	return strings.Join(do, " && ")
}

// from says where the program came from, for the page.
func (p program) from() string {
	var s []string
	for _, of := range []struct{ registry, packages string }{{"apt", p.apt}, {"pip", p.pip}, {"npm", p.npm}} {
		if of.packages != "" {
			s = append(s, of.registry+" `"+of.packages+"`")
		}
	}
	if s == nil {
		return "the template"
	}
	return strings.Join(s, ", ")
}

const compatibilityPage = "../../docs/compatibility.md"

var updatePage = flag.Bool("update", false, "write the table of docs/compatibility.md")

// TestCompatibilityPage compares the table of the page with the programs that are run.
func TestCompatibilityPage(t *testing.T) {
	var table strings.Builder
	table.WriteString("| program | template | from | what it did | engines |\n|---|---|---|---|---|\n")
	for _, p := range tried {
		engines := "gVisor"
		if p.vm {
			engines += ", virtual machine"
		}
		fmt.Fprintf(&table, "| %s | `%s` | %s | %s | %s |\n", p.name, p.template, p.from(), p.did, engines)
	}
	page, err := os.ReadFile(compatibilityPage)
	if err != nil {
		t.Fatal(err)
	}
	head, _, found := strings.Cut(string(page), "| program |")
	if want := head + table.String(); found && want == string(page) {
		return
	} else if !*updatePage {
		t.Fatal("the table of docs/compatibility.md is not that of the programs: run this test with -update")
	} else if err := os.WriteFile(compatibilityPage, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestPrograms runs the programs of docs/compatibility.md: those that are short, or, by `make
// test-programs`, all of them.
func TestPrograms(t *testing.T) {
	t.Parallel()
	all := os.Getenv("BOTHY_TEST_PROGRAMS") != ""
	s := shared
	if all {
		s = stoppedServer(t)
		s.NoPool, s.Args = true, []string{"--trust-host-ca"}
		if err := s.Start(); err != nil {
			t.Fatal(err)
		}
	}
	of := map[string][]program{}
	for _, p := range tried {
		if all || p.short() {
			of[p.template] = append(of[p.template], p)
		}
	}
	for template, some := range of {
		t.Run(template, func(t *testing.T) {
			t.Parallel()
			s.ensureTemplate(t, template)
			want := bothy.SandboxCreate{Template: template, MemoryMB: 1024}
			if all {
				want.MemoryMB, want.DiskMB, want.Network = 2048, 12288, &bothy.Network{Mode: bothy.NetworkRestricted}
				hours := 2 * 3600
				want.CPU, want.TimeoutSeconds = 2, &hours
			}
			b := s.newBox(t, want)
			if all {
				b.lineWithin(t, installs, "sudo apt-get -q update")
			}
			for _, p := range some {
				t.Run(p.name, func(t *testing.T) {
					if install := p.install(); install != "" && !b.lineWithin(t, installs, install) {
						return
					}
					b.lineWithin(t, installs, "mkdir -p /tmp/work && cd /tmp/work && set -e\n"+p.line)
				})
			}
		})
	}
}

// TestProgramsInAVirtualMachine runs those that the page lists for virtual machines.
func TestProgramsInAVirtualMachine(t *testing.T) {
	if os.Getenv("BOTHY_TEST_PROGRAMS") == "" {
		t.Skip("only `make test-programs` runs programs in virtual machines, which may be emulated")
	}
	of := map[string][]program{}
	for _, p := range tried {
		if p.vm {
			of[p.template] = append(of[p.template], p)
		}
	}
	s := ownServer(t)
	for template, some := range of {
		t.Run(template, func(t *testing.T) {
			s.ensureTemplate(t, template)
			b := s.newBox(t, bothy.SandboxCreate{Template: template, Engine: "microvm", MemoryMB: 1024, TimeoutSeconds: new(int)})
			for _, p := range some {
				t.Run(p.name, func(t *testing.T) {
					b.lineWithin(t, installs, "mkdir -p /tmp/work && cd /tmp/work && set -e\n"+p.line)
				})
			}
		})
	}
}

// lineWithin runs a line, and reports whether it ended with 0.
func (b *box) lineWithin(t *testing.T, d time.Duration, line string) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	r, err := b.s.Exec.Exec(ctx, b.id, bothy.ExecRequest{Command: bothy.Command{Line: line}})
	if err != nil {
		t.Error(err)
		return false
	}
	if r.ExitCode != 0 {
		t.Errorf("%s: exit code %d\n%s%s%s", line, r.ExitCode, r.Stdout, r.Stderr, r.Hint)
	}
	return r.ExitCode == 0
}
