package cli

import (
	"net/http/httptest"
	"testing"
)

func TestAMissingTemplateIsOffered(t *testing.T) {
	server := httptest.NewServer(newWorld(t).Handler())
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	for _, x := range []struct{ types, says string }{
		{"\x04", "there is no template debian-12"},
		{"", "sandbox-says-42"}, // it was built
	} {
		me, cmd, _ := onTerminal(t, server.URL, "run", "debian-12", "--", "sh", "-c", "echo sandbox-says-$((6*7))")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		me.sees("There is no template debian-12 yet.")
		me.sees("Enter builds it, in a minute or two.")
		me.sees("> ")
		if x.types == "" {
			me.does("")
		} else if _, err := me.pty.WriteString(x.types); err != nil {
			t.Fatal(err)
		}
		me.sees(x.says)
		if err := cmd.Wait(); (err == nil) != (x.types == "") {
			t.Errorf("it ended with %v", err)
		}
	}
}
