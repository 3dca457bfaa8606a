package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/access/vault"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/webhook"
)

// openVault opens the key of the secrets. A missing one is made, unless there are secrets of an
// earlier one: whatever a new key seals would then be lost once the old one is restored.
func (s *Server) openVault(ctx context.Context) error {
	path := filepath.Join(s.config.Home, "secrets.key")
	_, err := os.Stat(path)
	missing := errors.Is(err, fs.ErrNotExist)
	if missing {
		all, _, err := s.membership.countSealed(ctx, nil)
		if err != nil {
			return err
		}
		if all > 0 {
			return bothy.Errorf(bothy.CodeConflict, "%s is missing, and %d sandboxes, webhooks and agents have secrets that only it opens", path, all).
				WithHint("Restore it from a backup. If it is lost for good, make a new one and the secrets again: head -c 32 /dev/urandom | sudo install -m 600 /dev/stdin %s", path)
		}
	}
	if s.vault, err = vault.Open(path); err != nil {
		return err
	}
	all, closed, err := s.membership.countSealed(ctx, s.vault)
	if closed > 0 {
		s.closedSecrets = fmt.Sprintf("secrets.key does not open the secrets of %d of %d sandboxes and webhooks: restore the key that belongs to the database", closed, all)
		s.log.Error(s.closedSecrets, "key", path)
	}
	return err
}

// countSealed counts the records with secrets, and those whose secrets a key does not open.
// Without a key it counts only.
func (s *Server) countSealed(ctx context.Context, v *vault.Vault) (all, closed int, err error) {
	count := func(sealed []byte, bound string) {
		if len(sealed) == 0 {
			return
		}
		all++
		if v == nil {
			return
		}
		if _, err := v.Open(sealed, bound); err != nil {
			closed++
		}
	}
	sandboxes, err := s.store.SandboxesInState(ctx, store.Unended...)
	if err != nil {
		return 0, 0, err
	}
	for _, sb := range sandboxes {
		count(sb.SealedSecrets, sb.ID)
	}
	webhooks, err := s.store.Webhooks(ctx, "")
	if err != nil {
		return 0, 0, err
	}
	for _, w := range webhooks {
		count(w.SealedSecret, webhook.SealedFor(w))
	}
	if v != nil {
		return all, closed, nil
	}
	agents, err := s.store.Agents(ctx, "")
	for _, a := range agents {
		count(a.Sealed, "")
	}
	return all, 0, err
}

// checker is a store that can look for damage in its files.
type checker interface {
	Check(ctx context.Context) error
}

// checkStore looks for damage in the database, while the server already works.
func (s *Server) checkStore() {
	db, ok := s.store.(checker)
	if !ok {
		return
	}
	s.undo.Add(s.inBackground(func(ctx context.Context) error {
		err := db.Check(ctx)
		if err != nil && ctx.Err() == nil {
			s.damage.Store(true)
			return err
		}
		return nil
	}, "the database is damaged; restore a backup of it"))
}
