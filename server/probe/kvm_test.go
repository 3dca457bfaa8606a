package probe

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/config"
	"github.com/bothy-dev/bothy/engine/microvm/boot"
	"github.com/bothy-dev/bothy/internal/embedded"
)

func TestATrialOfKVMHoldsForTheSameHost(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kvm.json")
	if _, ok := readTrial(file, "host"); ok {
		t.Error("a trial that never was is known")
	}
	now := time.Now()
	for _, c := range []struct {
		what string
		Trial
		of   string
		want bool
	}{
		{"KVM works", Trial{Acceleration: bothy.AccelerationKVM, Of: "host", At: now.Add(-365 * 24 * time.Hour)}, "host", true},
		{"it failed", Trial{Acceleration: bothy.AccelerationEmulated, Reason: "no", Of: "host", At: now}, "host", true},
		{"it failed long ago", Trial{Acceleration: bothy.AccelerationEmulated, Of: "host", At: now.Add(-kvmAgain)}, "host", false},
		{"another kernel", Trial{Acceleration: bothy.AccelerationKVM, Of: "host", At: now}, "other", false},
	} {
		if err := writeTrial(file, c.Trial); err != nil {
			t.Fatal(err)
		}
		got, ok := readTrial(file, c.of)
		if ok != c.want || ok && (got.Acceleration != c.Acceleration || got.Reason != c.Reason) {
			t.Errorf("%s: %+v, %v", c.what, got, ok)
		}
	}
	if err := os.WriteFile(file, []byte("{torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, ok := readTrial(file, "host"); ok {
		t.Error("a torn file is believed")
	}
}

func TestKVMThatCannotBeOpened(t *testing.T) {
	dir := t.TempDir()
	for path, want := range map[string]string{
		filepath.Join(dir, "none"): "there is no ", dir: "cannot be opened: is a directory",
	} {
		if got := noKVM(path); !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	if got := noKVM(os.DevNull); got != "" {
		t.Errorf("what can be opened: %q", got)
	}
}

func TestSettingsDecideBeforeATrial(t *testing.T) {
	c := config.Default()
	c.Engine.Microvm.Acceleration = "emulated"
	got, err := TryKVM(t.Context(), c, embedded.Paths{}, boot.Image{}, true)
	if err != nil || got.Acceleration != bothy.AccelerationEmulated || got.Reason == "" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestTheReasonIsOneShortLine(t *testing.T) {
	if got := oneLine(errors.New("a\n b\tc.")); got != "a b c" {
		t.Errorf("got %q", got)
	}
	got := oneLine(errors.New(strings.Repeat("é", 500) + " at last"))
	if len(got) > maxReason+len("…") || !strings.HasSuffix(got, " at last") || !utf8.ValidString(got) {
		t.Errorf("got %d bytes: %q", len(got), got)
	}
}
