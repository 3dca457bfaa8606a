package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/random"
	"github.com/bothy-dev/bothy/internal/wholefile"
	"github.com/bothy-dev/bothy/store"
)

const (
	// joinPath is where a new host redeems its token.
	joinPath = "/cluster/join"
	// inviteLife is how long a join token is valid.
	inviteLife = time.Hour
)

var hostName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// CheckName returns an error if a name is not valid for a host.
func CheckName(name string) error {
	if !hostName.MatchString(name) {
		return bothy.Errorf(bothy.CodeInvalid, "%q cannot name a host", name).WithHint("Use up to 63 lower-case letters, digits and dashes.")
	}
	return nil
}

type joinRequest struct {
	Secret string `json:"secret"`
}

// Grant is what a new host receives.
type Grant struct {
	// Key is the contents of secrets.key, which all hosts share.
	Key []byte `json:"key"`
	// Store is the URL of the database, without a password.
	Store string `json:"store"`
}

// Invitations lets new hosts join.
type Invitations struct {
	Hosts     store.Hosts
	Authority *Authority
	// Address is where a new host redeems its token.
	Address string
	Grant   Grant
}

// Invite creates a single-use join token.
func (i *Invitations) Invite(ctx context.Context) (*bothy.HostInvitation, error) {
	secret := random.Hex(32)
	if err := i.Hosts.AddHostToken(ctx, hashOf(secret), inviteLife); err != nil {
		return nil, err
	}
	t := joinToken{i.Address, i.Authority.fingerprint(), secret}.String()
	return &bothy.HostInvitation{Token: t, ExpiresAt: time.Now().Add(inviteLife).UTC().Truncate(time.Second), Command: "sudo bothy host join " + t}, nil
}

// ServeHTTP answers a host that joins.
func (i *Invitations) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var req joinRequest
	if r.Method != http.MethodPost || json.NewDecoder(io.LimitReader(r.Body, 4096)).Decode(&req) != nil {
		http.Error(w, "POST a join token", http.StatusBadRequest)
		return
	}
	ok, err := i.Hosts.UseHostToken(r.Context(), hashOf(req.Secret))
	switch {
	case err != nil:
		http.Error(w, "the database is not available", http.StatusServiceUnavailable)
	case !ok:
		http.Error(w, "the token is unknown, already used, or expired", http.StatusForbidden)
	default:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(i.Grant)
	}
}

// Join writes what a new host needs into its home, and returns the URL of the database. It
// refuses a home with secrets of its own before it uses the token.
func Join(ctx context.Context, token, home string) (storeURL string, err error) {
	t, err := parseToken(token)
	if err != nil {
		return "", err
	}
	path := filepath.Join(home, "secrets.key")
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return "", bothy.Errorf(bothy.CodeConflict, "%s belongs to another server: it contains %s", home, path).
			WithHint("Give the new host an empty BOTHY_HOME.")
	}
	if err := os.MkdirAll(home, 0o711); err != nil {
		return "", err
	}
	body, err := json.Marshal(joinRequest{t.Secret})
	if err != nil {
		return "", err
	}
	client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{TLSClientConfig: t.pinned()}}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+t.Address+joinPath, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	res, err := client.Do(req)
	if err != nil {
		return "", bothy.Errorf(bothy.CodeConflict, "cannot reach the host at %s: %v", t.Address, errors.Unwrap(err)).
			WithHint("Check that this host can connect to that address, and that the server there is running.").Because(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	if err != nil {
		return "", err
	}
	if res.StatusCode == http.StatusServiceUnavailable {
		return "", bothy.Errorf(bothy.CodeStore, "the host at %s cannot accept new hosts now: %s", t.Address, bytes.TrimSpace(answer)).
			WithHint("Try again with the same token once that host can reach its database.")
	}
	if res.StatusCode != http.StatusOK {
		return "", bothy.Errorf(bothy.CodeForbidden, "the host at %s refuses this one: %s", t.Address, bytes.TrimSpace(answer)).
			WithHint("Make another token there with `bothy host add`; each can be used once, within an hour.")
	}
	var g Grant
	if err := json.Unmarshal(answer, &g); err != nil {
		return "", err
	}
	return g.Store, wholefile.Write(path, g.Key, 0o600)
}
