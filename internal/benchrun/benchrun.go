// Package benchrun is how `bothy bench` runs the program bothy-bench to measure. They are two
// programs so that bothy contains none of its rivals. Only cli and cmd/bothy-bench use it.
package benchrun

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// Program is the name of the program that measures.
const Program = "bothy-bench"

// ErrNotInstalled is returned by Exec if the program is neither next to this one nor in $PATH.
var ErrNotInstalled = errors.New(Program + " is not installed")

// env carries the request, which holds a key and so must not be an argument.
const env = "BOTHY_BENCH_REQUEST"

// DefaultMaterials is the folder in which packages for the work_* results are kept.
const DefaultMaterials = "/var/cache/bothy-bench"

// A Request says what is measured, and how it is shown.
type Request struct {
	// Bothy is the program to measure, with its templates and kernels of virtual machines.
	Bothy, Templates, Kernels string
	// URL and Key are those of a running server to measure instead of one that bench starts;
	// empty for none.
	URL, Key string

	Engine, Template string
	Only, Against    []string
	Count, Sandboxes int
	Quick            bool
	Materials        string
	Scale            float64
	// Out is the folder for raw samples and plots, if any.
	Out  string
	JSON bool
}

// Exec replaces this process by the program that measures. It returns only on failure.
func Exec(r Request) error {
	program, err := find(filepath.Dir(r.Bothy))
	if err != nil {
		return err
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	err = syscall.Exec(program, []string{program}, append(os.Environ(), env+"="+string(text)))
	return fmt.Errorf("run %s: %w", program, err)
}

func find(folder string) (string, error) {
	beside := filepath.Join(folder, Program)
	if _, err := exec.LookPath(beside); err == nil {
		return beside, nil
	}
	found, err := exec.LookPath(Program)
	if err != nil {
		return "", ErrNotInstalled
	}
	return found, nil
}

// FromEnv returns the request of the process that called Exec. ok is false if there is none.
func FromEnv() (r Request, ok bool, err error) {
	text, ok := os.LookupEnv(env)
	if !ok {
		return r, false, nil
	}
	return r, true, json.Unmarshal([]byte(text), &r)
}
