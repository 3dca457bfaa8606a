package agent

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/guest/wire/guestpb"
)

// identityState is the sandbox's identity. It is never changed, only replaced.
type identityState struct {
	adopted     bool
	sandboxID   string
	key         string
	keySum      [sha256.Size]byte
	env         map[string]string
	user        string
	cwd         string
	memoryLimit int64
	// generation counts adoptions.
	generation int
}

// identity holds the current state.
type identity struct {
	mu    sync.Mutex
	state *identityState
	// adopting is held while the sandbox gets a new identity, and guards the
	// fields below.
	adopting sync.Mutex
	// certificates is the checksum of the certificates added last, and the others are the values
	// written last. They are not rewritten, even in a copy: its files are from the same moment
	// as this memory.
	certificates                  [sha256.Size]byte
	resolver, hostname, machineID string
	mark                          *mark
}

func (i *identity) get() *identityState {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.state
}

func (i *identity) set(s identityState) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.state = &s
}

// isHostname reports whether s consists of at most 63 letters, digits and, except at
// the beginning, hyphens.
func isHostname(s string) bool {
	for i, c := range []byte(s) {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (c < '0' || c > '9') && (c != '-' || i == 0) {
			return false
		}
	}
	return 0 < len(s) && len(s) <= 63
}

// adopt gives the sandbox the identity in req. Only the key is essential: a
// sandbox whose user has broken /etc must still be able to wake up.
func (a *Agent) adopt(req *guestpb.AdoptRequest) (*guestpb.AdoptResponse, error) {
	if req.Key == "" {
		return nil, bothy.Errorf(bothy.CodeInvalid, "a sandbox cannot be adopted without a key")
	}
	if req.Hostname != "" && !isHostname(req.Hostname) {
		return nil, bothy.Errorf(bothy.CodeInvalid, "%q is not a host name", req.Hostname)
	}
	a.identity.adopting.Lock()
	defer a.identity.adopting.Unlock()
	old := a.identity.get()
	a.identity.set(identityState{
		adopted: true, sandboxID: req.SandboxId, key: req.Key, keySum: sha256.Sum256([]byte(req.Key)), env: req.Env,
		user: cmp.Or(req.DefaultUser, old.user), cwd: cmp.Or(req.DefaultCwd, old.cwd),
		memoryLimit: req.MemoryLimitBytes, generation: old.generation + 1,
	})
	if old.sandboxID == "" { // what ran before had no owner
		a.commands.ForgetEnded()
	}
	res := &guestpb.AdoptResponse{Version: a.opt.Version, Kernel: kernelName()}
	for _, step := range []func(*guestpb.AdoptRequest) error{
		a.adoptEntropy, a.adoptHostname, a.adoptMachineID, a.adoptResolver, a.adoptCertificates,
	} {
		if err := step(req); err != nil {
			res.Warnings = append(res.Warnings, err.Error())
		}
	}
	res.NeedCaBundle = a.needsCertificates(req)
	if req.UnixNano != 0 {
		res.ClockSkewNs = a.adoptClock(time.Unix(0, req.UnixNano))
	}
	if !res.NeedCaBundle { // or the caller retries
		a.notifyAdopted()
		a.code.Adopted()
	}
	return res, nil
}

// adoptEntropy makes this copy's randomness its own, as far as the kernel hands it out, and
// updates a mark that programs can watch.
func (a *Agent) adoptEntropy(req *guestpb.AdoptRequest) error {
	if len(req.Entropy) == 0 {
		return nil
	}
	if !a.sentry {
		_ = writeRaw("/dev/urandom", unix.O_WRONLY, 0, string(req.Entropy))
	}
	sum := sha256.Sum256(append([]byte("generation"), req.Entropy...))
	return a.leaveMark(hex.EncodeToString(sum[:16]) + "\n")
}

