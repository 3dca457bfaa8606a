package build

import (
	"context"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/template/tree"
	"golang.org/x/sys/unix"
)

// mounts are the mounts of a RUN --mount. They are placed among the files for the command, and
// removed from its result.
type mounts struct {
	j    *job
	list []mounted
	// keys are what the result depends on.
	keys []any
	// variables are secrets given as environment variables.
	variables map[string]string
}

type mounted struct {
	Mount
	node   *tree.Node // what is placed
	cache  string     // where a cache is stored
	secret string     // written into the running sandbox
}

// mounts resolves the mounts of a step.
func (j *job) mounts(ctx context.Context, st *state, s Step) (*mounts, error) {
	m := &mounts{j: j, variables: map[string]string{}}
	for _, one := range s.Mounts {
		if one.Target != "" && !path.IsAbs(one.Target) {
			one.Target = path.Join("/", st.settings.Workdir, one.Target)
		}
		var err error
		switch one.Type {
		case "secret":
			err = m.secret(one)
		case "cache":
			err = m.cache(ctx, one)
		case "bind":
			err = m.bind(ctx, one)
		case "tmpfs":
			m.keys = append(m.keys, one)
			m.list = append(m.list, mounted{Mount: one, node: folder(0o1777, 0, 0)})
		default:
			err = fmt.Errorf("RUN --mount=type=%s is not supported", one.Type)
		}
		if err != nil {
			return nil, err
		}
	}
	return m, nil
}

func folder(mode, uid, gid uint32) *tree.Node {
	n := tree.New(epoch).Root()
	n.Mode, n.UID, n.GID = unix.S_IFDIR|mode, uid, gid
	return n
}

// secret is a file, a variable, or both. Its value is not part of the key: changing only a
// secret does not run a step again.
func (m *mounts) secret(one Mount) error {
	if one.ID == "" {
		one.ID = path.Base(one.Target)
	}
	m.keys = append(m.keys, one)
	for _, s := range m.j.req.Secrets {
		if s.ID != one.ID {
			continue
		}
		if one.Env != "" {
			m.variables[one.Env] = s.Value
		}
		if one.Target == "" && one.Env != "" {
			return nil
		}
		if one.Target == "" {
			one.Target = "/run/secrets/" + one.ID
		}
		if one.Mode &= 0o777; one.Mode == 0 {
			one.Mode = 0o400
		}
		// The file is there before its text, which then keeps the file's owner and mode.
		file := &tree.Node{Mode: unix.S_IFREG | uint32(one.Mode), UID: uint32(one.UID), GID: uint32(one.GID), Time: epoch}
		m.list = append(m.list, mounted{Mount: one, node: file, secret: s.Value})
		return nil
	}
	if one.Required {
		return bothy.Errorf(bothy.CodeInvalid, "the secret %s is required but was not given", one.ID).WithHint("Give it: --secret id=%s,src=FILE.", one.ID)
	}
	return nil
}

// cache is a folder that is kept between builds. It belongs to the project.
func (m *mounts) cache(_ context.Context, one Mount) error {
	if one.ID == "" {
		one.ID = path.Clean(one.Target)
	}
	m.keys = append(m.keys, one)
	m.list = append(m.list, mounted{Mount: one, cache: m.j.b.cache.path(mountsDir, m.j.project, keyOf("mount", m.j.project, one.ID))})
	return nil
}

// bind shows files of the context, of another stage or of an image. Changes there are
// discarded.
func (m *mounts) bind(ctx context.Context, one Mount) error {
	from, key := m.j.context, ""
	if one.From != "" {
		src, err := m.j.source(ctx, one.From)
		if err != nil {
			return err
		}
		if from, err = src.tree(ctx); err != nil {
			return err
		}
		key = src.key
	}
	n, err := from.Get(one.Source)
	if err != nil {
		return fmt.Errorf("RUN --mount=type=bind: %q: not found", path.Join("/", one.Source))
	}
	if key == "" {
		m.j.sumsMu.Lock()
		key, err = m.j.sums.sum(ctx, n)
		m.j.sumsMu.Unlock()
		if err != nil {
			return err
		}
	}
	plain := one
	plain.From = ""
	m.keys = append(m.keys, plain, key)
	if n.IsDir() {
		n = tree.Sub(n).Root()
	}
	m.list = append(m.list, mounted{Mount: one, node: n})
	return nil
}

