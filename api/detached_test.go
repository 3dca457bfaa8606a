package api

import (
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/apitest"
)

// A terminal whose connection breaks can be joined again; one that is closed explicitly is hung up.
func TestTerminalIsJoinedAgain(t *testing.T) {
	f := start(t)
	path := f.create() + "/terminal"
	conn, _ := f.dial(path)
	readUntil(t, conn, "80x24")
	conn.CloseNow() // without a close frame
	var again *websocket.Conn
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		c, res, err := websocket.Dial(t.Context(), f.URL()+path+"?process=42&from=3", &websocket.DialOptions{
			HTTPClient: f.client, HTTPHeader: map[string][]string{"Authorization": {"Bearer " + f.key}},
		})
		if err == nil {
			again = c
			break
		}
		if res == nil || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { again.CloseNow() })
	if err := again.Write(t.Context(), websocket.MessageBinary, []byte("still here")); err != nil {
		t.Fatal(err)
	}
	readUntil(t, again, "still here")
	f.failed(bothy.CodeProcessNotFound, f.do("GET", path+"?process=41", nil, header{"Upgrade": "websocket", "Connection": "Upgrade"}))
}

// A terminal that no client joins is hung up after its time-out.
func TestTerminalThatNobodyJoinsIsHungUp(t *testing.T) {
	f := start(t, func(s *setup) { s.config.times.Rejoin = time.Millisecond })
	conn, _ := f.dial(f.create() + "/terminal")
	readUntil(t, conn, "80x24")
	conn.CloseNow()
	f.world.HungUp(t)
}

// Another project's key does not keep a terminal from being hung up.
func TestStrangersDoNotKeepATerminal(t *testing.T) {
	f := start(t, func(s *setup) { s.config.times.Rejoin = 500 * time.Millisecond })
	path := f.create() + "/terminal"
	conn, _ := f.dial(path)
	readUntil(t, conn, "80x24")
	conn.CloseNow()
	stranger, stop := f.as(apitest.Stranger), make(chan struct{})
	var tries sync.WaitGroup
	tries.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
				stranger.failed(bothy.CodeSandboxNotFound, stranger.do("GET", path+"?process=42", nil, header{"Upgrade": "websocket", "Connection": "Upgrade"}))
			}
		}
	})
	defer tries.Wait()
	defer close(stop)
	f.world.HungUp(t)
}
