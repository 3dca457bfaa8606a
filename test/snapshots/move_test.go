package snapshots

import (
	"bytes"
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
	other := ownServer(t)
	var sealed, plain []byte
	for _, passphrase := range []string{"", "whisky galore"} {
		ctx, cancel := within(t)
		defer cancel()
		var archive bytes.Buffer
		if err := shared.Mover.ExportSnapshot(ctx, n.ID, passphrase, &archive); err != nil {
			t.Fatal(err)
		}
		if legible := bytes.HasPrefix(archive.Bytes(), []byte("\x28\xb5\x2f\xfd")); legible != (passphrase == "") {
			t.Errorf("with passphrase %q the archive begins %q", passphrase, archive.Bytes()[:8])
		}
		in, err := other.Mover.ImportSnapshot(ctx, "arrived", passphrase, bytes.NewReader(archive.Bytes()))
		if err != nil || in.ID == n.ID || in.Name != "arrived" || in.Kind != bothy.SnapshotMemory {
			t.Fatalf("imported %+v, %v", in, err)
		}
		c := other.newBox(t, bothy.SandboxCreate{SnapshotID: in.ID})
		c.wentOn(before)
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
	other.holds(t, 2)
}

// flipped changes one bit in the middle of what was compressed. Of some there the same
// comes out without it, such as of where to copy one of many equal pages from.
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
