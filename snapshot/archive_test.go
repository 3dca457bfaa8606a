package snapshot

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"

	"github.com/bothy-dev/bothy"
)

func init() { WorkFactor = 10 } // a guess may be cheap here

var (
	ours   = NewKey(bytes.Repeat([]byte{1}, 32))
	theirs = NewKey(bytes.Repeat([]byte{2}, 32))
)

// roomFor is a limited quota that counts what is written.
type roomFor struct{ most, taken int64 }

var errNoRoom = errors.New("no room")

func (r *roomFor) Take(n int64) error {
	if r.taken += n; r.taken > r.most {
		return errNoRoom
	}
	return nil
}

// unlimited accepts everything that ours signed.
func unlimited(pass string) ImportOptions {
	return ImportOptions{
		Passphrase: pass, Trusted: []PublicKey{ours.Public()},
		Accept: func(*Manifest, int64) (Room, error) { return &roomFor{most: 1 << 40}, nil },
	}
}

func exported(t *testing.T, passphrase string, key Key) []byte {
	t.Helper()
	dir, m := sealed(t)
	var b bytes.Buffer
	if err := Export(t.Context(), &b, dir, m, passphrase, key); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestArchiveTravels(t *testing.T) {
	for _, pass := range []string{"", "correct horse"} {
		b := exported(t, pass, ours)
		if encrypted := !bytes.Contains(b, []byte("\x28\xb5\x2f\xfd")); encrypted != (pass != "") {
			t.Errorf("passphrase %q: encrypted is %v", pass, encrypted)
		}
		dir := t.TempDir()
		m, err := Import(t.Context(), bytes.NewReader(b), dir, unlimited(pass))
		if err != nil {
			t.Fatal(err)
		}
		if m.ID != "snp1" || m.Kind != bothy.SnapshotMemory || m.GuestKey != "door" || !m.Has(MemoryDir) || !m.Has(FilesTar) || m.Detail != "" {
			t.Errorf("imported %+v", m)
		}
		got, err := os.ReadFile(filepath.Join(dir, "memory/checkpoint.img"))
		if err != nil || string(got) != "kernel" {
			t.Errorf("%q, %v", got, err)
		}
		if on, err := Read(dir); err != nil || len(on.Parts) != 3 {
			t.Errorf("on disk is %+v, %v", on, err)
		}
	}
}

// Memory signed by an unknown key reaches neither the disk nor the manifest, even with correct checksums.
func TestMemoryOfStrangersIsLeftOut(t *testing.T) {
	forged := forge(t, nil)
	for name, c := range map[string]struct {
		archive []byte
		says    string
	}{
		"not signed":           {exported(t, "", Key{}), "not signed"},
		"signed by another":    {exported(t, "", theirs), string(theirs.Public())},
		"forged with checksum": {forged, "not signed"},
		"forged and signed":    {forge(t, &theirs), "does not trust"},
	} {
		dir := t.TempDir()
		m, err := Import(t.Context(), bytes.NewReader(c.archive), dir, unlimited(""))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if m.Kind != bothy.SnapshotFiles || m.Has(MemoryDir) || m.GuestKey != "" || !strings.Contains(m.Detail, c.says) || !strings.Contains(m.Detail, "left out") {
			t.Errorf("%s: imported %+v", name, m)
		}
		names, err := partNames(dir)
		if err != nil || len(names) != 1 || names[0] != FilesTar {
			t.Errorf("%s: on disk are %v, %v", name, names, err)
		}
	}
	o := unlimited("")
	o.Trusted = append(o.Trusted, theirs.Public())
	if m, err := Import(t.Context(), bytes.NewReader(forge(t, &theirs)), t.TempDir(), o); err != nil || m.Kind != bothy.SnapshotMemory {
		t.Errorf("after the key was added: %+v, %v", m, err)
	}
}

// forge is an archive with forged memory and correct checksums, signed if there is a key.
func forge(t *testing.T, key *Key) []byte {
	return archive(t, plan{key: key, parts: []piece{{FilesTar, []byte("tar")}, {"memory/checkpoint.img", []byte("forged kernel")}}})
}

func TestArchiveThatCannotBeUsed(t *testing.T) {
	plain, locked := exported(t, "", ours), exported(t, "correct horse", ours)
	flipped := bytes.Clone(plain)
	flipped[len(flipped)/2] ^= 1
	for name, c := range map[string]struct {
		b    []byte
		pass string
		code bothy.Code
	}{
		"nothing":          {nil, "", bothy.CodeSnapshotDamaged},
		"something else":   {[]byte("GIF89a, or so it says"), "", bothy.CodeSnapshotDamaged},
		"half of it":       {plain[:len(plain)/2], "", bothy.CodeSnapshotDamaged},
		"a flipped bit":    {flipped, "", bothy.CodeSnapshotDamaged},
		"something behind": {append(bytes.Clone(plain), plain...), "", bothy.CodeSnapshotDamaged},
		"no passphrase":    {locked, "", bothy.CodeInvalid},
		"wrong passphrase": {locked, "wrong", bothy.CodeInvalid},
	} {
		if _, err := Import(t.Context(), bytes.NewReader(c.b), t.TempDir(), unlimited(c.pass)); bothy.ErrorCode(err) != c.code {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestManifestsThatLie(t *testing.T) {
	files := piece{FilesTar, []byte("tar")}
	memory := piece{"memory/pages.img", []byte("pages")}
	for name, p := range map[string]plan{
		"a file outside":            {parts: []piece{files, {"../../etc/cron.d/x", []byte("x")}}},
		"a file below the memory":   {parts: []piece{files, {"memory/../../x", []byte("x")}}},
		"a name that is no name":    {parts: []piece{files, {"memory/a\nb", []byte("x")}}},
		"a part twice":              {parts: []piece{files}, change: func(m *Manifest) { m.Parts = append(m.Parts, m.Parts[0]) }},
		"no files":                  {parts: []piece{memory}},
		"a part that is not there":  {parts: []piece{files, memory}, skip: memory.name},
		"a part that is not listed": {parts: []piece{files, memory}, change: func(m *Manifest) { m.Parts, m.Kind = m.Parts[:1], bothy.SnapshotFiles }},
		"a part of another size":    {parts: []piece{files, memory}, change: func(m *Manifest) { m.Parts[0].Size++ }},
		"a wrong checksum":          {parts: []piece{files}, change: func(m *Manifest) { m.Parts[0].SHA256 = strings.Repeat("0", 64) }},
		"no checksum":               {parts: []piece{files}, change: func(m *Manifest) { m.Parts[0].SHA256 = "" }},
		"a size below zero":         {parts: []piece{files}, change: func(m *Manifest) { m.Parts[0].Size = -1 }},
		"a sum that overflows": {parts: []piece{files, memory}, change: func(m *Manifest) {
			m.Parts[0].Size, m.Parts[1].Size = 1<<62, 1<<62
		}},
		"more stored than there is": {parts: []piece{files}, change: func(m *Manifest) { m.Parts[0].Sparse, m.Parts[0].Stored = true, 4 }},
		"no part":                   {parts: []piece{files}, text: `{"version":1,"kind":"files","parts":[null]}`},
		"no object":                 {parts: []piece{files}, text: `[]`},
		"a kind that there is not":  {parts: []piece{files}, change: func(m *Manifest) { m.Kind = "all" }},
		"memory that it has not":    {parts: []piece{files}, change: func(m *Manifest) { m.Kind = bothy.SnapshotMemory }},
		"a signature of another":    {parts: []piece{files, memory}, key: &ours, resign: func(r map[string]string) { r[signatureRecord] = strings.Repeat("A", 86) }},
		"a signature of nobody":     {parts: []piece{files, memory}, key: &ours, resign: func(r map[string]string) { delete(r, keyRecord) }},
		"a key without signature":   {parts: []piece{files, memory}, key: &ours, resign: func(r map[string]string) { delete(r, signatureRecord) }},
		"another's key":             {parts: []piece{files, memory}, key: &theirs, resign: func(r map[string]string) { r[keyRecord] = string(ours.Public()) }},
		"words after the signature": {parts: []piece{files, memory}, key: &ours, after: func(b []byte) []byte { return append(b, ' ') }},
	} {
		_, err := Import(t.Context(), bytes.NewReader(archive(t, p)), t.TempDir(), unlimited(""))
		if bothy.ErrorCode(err) != bothy.CodeSnapshotDamaged {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, p := range map[string]plan{
		"a version of the future": {parts: []piece{files}, change: func(m *Manifest) { m.Version = 99 }},
		"nothing":                 {parts: []piece{files}, text: `null`},
	} {
		_, err := Import(t.Context(), bytes.NewReader(archive(t, p)), t.TempDir(), unlimited(""))
		if bothy.ErrorCode(err) != bothy.CodeUnsupported {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Changing any bit of the signed manifest or its signature invalidates it.
func TestEveryBitOfASignatureCounts(t *testing.T) {
	_, m := sealed(t)
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	records, err := ours.sign(text)
	if err != nil {
		t.Fatal(err)
	}
	if by, err := signer(text, records); err != nil || by != ours.Public() {
		t.Fatalf("as it is: %q, %v", by, err)
	}
	for i := range text {
		changed := bytes.Clone(text)
		changed[i] ^= 1
		if by, err := signer(changed, records); err == nil {
			t.Fatalf("with another byte %d it is still of %q", i, by)
		}
	}
}

func TestKeysAreRead(t *testing.T) {
	if got, err := ParsePublicKey(string(ours.Public())); err != nil || got != ours.Public() {
		t.Errorf("%q, %v", got, err)
	}
	for _, text := range []string{"", "bothy-key-", "ssh-ed25519 AAAA", string(ours.Public()) + "A", string(ours.Public()[:50])} {
		if _, err := ParsePublicKey(text); bothy.ErrorCode(err) != bothy.CodeInvalid {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A bomb is a small archive that unpacks to much data.
func TestBombs(t *testing.T) {
	const claimed = 64 << 20
	bomb := archive(t, plan{parts: []piece{{FilesTar, bytes.Repeat([]byte{7}, claimed)}}})
	if len(bomb) > claimed/1000 {
		t.Fatalf("it has %d bytes", len(bomb))
	}
	for name, c := range map[string]struct {
		archive []byte
		room    int64
		wrote   bool
	}{
		"more than there is room for": {bomb, claimed / 4, true},
		"a manifest that says less": {archive(t, plan{
			parts:  []piece{{FilesTar, bytes.Repeat([]byte{7}, claimed)}},
			change: func(m *Manifest) { m.Parts[0].Size = 1 << 20 },
		}), 1 << 30, false},
		"headers without end": {headersWithoutEnd(t, 512<<20), 1 << 30, false},
		"zeros behind the end": {append(archive(t, plan{parts: []piece{{FilesTar, []byte("tar")}}}),
			compressed(t, make([]byte, claimed))...), 1 << 30, false},
		"frames without content behind the end": {append(archive(t, plan{parts: []piece{{FilesTar, []byte("tar")}}}),
			bytes.Repeat(skippable(1<<20), 64)...), 1 << 30, false},
	} {
		in := &counted{r: bytes.NewReader(c.archive)}
		room := &roomFor{most: c.room}
		o := unlimited("")
		o.Accept = func(*Manifest, int64) (Room, error) { return room, nil }
		dir := t.TempDir()
		_, err := Import(t.Context(), in, dir, o)
		if c.wrote && !errors.Is(err, errNoRoom) {
			t.Errorf("%s: %v", name, err)
		}
		if !c.wrote && bothy.ErrorCode(err) != bothy.CodeSnapshotDamaged {
			t.Errorf("%s: %v", name, err)
		}
		if on := written(t, dir); on > c.room {
			t.Errorf("%s: %d bytes were written where there was room for %d", name, on, c.room)
		}
		if in.n > 2*maxPreface {
			t.Errorf("%s: %d bytes of %d were read", name, in.n, len(c.archive))
		}
	}
}

// A manifest is refused before any file that it lists is written.
func TestRefusedBeforeTheFirstByte(t *testing.T) {
	dir := t.TempDir()
	o := unlimited("")
	refused := bothy.Errorf(bothy.CodeQuota, "too much")
	o.Accept = func(_ *Manifest, unpacked int64) (Room, error) {
		if unpacked != 20000+6+3 {
			t.Errorf("it says that it unpacks to %d bytes", unpacked)
		}
		return nil, refused
	}
	if _, err := Import(t.Context(), bytes.NewReader(exported(t, "", ours)), dir, o); !errors.Is(err, refused) {
		t.Error(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("there are %v, %v", entries, err)
	}
}

// The work factor of a passphrase may be as high as ours, but not higher.
func TestWorkFactors(t *testing.T) {
	for _, factor := range []int{WorkFactor, WorkFactor + 1, 21, 22} {
		var b bytes.Buffer
		fmt.Fprintf(&b, "%sv1\n-> scrypt %s %d", ageMagic, strings.Repeat("A", 22), factor)
		b.WriteString("\n" + strings.Repeat("A", 43) + "\n--- " + strings.Repeat("A", 43) + "\n")
		_, err := Import(t.Context(), &b, t.TempDir(), unlimited("x"))
		if bothy.ErrorCode(err) != bothy.CodeInvalid {
			t.Errorf("work factor %d: %v", factor, err)
		}
		tooLarge := strings.Contains(err.Error(), "requires a scrypt work factor of")
		if tooLarge != (factor > WorkFactor) {
			t.Errorf("work factor %d: %v", factor, err)
		}
	}
}

// Passphrases are tried one at a time, since each takes 256 MB of memory.
func TestOneScryptAtATime(t *testing.T) {
	locked := exported(t, "correct horse", ours)
	release, err := takeScryptTurn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := contextThatEndsWhenAsked(t)
	done := make(chan error, 1)
	go func() {
		_, err := Import(ctx, bytes.NewReader(locked), t.TempDir(), unlimited("correct horse"))
		done <- err
	}()
	dir, m := sealed(t)
	exportDone := make(chan error, 1)
	go func() { exportDone <- Export(ctx, &bytes.Buffer{}, dir, m, "x", ours) }()
	select {
	case err := <-done:
		t.Fatalf("it did not wait: %v", err)
	case err := <-exportDone:
		t.Fatalf("it did not wait: %v", err)
	case <-ctx.asked:
	}
	cancel()
	for _, ended := range []chan error{done, exportDone} {
		if err := <-ended; !errors.Is(err, ctx.Err()) {
			t.Errorf("whose caller left: %v", err)
		}
	}
	release()
	if _, err := Import(t.Context(), bytes.NewReader(locked), t.TempDir(), unlimited("correct horse")); err != nil {
		t.Error(err)
	}
}

var _ age.RecipientWithLabels = recipient{}

// compressed is one separate frame.
func compressed(t *testing.T, b []byte) []byte {
	t.Helper()
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return z.EncodeAll(b, nil)
}