func (a *Agent) adoptHostname(req *guestpb.AdoptRequest) error {
	if req.Hostname == "" {
		return nil
	}
	if a.opt.SetHostname != nil {
		if err := a.opt.SetHostname(req.Hostname); err != nil {
			return fmt.Errorf("set host name: %w", err)
		}
	}
	if req.Hostname == a.identity.hostname {
		return nil
	}
	old := a.identity.hostname
	if old == "" { // this guest is new, but its files may be old
		text, _ := readSmall(filepath.Join(a.opt.Root, "/etc/hostname"))
		old = strings.TrimSpace(text)
	}
	if err := a.replaceFile("/etc/hostname", req.Hostname+"\n", 0o644); err != nil {
		return err
	}
	// What cannot be read is replaced, and an unusable name is that of no line.
	hosts, err := readSmall(filepath.Join(a.opt.Root, "/etc/hosts"))
	if errors.Is(err, unix.EFBIG) {
		return err // a long list of a user's is worth more than the name
	}
	if err := a.replaceFile("/etc/hosts", withHostname(hosts, old, req.Hostname), 0o644); err != nil {
		return err
	}
	a.identity.hostname = req.Hostname
	return nil
}

// withHostname returns the text of /etc/hosts with another name of this machine. The line with its
// old name is changed, and all others stay, for they are a user's.
func withHostname(hosts, old, hostname string) string {
	addr := bothy.GuestAddr.String()
	var b strings.Builder
	var localhost, named bool
	for line := range strings.Lines(hosts) {
		line = strings.TrimSuffix(line, "\n")
		entry, comment, commented := strings.Cut(line, "#")
		fields := strings.Fields(entry)
		localhost = localhost || len(fields) > 0 && slices.Contains(fields[1:], "localhost")
		if len(fields) > 0 && (fields[0] == addr || fields[0] == "127.0.1.1") {
			if at := slices.IndexFunc(fields[1:], func(s string) bool { return s == old || s == hostname }); at >= 0 {
				fields[0], fields[1+at], named = addr, hostname, true
				line = fields[0] + "\t" + strings.Join(fields[1:], " ")
				if commented {
					line += " #" + comment
				}
			}
		}
		b.WriteString(line + "\n")
	}
	if !named {
		b.WriteString(addr + "\t" + hostname + "\n")
	}
	if !localhost {
		return "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n" + b.String()
	}
	return b.String()
}

func (a *Agent) adoptMachineID(req *guestpb.AdoptRequest) error {
	if req.MachineId == "" || req.MachineId == a.identity.machineID {
		return nil
	}
	err := a.replaceFile("/etc/machine-id", req.MachineId+"\n", 0o444)
	if err == nil {
		a.identity.machineID = req.MachineId
		err = a.adoptBoot(req.MachineId)
	}
	return err
}

func (a *Agent) adoptResolver(req *guestpb.AdoptRequest) error {
	if req.ResolvConf == "" || req.ResolvConf == a.identity.resolver {
		return nil
	}
	err := a.replaceFile("/etc/resolv.conf", req.ResolvConf, 0o644)
	if err == nil {
		a.identity.resolver = req.ResolvConf
	}
	return err
}

// certificates is where Debian and most others keep trusted certificates.
const certificates = "/etc/ssl/certs/ca-certificates.crt"

// needsCertificates reports whether the caller has certificates that are new here and were not
// sent.
func (a *Agent) needsCertificates(req *guestpb.AdoptRequest) bool {
	return req.CaBundle == "" && len(req.CaBundleSha256) > 0 && !bytes.Equal(req.CaBundleSha256, a.identity.certificates[:])
}

