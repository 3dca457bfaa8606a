package cli

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"strings"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/client"
)

// connect makes a session with the given server, or else the one in the credentials file. The
// file's key is sent only to the file's server.
func (a *app) connect() (*session, error) {
	c, err := a.credentials()
	if err != nil {
		return nil, err
	}
	options := []client.Option{client.WithUserAgent("bothy-cli/" + a.version)}
	if a.json {
		options = append(options, client.WithHTTPClient(&http.Client{Transport: &a.last}))
	}
	return newSession(client.New(c.URL, c.APIKey, options...)), nil
}

// credentials finds the URL and the key: in the flags, then the environment, then the file of the
// profile, or else the one that `bothy up` writes. A profile that a flag names comes before the
// environment.
func (a *app) credentials() (client.Credentials, error) {
	if a.profile != "" && a.key == "" {
		c, err := client.LoadProfile(a.profile)
		if err == nil && a.url != "" && !sameURL(a.url, c.URL) {
			err = usagef("Leave one of them out.", "--url is not that of the profile %s", a.profile)
		}
		return c, err
	}
	c := client.Credentials{URL: firstOf(a.url, os.Getenv("BOTHY_URL")), APIKey: firstOf(a.key, os.Getenv("BOTHY_API_KEY"))}
	if c.URL != "" && c.APIKey != "" {
		return c, nil
	}
	stored, path, err := storedCredentials()
	if err != nil {
		return c, err
	}
	if c.APIKey == "" && (c.URL == "" || sameURL(c.URL, stored.URL)) {
		c.APIKey = stored.APIKey
	}
	c.URL = firstOf(c.URL, stored.URL)
	return c, checkCredentials(c, path)
}

// storedCredentials reads the file of the profile in the environment, or else that of `bothy up`,
// which may be missing.
func storedCredentials() (c client.Credentials, path string, err error) {
	if name := os.Getenv("BOTHY_PROFILE"); name != "" {
		if c, err = client.LoadProfile(name); err == nil {
			path, err = client.ProfilePath(name)
		}
		return c, path, err
	}
	if path, err = client.CredentialsPath(); err != nil {
		return c, path, err
	}
	if c, err = readCredentials(path); errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return c, path, err
}

func checkCredentials(c client.Credentials, path string) error {
	const hint = "Start a server with `bothy up`, or set BOTHY_URL and BOTHY_API_KEY."
	switch {
	case c.URL == "":
		return bothy.Errorf(bothy.CodeUnauthenticated, "no server was named, and %s does not name one", path).WithHint(hint)
	case c.APIKey == "":
		return bothy.Errorf(bothy.CodeUnauthenticated, "no API key was given for %s", c.URL).WithHint(hint)
	}
	return nil
}

func firstOf(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

func sameURL(a, b string) bool {
	return strings.TrimRight(a, "/") == strings.TrimRight(b, "/")
}

func readCredentials(path string) (c client.Credentials, err error) {
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		err = bothy.Errorf(bothy.CodeInvalid, "the credentials in %s cannot be read: %v", path, reason(err)).
			WithHint("Remove the file and run `bothy up`, or set BOTHY_URL and BOTHY_API_KEY.").Because(err)
	}
	return c, err
}
