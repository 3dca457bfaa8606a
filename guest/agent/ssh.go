package agent

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/guest/account"
	"github.com/bothy-dev/bothy/guest/command"
	"github.com/bothy-dev/bothy/guest/ssh"
)

// maxSSH limits the connections with SSH that are open at a time. Each is a process.
const maxSSH = 32

// ssh starts an SSH server for the call's connection, as the user who logs in. The connection
// then belongs to that process.
func (a *Agent) ssh(w http.ResponseWriter, r *http.Request) {
	seed, err := base64.StdEncoding.DecodeString(r.Header.Get("X-Bothy-Host-Key"))
	if err != nil || len(seed) != ed25519.SeedSize {
		writeError(w, r, bothy.Errorf(bothy.CodeInvalid, "the host key is malformed"))
		return
	}
	req, err := a.requestAs(r.URL.Query().Get("user"), r.Header)
	if err != nil {
		writeError(w, r, err)
		return
	}
	if a.sshConns.Add(1) > maxSSH {
		a.sshConns.Add(-1)
		writeError(w, r, bothy.Errorf(bothy.CodeCapacity, "%d connections with SSH are open in the sandbox, which is the most", maxSSH).
			WithHint("Close some, or share one with OpenSSH's ControlMaster."))
		return
	}
	started := false
	defer func() {
		if !started {
			a.sshConns.Add(-1)
		}
	}()
	outer, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		writeError(w, r, err)
		return
	}
	defer outer.Close() // the process has its own descriptor
	_ = outer.SetDeadline(time.Time{})
	p, err := a.startSSH(req.user, outer, buffered.Reader.Buffered())
	if err != nil {
		refuse(outer, err)
		return
	}
	started = true
	go func() {
		<-p.Done()
		a.sshConns.Add(-1)
	}()
	// The server speaks first, so it gets its key only when the answer has been sent.
	if _, err := io.WriteString(outer, tunnelAnswer); err != nil || p.Write(context.Background(), seed) != nil {
		p.Kill()
	}
	p.CloseInput()
}

// startSSH starts the process, which waits for its host key.
func (a *Agent) startSSH(u *account.User, conn any, early int) (*command.Process, error) {
	filer, ok := conn.(interface{ File() (*os.File, error) })
	if !ok || early > 0 {
		return nil, bothy.Errorf(bothy.CodeInvalid, "the connection cannot be passed on")
	}
	file, err := filer.File()
	if err != nil {
		return nil, err
	}
	defer file.Close()
	env, err := a.environment(u, nil, false)
	if err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	// Internal, since the connection itself is what keeps a sandbox in use.
	return a.commands.Start(command.Spec{
		Argv: []string{program, ssh.Arg}, Env: env, Dir: "/", User: u, Internal: true, Stdin: true, OutputLimit: 4 << 10, Extra: []*os.File{file},
	})
}

// refuse answers with an error on a connection that was taken over.
func refuse(w io.Writer, err error) {
	e := newHTTPError(err)
	body, _ := json.Marshal(e)
	res := http.Response{
		StatusCode: e.Code, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Close: true,
	}
	_ = res.Write(w)
}
