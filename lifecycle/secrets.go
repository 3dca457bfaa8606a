package lifecycle

import (
	"encoding/json"

	"github.com/bothy-dev/bothy"
)

// maxSecrets bounds the secrets of one sandbox.
const maxSecrets = 32

// sealSecrets encrypts a request's secrets into the sandbox.
func (s *Service) sealSecrets(sb *bothy.Sandbox, list []bothy.Secret) error {
	if len(list) == 0 {
		return nil
	}
	if s.o.Vault == nil {
		return bothy.Errorf(bothy.CodeUnsupported, "this server keeps no secrets").WithHint("Leave secrets out.")
	}
	if len(list) > maxSecrets {
		return invalid("there are %d secrets", len(list)).WithHint("Give at most %d.", maxSecrets)
	}
	b, err := json.Marshal(list)
	if err != nil {
		return err
	}
	sb.SealedSecrets, err = s.o.Vault.Seal(b, sb.ID)
	return err
}

func (s *Service) openSecrets(sb *bothy.Sandbox) ([]bothy.Secret, error) {
	if sb.SealedSecrets == nil {
		return nil, nil
	}
	b, err := s.o.Vault.Open(sb.SealedSecrets, sb.ID)
	if err != nil {
		return nil, err
	}
	var list []bothy.Secret
	return list, json.Unmarshal(b, &list)
}

// giveSecrets puts a sandbox's secrets into its gateway, and nowhere else.
func (s *Service) giveSecrets(gw bothy.Gateway, sb *bothy.Sandbox) error {
	list, err := s.openSecrets(sb)
	if err != nil || list == nil {
		return err
	}
	keeper, ok := gw.(bothy.SecretKeeper)
	if !ok {
		return bothy.Errorf(bothy.CodeUnsupported, "this server's gateway keeps no secrets").WithHint("Leave secrets out.")
	}
	return keeper.SetSecrets(list)
}