// adoptCertificates adds new certificates to those that the sandbox trusts.
func (a *Agent) adoptCertificates(req *guestpb.AdoptRequest) error {
	sum := sha256.Sum256([]byte(req.CaBundle))
	if req.CaBundle == "" || sum == a.identity.certificates {
		return nil
	}
	have, err := readBounded(filepath.Join(a.opt.Root, certificates), 8<<20)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	known := make(map[string]bool)
	for cert := range eachCertificate(string(have)) {
		known[cert] = true
	}
	var missing strings.Builder
	for cert := range eachCertificate(req.CaBundle) {
		if !known[cert] {
			missing.WriteString(cert + "\n")
		}
	}
	if missing.Len() > 0 {
		if len(have) > 0 && have[len(have)-1] != '\n' {
			have = append(have, '\n')
		}
		if err := a.replaceFile(certificates, string(have)+missing.String(), 0o644); err != nil {
			return err
		}
	}
	a.identity.certificates = sum
	return nil
}

// eachCertificate splits PEM into certificates, without the text between them.
func eachCertificate(pem string) iter.Seq[string] {
	const begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
	return func(yield func(string) bool) {
		for {
			i := strings.Index(pem, begin)
			if i < 0 {
				return
			}
			n := strings.Index(pem[i:], end)
			if n < 0 || !yield(pem[i:i+n+len(end)]) {
				return
			}
			pem = pem[i+n+len(end):]
		}
	}
}

// adoptClock returns how far the clock was behind, and sets it if the difference matters and
// setting it is possible.
func (a *Agent) adoptClock(host time.Time) int64 {
	skew := time.Until(host)
	if a.opt.SetClock != nil && skew.Abs() > time.Second {
		if err := a.opt.SetClock(host); err != nil {
			a.opt.Log.Printf("set clock: %v", err)
		}
	}
	return int64(skew)
}

// replaceFile replaces whatever is at a path with a new file. A user may have put a pipe or a
// link there, so nothing existing is opened. If a file is mounted there and cannot be replaced,
// it is written to.
func (a *Agent) replaceFile(path, text string, mode os.FileMode) error {
	path = filepath.Join(a.opt.Root, path)
	temp := path + ".bothy"
	err := writeNew(temp, text, mode)
	if err != nil { // rare: something is in the way, or the folder is missing
		_ = os.Remove(temp)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		err = writeNew(temp, text, mode)
	}
	if err == nil {
		err = unix.Rename(temp, path)
	}
	if err != nil {
		_ = os.Remove(temp)
		return overwrite(path, text)
	}
	return nil
}

func writeNew(path, text string, mode os.FileMode) error {
	return writeRaw(path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, uint32(mode.Perm()), text)
}

// writeRaw writes to a file in the fewest system calls: package os would check whether it can be
// polled, which takes half the time of an adoption.
func writeRaw(path string, flags int, mode uint32, text string) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, mode)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	for rest := []byte(text); len(rest) > 0; {
		n, err := unix.Write(fd, rest)
		if err != nil && err != unix.EINTR {
			return &os.PathError{Op: "write", Path: path, Err: err}
		}
		rest = rest[max(n, 0):]
	}
	return nil
}

// readSmall reads a regular file of at most a MiB, in as few system calls as writeRaw.
func readSmall(path string) (string, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	switch err := unix.Fstat(fd, &st); {
	case err != nil:
		return "", &os.PathError{Op: "stat", Path: path, Err: err}
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return "", &os.PathError{Op: "read", Path: path, Err: unix.EINVAL}
	case st.Size > 1<<20:
		return "", &os.PathError{Op: "read", Path: path, Err: unix.EFBIG}
	}
	b := make([]byte, st.Size)
	n, err := unix.Read(fd, b)
	if err != nil {
		return "", &os.PathError{Op: "read", Path: path, Err: err}
	}
	return string(b[:n]), nil
}

func overwrite(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return err
}

// readBounded reads a regular file that is no longer than limit.
func readBounded(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() || st.Size() > limit {
		return nil, fmt.Errorf("%s is not a regular file of at most %d bytes", path, limit)
	}
	return io.ReadAll(io.LimitReader(f, limit))
}

var kernelName = sync.OnceValue(func() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
})
