package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/config"
	"github.com/bothy-dev/bothy/engine/microvm"
	"github.com/bothy-dev/bothy/engine/microvm/boot"
	"github.com/bothy-dev/bothy/internal/embedded"
	"github.com/bothy-dev/bothy/internal/wholefile"
)

const (
	kvmDevice = "/dev/kvm"
	// kvmTimeout is how long a machine may take to boot under KVM. A good host needs a fraction
	// of it.
	kvmTimeout = 10 * time.Second
	// kvmAgain is how long a failure is cached: the host may only have been busy.
	kvmAgain = 24 * time.Hour
)

// Trial is the outcome of booting a machine under KVM.
type Trial struct {
	Acceleration bothy.Acceleration `json:"acceleration"`
	// Reason says why there is no acceleration.
	Reason string `json:"reason,omitempty"`

	// Of identifies the kernels and the QEMU that the outcome is valid for.
	Of string    `json:"of"`
	At time.Time `json:"at"`
}

// TryKVM determines whether virtual machines run under KVM or emulated, by booting one: on many
// hosts the device exists but does not work. With cached, an earlier outcome on the same host
// is used.
func TryKVM(ctx context.Context, c config.Config, b embedded.Paths, image boot.Image, cached bool) (t Trial, err error) {
	t = Trial{Acceleration: bothy.AccelerationEmulated, At: time.Now().UTC()}
	if c.Engine.Microvm.Acceleration == "emulated" {
		t.Reason = "the settings say so"
		return t, nil
	}
	defer func() {
		if err == nil && t.Acceleration == bothy.AccelerationEmulated && c.Engine.Microvm.Acceleration == "kvm" {
			err = bothy.Errorf(bothy.CodeEngineMissing, "the settings require KVM, which does not work here: %s", t.Reason).
				WithHint("Use a host with KVM, or set `engine.microvm.acceleration: auto`.")
		}
	}()
	if t.Reason = noKVM(kvmDevice); t.Reason != "" {
		return t, nil
	}
	if t.Of, err = kvmHost(image); err != nil {
		return t, err
	}
	file := filepath.Join(c.Engine.Microvm.Kernels, "kvm.json")
	if cached {
		if old, ok := readTrial(file, t.Of); ok {
			return old, nil
		}
	}
	dir, done, err := probeFolder()
	if err != nil {
		return t, err
	}
	defer done()
	short, cancel := context.WithTimeout(ctx, kvmTimeout)
	defer cancel()
	_, failed := startVM(short, dir, b, image, bothy.AccelerationKVM)
	switch {
	case ctx.Err() != nil:
		return t, ctx.Err()
	case bothy.ErrorCode(failed) == bothy.CodeEngineMissing:
		return t, failed // it would fail without KVM as well
	case failed == nil:
		t.Acceleration = bothy.AccelerationKVM
	case short.Err() != nil:
		t.Reason = fmt.Sprintf("%s exists, but a machine did not boot under it within %v", kvmDevice, kvmTimeout)
	default:
		t.Reason = fmt.Sprintf("%s exists, but a machine does not boot under it: %s", kvmDevice, oneLine(failed))
	}
	return t, writeTrial(file, t)
}

// maxReason limits the text of a failure, in bytes.
const maxReason = 240

// oneLine flattens an error for a log line, keeping its tail, which names the root cause.
func oneLine(err error) string {
	text := strings.TrimSuffix(strings.Join(strings.Fields(err.Error()), " "), ".")
	if len(text) > maxReason {
		text = "…" + strings.ToValidUTF8(text[len(text)-maxReason:], "")
	}
	return text
}

// noKVM returns why KVM cannot be tried, or "".
func noKVM(device string) string {
	f, err := os.OpenFile(device, os.O_RDWR, 0)
	switch {
	case err == nil:
		f.Close()
		return ""
	case errors.Is(err, fs.ErrNotExist):
		return "there is no " + device
	case errors.Is(err, fs.ErrPermission):
		return device + " may not be opened"
	}
	return fmt.Sprintf("%s cannot be opened: %v", device, errors.Unwrap(err))
}

// kvmHost identifies everything that may change whether KVM works.
func kvmHost(image boot.Image) (string, error) {
	qemu, err := exec.LookPath(microvm.DefaultQEMU)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(qemu)
	if err != nil {
		return "", err
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "", err
	}
	return fmt.Sprintf("Linux %s, %s of %d bytes and %s, %s %s", unix.ByteSliceToString(u.Release[:]),
		qemu, info.Size(), info.ModTime().UTC().Format(time.RFC3339), image.Version, image.Digest), nil
}

func readTrial(file, of string) (t Trial, ok bool) {
	data, err := os.ReadFile(file)
	if err != nil || json.Unmarshal(data, &t) != nil || t.Of != of {
		return t, false
	}
	return t, t.Acceleration == bothy.AccelerationKVM || time.Since(t.At) < kvmAgain
}

func writeTrial(file string, t Trial) error {
	data, err := json.Marshal(t)
	if err != nil {
		return err
	}
	return wholefile.Write(file, data, 0o600)
}
