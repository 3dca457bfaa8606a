package main

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// inRoot has a test run where the release does, in the root of the repository.
func inRoot(t *testing.T) { t.Chdir("../..") }

// TestPackagesAreReproducible makes each kind of package twice, at other times from other folders.
func TestPackagesAreReproducible(t *testing.T) {
	inRoot(t)
	var digests [2][]string
	for i := range digests {
		in, r := t.TempDir(), release{version: "1.2.3", time: time.Unix(1.7e9, 0).UTC(), out: t.TempDir()}
		program := filepath.Join(in, "program")
		if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(program, time.Unix(int64(i+1)*1e6, 0), time.Unix(int64(i+1)*1e6, 0)); err != nil {
			t.Fatal(err)
		}
		list := []file{{from: program, to: "bin/bothy", mode: 0o755}, {from: "LICENSE", to: "share/doc/bothy/LICENSE", mode: 0o644}}
		if err := r.tarball(list); err != nil {
			t.Fatal(err)
		}
		for _, format := range []string{"deb", "rpm"} {
			if err := r.pack(format, list); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.materials([]module{{path: "example.org/x", version: "v1.0.0", sum: "h1:x"}}); err != nil {
			t.Fatal(err)
		}
		sums, err := r.checksums()
		if err != nil || len(sums) != 4 {
			t.Fatalf("%d files, %v", len(sums), err)
		}
		for _, s := range sums {
			digests[i] = append(digests[i], s.name+" "+s.sha256)
		}
	}
	for i, first := range digests[0] {
		if second := digests[1][i]; first != second {
			t.Errorf("%s, and then %s", first, second)
		}
	}
}

func TestPackagesOfTheConsole(t *testing.T) {
	inRoot(t)
	modules, err := packagesOf("console")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, m := range modules {
		found[m.path] = m.purl()
	}
	if _, tool := found["vite"]; tool || !strings.HasPrefix(found["@xterm/xterm"], "pkg:npm/%40xterm/xterm@") || !strings.HasPrefix(found["preact"], "pkg:npm/preact@") {
		t.Errorf("found %v", found)
	}
}

func TestProvenanceIsSignedOverAllFiles(t *testing.T) {
	public, private, err := ed25519.GenerateKey(bytes.NewReader(make([]byte, 64)))
	if err != nil {
		t.Fatal(err)
	}
	r := release{version: "1.2.3", commit: "c0ffee", out: t.TempDir()}
	if err := r.provenance([]sum{{"bothy.deb", "aa"}}, signer(private)); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(r.out, "bothy-1.2.3.provenance.json"))
	if err != nil {
		t.Fatal(err)
	}
	var e envelope
	if err := json.Unmarshal(text, &e); err != nil || len(e.Signatures) != 1 {
		t.Fatalf("%s: %v", text, err)
	}
	payload, _ := base64.StdEncoding.DecodeString(e.Payload)
	signed, _ := base64.StdEncoding.DecodeString(e.Signatures[0].Sig)
	if !ed25519.Verify(public, authenticated(payload), signed) {
		t.Error("the signature is not that of the key")
	}
	if ed25519.Verify(public, authenticated(append(payload, ' ')), signed) {
		t.Error("the signature is valid for another statement")
	}
	var statement struct {
		Subject []struct {
			Name   string
			Digest map[string]string
		}
	}
	if err := json.Unmarshal(payload, &statement); err != nil || len(statement.Subject) != 1 || statement.Subject[0].Digest["sha256"] != "aa" {
		t.Errorf("%s: %v", payload, err)
	}
}

func TestVersionsThatPackagesTake(t *testing.T) {
	for version, want := range map[string]string{"1.2.3": "1.2.3", "1.2.3-rc1": "1.2.3~rc1", "1.2.3-4-gabcdef-dirty": "1.2.3+4.gabcdef+dirty", "ee43c178": "0.0.0~ee43c178"} {
		if got := (release{version: version}).packageVersion(); got != want {
			t.Errorf("%s: %s, want %s", version, got, want)
		}
	}
}
