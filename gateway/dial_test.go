package gateway_test

import (
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy/gateway"
)

// Whoever chooses a URL sees why it failed, but not the addresses of this host and its name server.
func TestErrorsOfATransportHoldNoAddresses(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.(*net.TCPConn).SetLinger(0) // a reset
			c.Close()
		}
	}()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	client := &http.Client{Transport: gateway.Transport([]netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")})}
	for url, want := range map[string]string{
		"http://name.invalid":                 "lookup name.invalid: ",
		"http://" + closed.Addr().String():    "connection refused",
		"http://" + l.Addr().String():         "",
		"http://192.0.2.1/":                   "forbidden by the operator",
		"http://[::ffff:192.0.2.1]/elsewhere": "forbidden by the operator",
	} {
		_, err := client.Get(url)
		if err == nil {
			t.Errorf("%s was reached", url)
			continue
		}
		text := strings.ReplaceAll(err.Error(), url, "")
		if !strings.Contains(text, want) || regexp.MustCompile(`\d+\.\d+\.\d+\.\d+|\]:\d`).MatchString(text) {
			t.Errorf("%s: %s", url, text)
		}
	}
}
