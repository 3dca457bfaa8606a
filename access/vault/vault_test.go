package vault

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

func TestSealedOpensOnlyWithItsKeyAndBound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	v, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := v.Seal([]byte("value"), "sbx1")
	if err != nil || bytes.Contains(sealed, []byte("value")) {
		t.Fatalf("%q, %v", sealed, err)
	}
	again, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if plain, err := again.Open(sealed, "sbx1"); err != nil || string(plain) != "value" {
		t.Errorf("%q, %v", plain, err)
	}
	if _, err := again.Open(sealed, "sbx2"); err == nil {
		t.Error("opened for another sandbox")
	}
	sealed[len(sealed)-1] ^= 1
	if _, err := again.Open(sealed, "sbx1"); err == nil {
		t.Error("opened although changed")
	}
	if _, err := again.Open([]byte("x"), "sbx1"); err == nil {
		t.Error("opened a stump")
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("key file: %v, %v", info.Mode(), err)
	}
	if !bytes.Equal(v.Derive("a"), again.Derive("a")) || bytes.Equal(v.Derive("a"), v.Derive("b")) {
		t.Error("derived keys")
	}
}

func TestManyServersAgreeOnOneKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	keys := make([][]byte, 8)
	var wg sync.WaitGroup
	for i := range keys {
		wg.Go(func() {
			if v, err := Open(path); err == nil {
				keys[i] = v.key
			}
		})
	}
	wg.Wait()
	for _, k := range keys {
		if len(k) != keySize || !bytes.Equal(k, keys[0]) {
			t.Fatal("different keys")
		}
	}
	if err := os.WriteFile(path, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); err == nil {
		t.Error("a damaged key was accepted")
	}
}
