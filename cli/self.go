package cli

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"os"
	"strings"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/client"
)

// connectToSelf makes a session with the server of this home if its certificate is in a file,
// or returns nil. The name in that certificate may lead to another host, so the server is
// called by its address, and only the certificate in the file is trusted.
func (a *app) connectToSelf() (*session, error) {
	server, err := runningServer()
	if err != nil || server == nil || server.Certificate == "" {
		return nil, err
	}
	c, err := adminCredentials(server)
	if err != nil {
		return nil, err
	}
	trust, err := trustOnly(server.Certificate)
	if err != nil {
		return nil, err
	}
	a.last.base = &http.Transport{TLSClientConfig: trust}
	options := []client.Option{client.WithUserAgent("bothy-cli/" + a.version), client.WithHTTPClient(&http.Client{Transport: &a.last})}
	return newSession(client.New("https://"+dialAddress(server.Listen), c.APIKey, options...)), nil
}

// trustOnly trusts the first certificate in a file, and no authority.
func trustOnly(file string) (*tls.Config, error) {
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
	return trust, nil
}
