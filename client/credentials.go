package client

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/secretfile"
)

// DefaultURL is where `bothy up` starts a server.
const DefaultURL = "http://127.0.0.1:7700"

// Credentials say which server to use, and with which key.
type Credentials struct {
	URL    string `json:"url"`
	APIKey string `json:"api_key"`
}

// CredentialsPath is the file that `bothy up` and `bothy serve` write: bothy/credentials.json in
// $XDG_CONFIG_HOME, or in ~/.config if that is not set.
func CredentialsPath() (string, error) {
	const name = "bothy/credentials.json"
	if xdg := os.Getenv("XDG_CONFIG_HOME"); filepath.IsAbs(xdg) { // as its specification has it
		return filepath.Join(xdg, name), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", bothy.Errorf(bothy.CodeInvalid, "there is no home folder to look for credentials in").
			WithHint("Set HOME, or BOTHY_URL and BOTHY_API_KEY.").Because(err)
	}
	return filepath.Join(home, ".config", name), nil
}

var profileName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// ProfilePath is the file of a profile, the credentials of another server: bothy/profiles/NAME.json
// in the same folder.
func ProfilePath(name string) (string, error) {
	if !profileName.MatchString(name) {
		return "", bothy.Errorf(bothy.CodeInvalid, "%q is not the name of a profile", name).
			WithHint("Use letters, digits, dots, dashes and underscores.")
	}
	path, err := CredentialsPath()
	return filepath.Join(filepath.Dir(path), "profiles", name+".json"), err
}

// LoadCredentials uses BOTHY_URL and BOTHY_API_KEY, and takes whatever is missing from the file, or
// from that of the profile that BOTHY_PROFILE names; but the file's key is only used for the file's
// server. Without any key the error is CodeUnauthenticated.
func LoadCredentials() (Credentials, error) {
	c := Credentials{URL: os.Getenv("BOTHY_URL"), APIKey: os.Getenv("BOTHY_API_KEY")}
	if c.URL == "" || c.APIKey == "" {
		stored, err := storedCredentials()
		if err != nil && c.APIKey == "" {
			return c, err
		}
		if c.APIKey == "" && (c.URL == "" || sameServer(c.URL, stored.URL)) {
			c.APIKey = stored.APIKey
		}
		if c.URL == "" {
			c.URL = stored.URL
		}
	}
	if c.URL == "" {
		c.URL = DefaultURL
	}
	if c.APIKey == "" {
		return c, bothy.Errorf(bothy.CodeUnauthenticated, "there is no API key for %s", c.URL).
			WithHint("Run `bothy up`, which makes one, or set BOTHY_API_KEY.")
	}
	return c, nil
}

func sameServer(a, b string) bool { return strings.TrimRight(a, "/") == strings.TrimRight(b, "/") }

// storedCredentials returns nothing, and no error, if there is no file.
func storedCredentials() (Credentials, error) {
	if name := os.Getenv("BOTHY_PROFILE"); name != "" {
		return LoadProfile(name)
	}
	path, err := CredentialsPath()
	if err != nil {
		return Credentials{}, err
	}
	c, err := readCredentials(path)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	return c, err
}

// LoadProfile reads the credentials of a profile.
func LoadProfile(name string) (Credentials, error) {
	path, err := ProfilePath(name)
	if err != nil {
		return Credentials{}, err
	}
	c, err := readCredentials(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = bothy.Errorf(bothy.CodeUnauthenticated, "there is no profile %q", name).
			WithHint("`bothy profile ls` lists them, and `bothy profile add` makes one.").Because(err)
	}
	return c, err
}

func readCredentials(path string) (c Credentials, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return c, err
	}
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err != nil {
		return Credentials{}, bothy.Errorf(bothy.CodeInvalid, "the credentials in %s cannot be read", path).
			WithHint("Remove the file and run `bothy up`, or set BOTHY_URL and BOTHY_API_KEY.").Because(err)
	}
	return c, nil
}

// SaveCredentials writes the file, readable only by its owner, atomically.
func SaveCredentials(c Credentials) error {
	path, err := CredentialsPath()
	if err != nil {
		return err
	}
	return save(path, c)
}

// SaveProfile does the same for a profile.
func SaveProfile(name string, c Credentials) error {
	path, err := ProfilePath(name)
	if err != nil {
		return err
	}
	return save(path, c)
}

func save(path string, c Credentials) error {
	text, err := json.MarshalIndent(c, "", "  ")
	if err == nil {
		err = secretfile.Write(path, append(text, '\n'))
	}
	if err != nil {
		return notSaved(path, err)
	}
	return nil
}

func notSaved(path string, err error) error {
	return bothy.Errorf(bothy.CodePermission, "the credentials cannot be written to %s", path).
		WithHint("Check the folder, or set BOTHY_URL and BOTHY_API_KEY instead.").Because(err)
}
