package snapshots

import (
	"io"
	"strconv"

	"github.com/bothy-dev/bothy"
)

// terminal is an open terminal with a shell.
type terminal struct {
	b *box
	t bothy.Terminal
}

func (b *box) terminal() *terminal {
	b.Helper()
	term, err := b.s.Exec.Terminal(b.Context(), b.id, bothy.TerminalRequest{Cols: 80, Rows: 24})
	if err != nil {
		b.Fatal(err)
	}
	go io.Copy(io.Discard, term)
	b.Cleanup(func() { term.Close() })
	return &terminal{b, term}
}

func (t *terminal) say(line string) {
	t.b.Helper()
	if _, err := io.WriteString(t.t, line+"\n"); err != nil {
		t.b.Fatal(err)
	}
}

func (t *terminal) pid() string { return strconv.Itoa(t.t.PID()) }
