// Package snapshot is the on-disk format of a snapshot: a folder with a manifest, the engine's
// files, and separately the sandbox's files. lifecycle writes and reads snapshots with it.
//
//	manifest.json   what it is, and the size and checksums of every part
//	memory/         what the engine needs to restore memory and processes
//	files.tar       the changes to the root file system, usable without memory
package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
)

// Version is the version of the format.
const Version = 1

// The names inside a snapshot's folder.
const (
	ManifestName = "manifest.json"
	MemoryDir    = "memory"
	FilesTar     = "files.tar"
)

// Manifest describes a snapshot. It contains the guest's key, so it is as secret as the memory
// in the same snapshot.
type Manifest struct {
	Version     int                `json:"version"`
	ID          string             `json:"id"`
	ProjectID   string             `json:"project_id,omitempty"`
	SandboxID   string             `json:"sandbox_id"`
	ParentID    string             `json:"parent_id,omitempty"`
	Name        string             `json:"name,omitempty"`
	Kind        bothy.SnapshotKind `json:"kind"`
	CreatedAt   time.Time          `json:"created_at"`
	Engine      string             `json:"engine"`
	EngineBuild string             `json:"engine_build"`
	Kernel      string             `json:"kernel,omitempty"`
	// Processor lists the processor features that the processes in memory may use.
	Processor *bothy.Processor `json:"processor,omitempty"`
	// Detail is why a snapshot has only files where memory could be expected.
	Detail   string `json:"detail,omitempty"`
	GuestKey string `json:"guest_key,omitempty"`
	// Checkpoint marks one that the server took by itself.
	Checkpoint bool   `json:"checkpoint,omitempty"`
	Sandbox    Origin `json:"sandbox"`
	Parts      []Part `json:"parts"`

	// Fresh marks files that were just written, are read once, and have no manifest on disk:
	// they are neither listed nor verified.
	Fresh bool `json:"-"`
}

// Origin is the sandbox that was saved, as far as a copy needs it.
type Origin struct {
	Name              string            `json:"name,omitempty"`
	Template          string            `json:"template"`
	TemplateDigest    string            `json:"template_digest"`
	CPU               float64           `json:"cpu"`
	MemoryMB          int               `json:"memory_mb"`
	DiskMB            int               `json:"disk_mb"`
	Network           bothy.Network     `json:"network"`
	TimeoutSeconds    int               `json:"timeout_seconds"`
	OnTimeout         bothy.OnTimeout   `json:"on_timeout"`
	IdleSeconds       int               `json:"idle_seconds,omitempty"`
	EndWhenIdle       bool              `json:"end_when_idle,omitempty"`
	AutoResume        bool              `json:"auto_resume,omitempty"`
	OnHostLoss        bothy.OnHostLoss  `json:"on_host_loss,omitempty"`
	CheckpointSeconds int               `json:"checkpoint_seconds,omitempty"`
	Accelerated       bool              `json:"require_acceleration,omitempty"`
	Env               map[string]string `json:"env,omitempty"`
	Metadata          map[string]string `json:"metadata,omitempty"`
	// HostLabels are of the cluster that took the snapshot, so an import drops them.
	HostLabels map[string]string `json:"host_labels,omitempty"`
}

// Part is one file of a snapshot. CRC32C is verified before every use, SHA256 when a snapshot
// is moved.
type Part struct {
	Name   string `json:"name"`
	Size   int64  `json:"size_bytes"`
	CRC32C string `json:"crc32c"`
	SHA256 string `json:"sha256"`
	// Sparse marks a file with holes. Its SHA-256 covers only its blocks with data, and Stored
	// is its size on disk.
	Sparse bool  `json:"sparse,omitempty"`
	Stored int64 `json:"stored_bytes,omitempty"`
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Seal lists the parts in dir with their checksums, and writes the manifest.
func Seal(ctx context.Context, dir string, m *Manifest) error {
	m.Version = Version
	names, err := partNames(dir)
	if err != nil {
		return err
	}
	parts := make([]Part, len(names))
	for i, name := range names {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		parts[i] = Part{Name: name, Sparse: storedBytes(info)+sparseBlock < info.Size()}
	}
	if m.Parts, err = sums(ctx, dir, parts, true); err != nil {
		return err
	}
	return write(dir, m)
}

// Rewrite writes the manifest of parts that are already verified.
func Rewrite(dir string, m *Manifest) error { return write(dir, m) }

func write(dir string, m *Manifest) error {
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, ManifestName), append(b, '\n'), 0o600)
}

