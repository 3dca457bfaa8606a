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
	f.joins(path + "?process=42&from=3")
	f.failed(bothy.CodeProcessNotFound, f.do("GET", path+"?process=41", nil, header{"Upgrade": "websocket", "Connection": "Upgrade"}))
}

// joins opens a terminal as soon as it is left.
func (f *fixture) joins(path string) {
	f.Helper()
	var again *websocket.Conn
	for deadline := time.Now().Add(time.Minute); again == nil; time.Sleep(5 * time.Millisecond) {
		c, res, err := websocket.Dial(f.Context(), f.URL()+path, &websocket.DialOptions{
			HTTPClient: f.client, HTTPHeader: map[string][]string{"Authorization": {"Bearer " + f.key}},
		})
		if err != nil && (res == nil || time.Now().After(deadline)) {
			f.Fatal(err)
		}
		again = c
	}
	f.Cleanup(func() { again.CloseNow() })
	if err := again.Write(f.Context(), websocket.MessageBinary, []byte("still here")); err != nil {
		f.Fatal(err)
	}
	readUntil(f.T, again, "still here")
}

// A terminal that is kept stays when its caller closes it.
func TestKeptTerminalOutlivesItsCaller(t *testing.T) {
	f := start(t)
	path := f.create() + "/terminal"
	conn, _ := f.dial(path + "?keep=true")
	readUntil(t, conn, "80x24")
	conn.Close(websocket.StatusNormalClosure, "")
	f.joins(path + "?process=42&keep=true")
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
