package snapshot

import (
	"context"
	"runtime/debug"
	"strconv"

	"filippo.io/age"

	"github.com/bothy-dev/bothy"
)

// WorkFactor is the logarithm of the work per guess at a passphrase. scrypt needs 2^WorkFactor
// KiB of memory, so archives may not require more. Only tests change it.
var WorkFactor = 18

// scryptTurn is held while a key is derived from a passphrase.
var scryptTurn = make(chan struct{}, 1)

// takeScryptTurn waits until no other call is deriving a key.
func takeScryptTurn(ctx context.Context) (release func(), err error) {
	select {
	case scryptTurn <- struct{}{}:
		return func() {
			// Free scrypt's memory, or the next derivation would double it.
			debug.FreeOSMemory()
			<-scryptTurn
		}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// recipient encrypts with a passphrase, one derivation at a time.
type recipient struct {
	ctx context.Context
	*age.ScryptRecipient
}

func newRecipient(ctx context.Context, passphrase string) (age.Recipient, error) {
	r, err := age.NewScryptRecipient(passphrase)
	if err != nil {
		return nil, err
	}
	r.SetWorkFactor(WorkFactor)
	return recipient{ctx, r}, nil
}

func (r recipient) Wrap(fileKey []byte) ([]*age.Stanza, error) {
	stanzas, _, err := r.WrapWithLabels(fileKey)
	return stanzas, err
}

func (r recipient) WrapWithLabels(fileKey []byte) ([]*age.Stanza, []string, error) {
	release, err := takeScryptTurn(r.ctx)
	if err != nil {
		return nil, nil, err
	}
	defer release()
	return r.ScryptRecipient.WrapWithLabels(fileKey)
}

// identity decrypts with a passphrase, one derivation at a time. age reads the archive's header
// before that, so a slow sender does not block others.
type identity struct {
	ctx context.Context
	*age.ScryptIdentity
}

func newIdentity(ctx context.Context, passphrase string) (age.Identity, error) {
	if passphrase == "" {
		return nil, bothy.Errorf(bothy.CodeInvalid, "the archive is encrypted").WithHint("Give its passphrase.")
	}
	id, err := age.NewScryptIdentity(passphrase)
	if err != nil {
		return nil, err
	}
	id.SetMaxWorkFactor(WorkFactor)
	return identity{ctx, id}, nil
}

func (i identity) Unwrap(stanzas []*age.Stanza) ([]byte, error) {
	for _, s := range stanzas {
		if s.Type != "scrypt" || len(s.Args) != 2 {
			continue
		}
		if asked, err := strconv.Atoi(s.Args[1]); err == nil && asked > WorkFactor {
			return nil, bothy.Errorf(bothy.CodeInvalid, "the archive requires a scrypt work factor of %d, but this server supports at most %d", asked, WorkFactor).
				WithHint("Import it as `bothy snapshot export` wrote it.")
		}
	}
	release, err := takeScryptTurn(i.ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	return i.ScryptIdentity.Unwrap(stanzas)
}
