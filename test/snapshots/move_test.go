package snapshots

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/bothy-dev/bothy"
)

func TestSnapshotMovesToAnotherServer(t *testing.T) {
	t.Parallel()
	b := shared.newBox(t, bothy.SandboxCreate{Env: map[string]string{"COLOUR": "peat"}})
	b.startCounter()
	b.sh("echo kept >/workspace/file")
	before := b.counter()
	n := b.snapshot("travels")
	other := stoppedServer(t)
	other.NoPool = true
	other.restart(t)
	var sealed, plain []byte
	for _, passphrase := range []string{"", "whisky galore"} {
		ctx, cancel := within(t)
		defer cancel()
		var archive bytes.Buffer
		if err := shared.Mover.ExportSnapshot(ctx, n.ID, passphrase, &archive); err != nil {
			t.Fatal(err)
		}
		if legible := bytes.HasPrefix(archive.Bytes(), []byte("\x28\xb5\x2f\xfd")); legible != (passphrase == "") {
			t.Errorf("with passphrase %q the archive begins with %q", passphrase, archive.Bytes()[:8])
		}
		if passphrase == "" {
			other.takesFilesOnly(t, archive.Bytes())
			other.Settings = fmt.Sprintf("snapshots: {trusted_keys: [%s]}\n", shared.archiveKey(t))
			other.restart(t)
		}
		in, err := other.Mover.ImportSnapshot(ctx, "arrived", passphrase, bytes.NewReader(archive.Bytes()))
		if err != nil || in.ID == n.ID || in.Name != "arrived" || in.Kind != bothy.SnapshotMemory {
			t.Fatalf("imported %+v, %v", in, err)
		}
		c := other.newBox(t, bothy.SandboxCreate{SnapshotID: in.ID})
		c.continued(before)
		if got := c.sh("cat /workspace/file; echo $COLOUR"); got != "kept\npeat" {
			t.Errorf("it has %q", got)
		}
		plain, sealed = sealed, archive.Bytes()
	}
	for what, try := range map[string]struct {
		archive    []byte
		passphrase string
		want       bothy.Code
	}{
		"half of it":             {plain[:len(plain)/2], "", bothy.CodeSnapshotDamaged},
		"all but its last byte":  {plain[:len(plain)-1], "", bothy.CodeSnapshotDamaged},
		"nothing":                {nil, "", bothy.CodeSnapshotDamaged},
		"something else":         {[]byte("a letter from home"), "", bothy.CodeSnapshotDamaged},
		"a flipped bit":          {flipped(t, plain), "", bothy.CodeSnapshotDamaged},
		"more than all of it":    {append(bytes.Clone(plain), 'x'), "", bothy.CodeSnapshotDamaged},
		"more than a sealed one": {append(bytes.Clone(sealed), 'x'), "whisky galore", bothy.CodeSnapshotDamaged},
		"half of a sealed one":   {sealed[:len(sealed)/2], "whisky galore", bothy.CodeSnapshotDamaged},
		"a wrong passphrase":     {sealed, "tight little island", bothy.CodeInvalid},
		"a forgotten passphrase": {sealed, "", bothy.CodeInvalid},
	} {
		ctx, cancel := within(t)
		_, err := other.Mover.ImportSnapshot(ctx, "", try.passphrase, bytes.NewReader(try.archive))
		cancel()
		refused(t, what, err, try.want)
	}
	other.holds(t, 3)
}

// takesFilesOnly imports an archive of a server that is not trusted.
func (s *server) takesFilesOnly(t *testing.T, archive []byte) {
	t.Helper()
	ctx, cancel := within(t)
	defer cancel()
	in, err := s.Mover.ImportSnapshot(ctx, "", "", bytes.NewReader(archive))
	if err != nil || in.Kind != bothy.SnapshotFiles || !strings.Contains(in.Detail, shared.archiveKey(t)) {
		t.Fatalf("before its key is trusted: %+v, %v", in, err)
	}
	c := s.newBox(t, bothy.SandboxCreate{SnapshotID: in.ID})
	if got := c.sh("cat /workspace/file"); got != "kept" {
		t.Errorf("before its key is trusted it has %q", got)
	}
	sb := c.get()
	if c.filesOnly(sb); sb.Resumed.Detail != in.Detail {
		t.Errorf("before its key is trusted it was resumed as %+v", sb.Resumed)
	}
}

// archiveKey returns the key that signs the server's exports.
func (s *server) archiveKey(t *testing.T) string {
	t.Helper()
	ctx, cancel := within(t)
	defer cancel()
	key, err := s.Mover.ArchiveKey(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return key.Key
}

// flipped changes one bit in the middle of compressed data, at a place where that changes the
// decompressed data. Not every bit does, for example in the choice between equal pages to copy from.
func flipped(t *testing.T, compressed []byte) []byte {
	z, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	whole, err := z.DecodeAll(compressed, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := bytes.Clone(compressed)
	for i := len(b) / 2; ; i++ {
		b[i] ^= 1
		if got, err := z.DecodeAll(b, nil); err != nil || !bytes.Equal(got, whole) {
			return b
		}
		b[i] ^= 1
	}
}
