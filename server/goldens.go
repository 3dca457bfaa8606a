package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/disk"
	"github.com/bothy-dev/bothy/lifecycle/warm"
	"github.com/bothy-dev/bothy/snapshot"
	"github.com/bothy-dev/bothy/store"
)

// goldenRecord is what hosts tell each other about a golden snapshot. Its manifest lists the
// files' checksums.
type goldenRecord struct {
	// Manifest is the SHA-256 of the manifest.
	Manifest string       `json:"manifest_sha256"`
	Files    []goldenFile `json:"files"`
}

type goldenFile struct {
	Name string      `json:"name"`
	Size int64       `json:"size_bytes"`
	Mode fs.FileMode `json:"mode"`
}

func readGoldenRecord(text []byte) (*goldenRecord, error) {
	r := &goldenRecord{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, err
	}
	for _, f := range r.Files {
		if !filepath.IsLocal(f.Name) || filepath.Clean(f.Name) != f.Name || f.Size < 0 || f.Mode&^fs.ModePerm != 0 {
			return nil, fmt.Errorf("the record of a golden snapshot has an invalid file name, size or mode: %q", f.Name)
		}
	}
	return r, nil
}

// hostGoldens shares golden snapshots between the hosts of a cluster.
type hostGoldens struct{ s *Server }

// sharedGoldens returns the golden snapshots of the other hosts. It is nil without a cluster.
func (s *Server) sharedGoldens() warm.SharedGoldens {
	if s.hosts == nil {
		return nil
	}
	return hostGoldens{s}
}

// Fetch implements warm.SharedGoldens.
func (g hostGoldens) Fetch(ctx context.Context, name, dir string) error {
	t, err := g.s.shared.Tree(ctx, store.TreeGoldens, name)
	if err != nil {
		return err
	}
	r, err := readGoldenRecord(t.Record)
	if err != nil {
		return err
	}
	if err := roomForBytes(dir, t.Bytes, g.s.config.Snapshots.MinFreeDiskMB<<20); err != nil {
		return err
	}
	var files []treeFile
	for _, f := range r.Files {
		files = append(files, treeFile{f.Name, f.Size})
	}
	if err := g.s.fetchTree(ctx, t, dir, files); err != nil {
		return err
	}
	for _, f := range r.Files {
		if err := os.Chmod(filepath.Join(dir, f.Name), f.Mode); err != nil {
			return err
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, snapshot.ManifestName))
	if err != nil {
		return err
	}
	if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != r.Manifest {
		return bothy.Errorf(bothy.CodeSnapshotDamaged, "the manifest of the fetched golden snapshot %s differs from the published one", name)
	}
	return nil
}

// Made implements warm.SharedGoldens.
func (g hostGoldens) Made(name string) {
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), compareTime)
		defer cancel()
		if err := g.s.publishGolden(ctx, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			g.s.log.Warn("cannot publish a golden snapshot to the other hosts; trying again later", "name", name, "error", err)
		} else if err == nil {
			g.s.log.Info("published a golden snapshot to the other hosts", "name", name)
		}
	}()
}

// publishGoldens tells the other hosts about the golden snapshots on this one. It repeats each
// regularly, since those that no host announces are deleted from the object storage.
func (s *Server) publishGoldens(ctx context.Context, told map[string]time.Time) error {
	names, err := s.golden.List(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		if time.Since(told[name]) < tellAgain {
			continue
		}
		if err := s.publishGolden(ctx, name); errors.Is(err, fs.ErrNotExist) {
			continue // deleted meanwhile
		} else if err != nil {
			return err
		}
		told[name] = time.Now()
	}
	return nil
}

func (s *Server) publishGolden(ctx context.Context, name string) error {
	dir, release, err := s.golden.Open(ctx, name)
	if err != nil {
		return err
	}
	defer release()
	manifest, err := s.manifestSum(name)
	if err != nil {
		return err
	}
	r := goldenRecord{Manifest: manifest}
	var bytes int64
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		r.Files = append(r.Files, goldenFile{rel, info.Size(), info.Mode().Perm()})
		bytes += info.Size()
		return err
	})
	if err != nil {
		return err
	}
	record, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return s.shared.PutTree(ctx, store.Tree{Kind: store.TreeGoldens, Name: name, Host: s.config.Cluster.Name, Bytes: bytes, At: time.Now(), Record: record})
}

// manifestSum is the SHA-256 of the manifest of a golden snapshot on this host.
func (s *Server) manifestSum(name string) (string, error) {
	f, err := s.openGoldenFile(name, snapshot.ManifestName)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return hex.EncodeToString(h.Sum(nil)), err
}

// openGoldenFile opens a file of a golden snapshot for another host.
func (s *Server) openGoldenFile(name, file string) (*os.File, error) {
	names, err := s.golden.List(context.Background())
	if err != nil {
		return nil, err
	}
	if !slices.Contains(names, name) || !filepath.IsLocal(file) || filepath.Clean(file) != file {
		return nil, fs.ErrNotExist
	}
	dir, release, err := s.golden.Open(context.Background(), name)
	if err != nil {
		return nil, err
	}
	defer release()
	return os.Open(filepath.Join(dir, file))
}

func roomForBytes(dir string, bytes, free int64) error {
	have, err := disk.Free(dir)
	if err == nil && bytes > have-free {
		err = bothy.Errorf(bothy.CodeDiskFull, "the host's disk has no room to fetch %d MB", bytes>>20)
	}
	return err
}
