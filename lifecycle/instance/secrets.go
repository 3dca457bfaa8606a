package instance

import (
	"encoding/json"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// maxSecrets limits the secrets of one sandbox.
const maxSecrets = 32

// sealed is what is encrypted in a sandbox's row.
type sealed struct {
	List []bothy.Secret `json:"list"`
	// Seed determines the placeholders that the sandbox sees. A copy with the secrets needs the
	// same seed, since its processes already hold the placeholders.
	Seed []byte `json:"seed"`
}

// SealSecrets checks a request's secrets and encrypts them into the sandbox.
func (s *Machines) SealSecrets(sb *store.Sandbox, list []bothy.Secret) error {
	if len(list) == 0 {
		return nil
	}
	return s.seal(sb, list, newEntropy())
}

// ReplaceSecrets replaces a sandbox's secrets. Those that keep their name keep their
// placeholder.
func (s *Machines) ReplaceSecrets(sb *store.Sandbox, list []bothy.Secret) error {
	v, err := s.openSecrets(sb)
	switch {
	case err != nil:
		return err
	case v == nil:
		return s.SealSecrets(sb, list)
	}
	return s.seal(sb, list, v.Seed)
}

func (s *Machines) seal(sb *store.Sandbox, list []bothy.Secret, seed []byte) error {
	if s.o.Vault == nil {
		return bothy.Errorf(bothy.CodeUnsupported, "this server does not support secrets").WithHint("Omit secrets.")
	}
	if len(list) > maxSecrets {
		return bothy.Errorf(bothy.CodeInvalid, "there are %d secrets", len(list)).WithHint("Give at most %d.", maxSecrets)
	}
	if s.o.CheckSecrets != nil && len(list) > 0 {
		if err := s.o.CheckSecrets(list); err != nil {
			return err
		}
	}
	return s.sealInto(sb, &sealed{List: list, Seed: seed})
}

func (s *Machines) sealInto(sb *store.Sandbox, v *sealed) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if sb.SealedSecrets, err = s.o.Vault.Seal(b, sb.ID); err != nil {
		return err
	}
	sb.SecretNames = nil
	for _, one := range v.List {
		sb.SecretNames = append(sb.SecretNames, one.Name)
	}
	return nil
}

// CopySecrets gives a copy the secrets of its origin.
func (s *Machines) CopySecrets(to, from *store.Sandbox) error {
	v, err := s.openSecrets(from)
	if err != nil || v == nil {
		return err
	}
	return s.sealInto(to, v)
}

// openSecrets returns nil for a sandbox without secrets.
func (s *Machines) openSecrets(sb *store.Sandbox) (*sealed, error) {
	if sb.SealedSecrets == nil {
		return nil, nil
	}
	b, err := s.o.Vault.Open(sb.SealedSecrets, sb.ID)
	if err != nil {
		return nil, err
	}
	v := &sealed{}
	return v, json.Unmarshal(b, v)
}

// GiveSecrets passes a sandbox's secrets to its gateway, and nowhere else.
func (s *Machines) GiveSecrets(gw bothy.Gateway, sb *store.Sandbox) error {
	v, err := s.openSecrets(sb)
	if err != nil {
		return err
	}
	keeper, ok := gw.(bothy.SecretKeeper)
	switch {
	case v == nil && ok && keeper.CAPEM() != nil: // remove earlier secrets
		return keeper.SetSecrets(nil, nil)
	case v == nil:
		return nil
	case !ok:
		return bothy.Errorf(bothy.CodeUnsupported, "this server's gateway does not support secrets").WithHint("Omit secrets.")
	}
	return keeper.SetSecrets(v.List, v.Seed)
}

// Vault encrypts what must not be stored in plain text. bound ties the ciphertext to its owner.
type Vault interface {
	Seal(plain []byte, bound string) ([]byte, error)
	Open(sealed []byte, bound string) ([]byte, error)
}
