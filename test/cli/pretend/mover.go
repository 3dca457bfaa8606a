package pretend

import (
	"context"
	"io"
	"strings"

	"github.com/bothy-dev/bothy"
)

// Mover is the bothy.SnapshotMover of a world. Its archives hold nothing but a
// name and the passphrase.
type Mover struct{ *World }

const archiveMark = "pretended archive of "

// strangersMark begins archives that no server signed.
const strangersMark = "stranger's archive of "

// ArchiveKey returns a key.
func (w Mover) ArchiveKey(context.Context) (*bothy.ArchiveKey, error) {
	return &bothy.ArchiveKey{Key: "bothy-key-pretended"}, nil
}

// ExportSnapshot writes a line.
func (w Mover) ExportSnapshot(ctx context.Context, id, passphrase string, to io.Writer) error {
	s, err := Snapshots(w).Snapshot(ctx, id)
	if err != nil {
		return err
	}
	_, err = io.WriteString(to, archiveMark+s.Name+"\n"+passphrase)
	return err
}

// ImportSnapshot reads that line.
func (w Mover) ImportSnapshot(_ context.Context, name, passphrase string, from io.Reader) (*bothy.Snapshot, error) {
	b, err := io.ReadAll(from)
	if err != nil {
		return nil, err
	}
	line, used, _ := strings.Cut(string(b), "\n")
	old, ok := strings.CutPrefix(line, archiveMark)
	stranger, unknown := strings.CutPrefix(line, strangersMark)
	if unknown {
		n := Snapshots(w).add("sbxelsewhere", stranger, bothy.SnapshotFiles)
		n.Detail = "the archive is not signed: its memory was left out"
		return n, nil
	}
	if !ok {
		return nil, bothy.Errorf(bothy.CodeSnapshotDamaged, "this is not a complete archive of a snapshot").WithHint("Export it again.")
	}
	if used != passphrase {
		return nil, bothy.Errorf(bothy.CodeInvalid, "the passphrase is not the one of this archive").WithHint("Give the right one.")
	}
	if name == "" {
		name = old
	}
	return Snapshots(w).add("sbxelsewhere", name, bothy.SnapshotMemory), nil
}
