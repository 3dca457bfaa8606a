//go:build linux && !clientonly

package cli

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/client"
)

// connectToSelf makes a session with the server of this home if it speaks TLS, or returns nil.
// The name in its certificate may lead to another host, so the server is called by its address.
// If the certificate is in a file, only that is trusted. One that was obtained by ACME must be
// valid for the name.
func (a *app) connectToSelf() (*session, error) {
	server, err := runningServer()
	if err != nil || server == nil {
		return nil, err
	}
	c, err := adminCredentials(server)
	switch {
	case server.Certificate == "" && (err != nil || !strings.HasPrefix(c.URL, "https://")):
		return nil, nil // the usual way says what is wrong
	case err != nil:
		return nil, err
	case server.Certificate == "":
		a.last.base, err = trustName(c.URL)
	default:
		a.last.base, err = trustOnly(server.Certificate)
	}
	if err != nil {
		return nil, err
	}
	options := []client.Option{client.WithUserAgent("bothy-cli/" + a.version), client.WithHTTPClient(&http.Client{Transport: &a.last})}
	return newSession(client.New("https://"+dialAddress(server.Listen), c.APIKey, options...)), nil
}

// trustName trusts what clients trust, for the name in a URL, whatever address is called.
func trustName(text string) (http.RoundTripper, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, err
	}
	t, ok := client.Transport().(*http.Transport)
	if !ok {
		return client.Transport(), nil
	}
	if t.TLSClientConfig == nil {
		t.TLSClientConfig = &tls.Config{}
	}
	t.TLSClientConfig.ServerName = u.Hostname()
	return t, nil
}

// trustOnly trusts the first certificate in a file, and no authority.
func trustOnly(file string) (http.RoundTripper, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	invalid := bothy.Errorf(bothy.CodeInvalid, "the file %s has no valid certificate of the server", file).
		WithHint("Check tls.cert_file in the server's settings.")
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, invalid
	}
	own, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, invalid.Because(err)
	}
	trust := &tls.Config{RootCAs: x509.NewCertPool()}
	trust.RootCAs.AddCert(own)
	switch {
	case len(own.DNSNames) > 0:
		trust.ServerName = strings.Replace(own.DNSNames[0], "*", "any", 1)
	case len(own.IPAddresses) > 0:
		trust.ServerName = own.IPAddresses[0].String()
	}
	return &http.Transport{TLSClientConfig: trust}, nil
}
