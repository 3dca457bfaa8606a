package client_test

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/bothy-dev/bothy/client"
)

// A server that speaks HTTP/2 is spoken to with HTTP/1.1.
func TestTransportOverTLS(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(r.Proto)) }))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	http.DefaultTransport.(*http.Transport).Clone() // which prepares it for HTTP/2
	t.Setenv(client.CAFileEnv, file)
	for range 2 {
		res, err := (&http.Client{Transport: client.Transport()}).Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if res.ProtoMajor != 1 {
			t.Error(res.Proto)
		}
	}
}