// lock locks the caches: one command at a time uses each.
func (m *mounts) lock(ctx context.Context) (unlock func(), err error) {
	var held []chan struct{}
	unlock = func() {
		for _, c := range held {
			<-c
		}
	}
	seen := map[string]bool{}
	for _, one := range m.list {
		if one.cache == "" || seen[one.cache] {
			continue
		}
		seen[one.cache] = true
		c := m.j.b.cache.locks.get(one.cache)
		select {
		case c <- struct{}{}:
			held = append(held, c)
		case <-ctx.Done():
			unlock()
			return nil, context.Cause(ctx)
		}
	}
	return unlock, nil
}

// place adds the mounts to the files.
func (m *mounts) place(ctx context.Context, t *tree.Tree) error {
	for i, one := range m.list {
		if one.cache != "" {
			n, err := m.open(ctx, one)
			if err != nil {
				return err
			}
			m.list[i].node = n
			one.node = n
		}
		if one.node == nil {
			continue
		}
		at, err := t.Resolve(one.Target, true)
		if err != nil {
			return err
		}
		if err := t.Put(at, one.node); err != nil {
			return err
		}
	}
	return nil
}

// tell writes the secrets into a running sandbox, so that they are on no other disk.
func (m *mounts) tell(ctx context.Context, sandbox string) error {
	for _, one := range m.list {
		if one.Type != "secret" {
			continue
		}
		_, err := m.j.b.o.Files.Write(ctx, sandbox, one.Target, strings.NewReader(one.secret), bothy.WriteOptions{User: "root"})
		if err != nil {
			return err
		}
	}
	return nil
}

// open reads a cache, or creates one.
func (m *mounts) open(ctx context.Context, one mounted) (*tree.Node, error) {
	mode := uint32(0o755)
	if one.Mode != 0 {
		mode = uint32(one.Mode) & 0o7777
	}
	if !m.j.hold.has(one.cache) {
		if one.From == "" {
			return folder(mode, uint32(one.UID), uint32(one.GID)), nil
		}
		src, err := m.j.source(ctx, one.From)
		if err != nil {
			return nil, err
		}
		t, err := src.tree(ctx)
		if err != nil {
			return nil, err
		}
		n, err := t.Get(one.Source)
		if err != nil || !n.IsDir() {
			return nil, fmt.Errorf("RUN --mount=type=cache: %s is not a folder there", path.Join("/", one.Source))
		}
		return tree.Sub(n).Root(), nil
	}
	t := tree.New(epoch)
	if err := t.Apply(ctx, one.cache, tree.Overlay, tree.NewBudget()); err != nil {
		return nil, fmt.Errorf("read the cache %s: %w", one.ID, err)
	}
	return t.Root(), nil
}

// targets are the paths to exclude from the command's result.
func (m *mounts) targets(old *tree.Tree) []string {
	var list []string
	for _, one := range m.list {
		at, err := old.Resolve(one.Target, true)
		if err == nil {
			list = append(list, at)
		}
	}
	return list
}

// keep stores the caches as the command left them.
func (m *mounts) keep(after *tree.Tree) error {
	for _, one := range m.list {
		if one.cache == "" || one.ReadOnly {
			continue
		}
		n, err := after.Get(one.Target)
		if err != nil || !n.IsDir() {
			continue // the command has removed it
		}
		f, err := m.j.b.cache.create(one.cache)
		if err != nil {
			return err
		}
		err = tree.Sub(n).WriteLayer(tree.New(time.Time{}), m.j.toCache(f))
		if e := f.Close(); err == nil {
			err = e
		}
		if err == nil {
			err = m.j.b.cache.replace(f.Name(), one.cache)
		}
		if err != nil {
			os.Remove(f.Name())
			return fmt.Errorf("keep the cache %s: %w", one.ID, err)
		}
	}
	return nil
}

const (
	// maxSecretLines limits the lines of all secrets: the log is searched for each.
	maxSecretLines = 1000
	// maskPiece is how many bytes of a secret are searched for at once. The log's lines are split
	// too, and preparing the search for a long text takes long.
	maskPiece = 512
)

// masker masks the values of secrets in the log.
func masker(req *bothy.BuildRequest) *strings.Replacer {
	var values, pairs []string
	for _, s := range req.Secrets {
		values = append(values, s.Value)
	}
	for _, l := range req.Registries {
		values = append(values, l.Password)
	}
	for _, value := range values {
		for line := range strings.Lines(value) {
			for piece := range slices.Chunk([]byte(strings.TrimSpace(line)), maskPiece) {
				if len(piece) >= 3 {
					pairs = append(pairs, string(piece), "***")
				}
			}
		}
	}
	return strings.NewReplacer(pairs...)
}