// sums computes the checksums of several parts concurrently.
func sums(ctx context.Context, dir string, of []Part, strong bool) ([]Part, error) {
	parts, errs := make([]Part, len(of)), make([]error, len(of))
	var all sync.WaitGroup
	for i, p := range of {
		all.Go(func() {
			if p.Sparse {
				parts[i], errs[i] = sumSparse(ctx, dir, p, strong)
			} else {
				parts[i], errs[i] = sum(ctx, dir, p.Name, strong)
			}
		})
	}
	all.Wait()
	return parts, errors.Join(errs...)
}

func partNames(dir string) ([]string, error) {
	var names []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err == nil && name != ManifestName {
			names = append(names, name)
		}
		return err
	})
	return names, err
}

func sum(ctx context.Context, dir, name string, strong bool) (Part, error) {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return Part{}, err
	}
	defer f.Close()
	crc, sha := crc32.New(castagnoli), sha256.New()
	w := io.Writer(crc)
	if strong {
		w = io.MultiWriter(crc, sha)
	}
	n, err := io.CopyBuffer(w, &reader{ctx, f}, make([]byte, 1<<20))
	if err != nil {
		return Part{}, err
	}
	p := Part{Name: name, Size: n, CRC32C: hex.EncodeToString(crc.Sum(nil))}
	if strong {
		p.SHA256 = hex.EncodeToString(sha.Sum(nil))
	}
	return p, nil
}

// reader stops when its context ends, and hides the file's other methods.
type reader struct {
	ctx context.Context
	f   io.Reader
}

func (r *reader) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.f.Read(p)
}

// Read reads the manifest of the snapshot in dir.
func Read(dir string) (*Manifest, error) {
	b, err := os.ReadFile(filepath.Join(dir, ManifestName))
	if err != nil {
		return nil, damaged("it has no manifest").Because(err)
	}
	return Parse(b)
}

// Parse parses a manifest.
func Parse(b []byte) (*Manifest, error) {
	var m Manifest
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, damaged("its manifest cannot be read").Because(err)
	}
	if m.Version != Version {
		return nil, bothy.Errorf(bothy.CodeUnsupported, "the snapshot has format version %d, but this server supports %d", m.Version, Version).
			WithHint("Use the server that made it, or a newer one.")
	}
	return &m, nil
}

// Verify checks every part against the manifest, and that there are no others. With strong, it
// also checks the SHA-256.
func Verify(ctx context.Context, dir string, m *Manifest, strong bool) error {
	if err := checkListed(dir, m); err != nil {
		return err
	}
	for _, want := range m.Parts {
		if err := checkSize(dir, want); err != nil {
			return err
		}
	}
	got, err := sums(ctx, dir, m.Parts, strong)
	if err != nil {
		return fmt.Errorf("read a snapshot: %w", err)
	}
	for i, want := range m.Parts {
		if got[i].CRC32C != want.CRC32C || (strong && got[i].SHA256 != want.SHA256) {
			return damaged("the checksum of %s is wrong", want.Name)
		}
	}
	return nil
}

// checkListed returns an error if a file has no checksum.
func checkListed(dir string, m *Manifest) error {
	if m.Fresh {
		return nil
	}
	names, err := partNames(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !slices.ContainsFunc(m.Parts, func(p Part) bool { return p.Name == name }) {
			return damaged("it contains %s, which its manifest does not list", name)
		}
	}
	return nil
}

func checkSize(dir string, want Part) error {
	if !filepath.IsLocal(want.Name) {
		return damaged("its manifest names %q", want.Name)
	}
	info, err := os.Lstat(filepath.Join(dir, want.Name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return damaged("%s is missing", want.Name)
	case err != nil:
		return err
	case !info.Mode().IsRegular() || info.Size() != want.Size:
		return damaged("%s has %d bytes instead of %d", want.Name, info.Size(), want.Size)
	}
	return nil
}

// Has reports whether the manifest lists a part, or parts below a folder.
func (m *Manifest) Has(name string) bool {
	if m.Fresh {
		return name == MemoryDir
	}
	for _, p := range m.Parts {
		if p.Name == name || filepath.Dir(p.Name) == name {
			return true
		}
	}
	return false
}

// Size is the total size of the parts, in bytes.
func (m *Manifest) Size() (n int64) {
	for _, p := range m.Parts {
		if p.Sparse {
			n += p.Stored
		} else {
			n += p.Size
		}
	}
	return n
}

func damaged(format string, args ...any) *bothy.Error {
	return bothy.Errorf(bothy.CodeSnapshotDamaged, "the snapshot is damaged: "+format, args...).
		WithHint("Nothing was started from it. Use another snapshot of the same sandbox, or an exported archive.")
}
