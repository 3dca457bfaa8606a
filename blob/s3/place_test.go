package s3

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/blob/s3/s3test"
)

func TestLocations(t *testing.T) {
	l, err := ParseLocation("s3://a-bucket/some/prefix/?endpoint=https://s3.example.org:9000&region=eu-1&path_style=true&sse=aws:kms&kms_key=k&verify_days=7")
	if err != nil {
		t.Fatal(err)
	}
	want := Location{Bucket: "a-bucket", Prefix: "some/prefix/", Endpoint: "s3.example.org:9000", TLS: true, Region: "eu-1", PathStyle: true, Encryption: "aws:kms", KMSKey: "k", Ignored: "verify_days"}
	if *l != want {
		t.Errorf("got %+v", *l)
	}
	if l, err := ParseLocation("s3://bucket"); err != nil || l.Prefix != "" || l.Endpoint != amazon || !l.TLS || l.Ignored != "" {
		t.Errorf("the shortest URL: %+v, %v", l, err)
	}
	for _, bad := range []string{
		"", "bucket", "https://bucket", "s3://", "s3://B", "s3://x", "s3://a_bucket", "s3://user:secret@bucket", "s3://bucket#x",
		"s3://bucket?endpoint=s3.example.org", "s3://bucket?endpoint=ftp://h", "s3://bucket?endpoint=https://h/path", "s3://bucket?endpoint=https://u:secret@h",
		"s3://bucket?endpont=https://h", "s3://bucket?region=a&region=b", "s3://bucket?path_style=perhaps", "s3://bucket?sse=rot13",
		"s3://bucket?kms_key=k", "s3://bucket?sse=AES256&kms_key=k", "s3://bucket?profile=p", "s3://bucket?ca_file=/not/there", "s3://bucket?%zz",
	} {
		_, err := ParseLocation(bad)
		var be *bothy.Error
		if !errors.As(err, &be) || be.Code != bothy.CodeInvalid || be.Hint == "" {
			t.Errorf("%s: %v", bad, err)
		} else if strings.Contains(be.Detail+be.Hint, "secret@") || strings.Contains(be.Detail, ":secret") {
			t.Errorf("%s: the error contains a password: %v", bad, err)
		}
	}
}

func TestIndexesAreValidated(t *testing.T) {
	sum := strings.Repeat("ab", 32)
	whole := `{"version":1,"files":[{"name":"f","mode":384,"size":100000,"chunks":[{"at":0,"size":100000,"sha256":"` + sum + `","stored":9,"zstd":true}]}]}`
	if _, err := decodeIndex("x", []byte(whole)); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string][2]string{
		"a path that climbs":     {`"f"`, `"../f"`},
		"an absolute path":       {`"f"`, `"/etc/f"`},
		"a device":               {`384`, `67109248`},
		"a negative size":        {`"size":100000,"chunks"`, `"size":-1,"chunks"`},
		"a hole":                 {`"at":0`, `"at":5`},
		"less than the file":     {`"size":100000,"sha256"`, `"size":99999,"sha256"`},
		"more than the file":     {`"size":100000,"sha256"`, `"size":100001,"sha256"`},
		"no sum":                 {sum, "12"},
		"an object elsewhere":    {sum, "../../../" + sum},
		"more than is unpacked":  {`"stored":9`, `"stored":100001`},
		"another size, unpacked": {`,"zstd":true`, ``},
		"no JSON":                {`{"version"`, `{version`},
	} {
		if _, err := decodeIndex("x", []byte(strings.Replace(whole, change[0], change[1], 1))); bothy.ErrorCode(err) != bothy.CodeSnapshotDamaged {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := decodeIndex("x", []byte(strings.Replace(whole, `"version":1`, `"version":2`, 1))); bothy.ErrorCode(err) != bothy.CodeUnsupported {
		t.Errorf("a newer format: %v", err)
	}
}

func TestABucketHasOneOwner(t *testing.T) {
	server := s3test.Start(t)
	claim := func(url, owner string, used bool) error {
		t.Helper()
		b := openBucket(t, url)
		c := claimOf(url, owner)
		c.Used = used
		err := b.Claim(t.Context(), c)
		if (b.Usable() == nil) != (err == nil) {
			t.Errorf("the claim ended with %v, but Usable returns %v", err, b.Usable())
		}
		return err
	}
	url := server.Bucket(t, "one")
	if err := claim(url, "me", true); bothy.ErrorCode(err) != bothy.CodeConflict {
		t.Errorf("an empty bucket where there should be snapshots: %v", err)
	}
	if keys := server.Objects(t, "one"); len(keys) > 0 {
		t.Errorf("the empty bucket was written to: %v", keys)
	}
	for _, used := range []bool{false, true} {
		if err := claim(url, "me", used); err != nil {
			t.Error(err)
		}
	}
	if err := claim(url, "another", false); bothy.ErrorCode(err) != bothy.CodeConflict {
		t.Errorf("another server's bucket: %v", err)
	}
	prefix := strings.Replace(url, "s3://one", "s3://one/apart", 1)
	if err := claim(prefix, "another", false); err != nil {
		t.Errorf("another prefix in the bucket: %v", err)
	}
	url = server.Bucket(t, "two")
	server.Put(t, "two", "photo.jpg", "x")
	if err := claim(url, "me", false); bothy.ErrorCode(err) != bothy.CodeConflict || !strings.Contains(err.Error(), "photo.jpg") {
		t.Errorf("a bucket with other objects: %v", err)
	}
	url = server.Bucket(t, "three")
	server.Put(t, "three", markerName, "{}")
	if err := claim(url, "me", false); bothy.ErrorCode(err) != bothy.CodeConflict {
		t.Errorf("an invalid mark: %v", err)
	}
	server.Put(t, "three", markerName, `{"format":99,"owner":"me"}`)
	if err := claim(url, "me", false); bothy.ErrorCode(err) != bothy.CodeUnsupported {
		t.Errorf("a newer mark: %v", err)
	}
	if err := claim(server.URL("nowhere"), "me", false); bothy.ErrorCode(err) != bothy.CodeStore || !strings.Contains(err.Error(), "no bucket nowhere") {
		t.Errorf("no bucket: %v", err)
	}
	mend := server.InjectFaults(s3test.Faults{Disconnect: func(*http.Request) bool { return true }})
	if err := claim(server.URL("one"), "me", false); !errors.Is(err, ErrUnavailable) {
		t.Errorf("while the storage is unavailable: %v", err)
	}
	mend()
	t.Setenv("AWS_SECRET_ACCESS_KEY", "wrong")
	if err := claim(server.URL("one"), "me", false); bothy.ErrorCode(err) != bothy.CodeStore || errors.Is(err, ErrUnavailable) {
		t.Errorf("wrong keys: %v", err)
	}
	file := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(file, []byte("[bothy]\naws_access_key_id = "+s3test.AccessKey+"\naws_secret_access_key = "+s3test.SecretKey+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := openBucket(t, server.URL("one")+"&profile=bothy&credentials="+file).Claim(t.Context(), claimOf(server.URL("one"), "me")); err != nil {
		t.Errorf("keys in a file: %v", err)
	}
}

// wants claims a bucket and checks the outcome: success if refusal is empty, and otherwise an error
// with these words and a hint.
func wants(t *testing.T, what, url string, c Claim, refusal string) {
	t.Helper()
	b := openBucket(t, url)
	err := b.Claim(t.Context(), c)
	if refusal == "" {
		if err != nil || b.Usable() != nil || b.Place() == "" {
			t.Errorf("%s: %v", what, err)
		}
		return
	}
	var be *bothy.Error
	if !errors.As(err, &be) || be.Code != bothy.CodeConflict || !strings.Contains(be.Detail, refusal) || be.Hint == "" || b.Usable() == nil {
		t.Errorf("%s: %v, want an error with %q and a hint", what, err, refusal)
	}
}

// A bucket records its database's owner, and the database records its bucket.
func TestABucketBelongsToOneDatabase(t *testing.T) {
	server := s3test.Start(t)
	first, second := server.Bucket(t, "first"), server.Bucket(t, "second")
	d := &database{}
	c := Claim{Owner: "me", Places: d}
	wants(t, "a new bucket", first, c, "")
	wants(t, "the same again", first, c, "")
	was := d.all[0]
	if !was.Used || len(d.all) != 1 {
		t.Errorf("the records are %+v", d.all)
	}
	wants(t, "another empty bucket", second, c, "is not the place in the records")
	if keys := server.Objects(t, "second"); len(keys) > 0 {
		t.Errorf("the wrong bucket was written to: %v", keys)
	}
	others := Claim{Owner: "me", Places: &database{}}
	wants(t, "another database's bucket", first, others, "in use with another database")
	wants(t, "an empty bucket for another database", second, others, "")
	wants(t, "a bucket that another database marked", second, c, "is not the place in the records")
	wants(t, "another cluster's bucket", first, Claim{Owner: "other", Places: d, Adopt: true}, "belongs to another server")

	mark := server.Get(t, "first", markerName)
	if err := server.Remove("first", markerName); err != nil {
		t.Fatal(err)
	}
	wants(t, "an emptied bucket", first, c, "emptied")
	moved := server.Bucket(t, "moved")
	server.Put(t, "moved", markerName, mark)
	server.Put(t, "moved", "snapshots/x/index.json", "{}")
	wants(t, "a copy of the whole bucket", moved, c, "")
	if now := d.all[0]; now.ID != was.ID || now.Location == was.Location {
		t.Errorf("after the move the records have %+v", now)
	}
	wants(t, "the emptied bucket at its old location", first, c, "is not the place in the records")

	c.Adopt = true
	server.Put(t, "first", "photo.jpg", "x")
	wants(t, "a bucket with other objects", first, c, "that Bothy did not write")
	if err := server.Remove("moved", markerName); err != nil {
		t.Fatal(err)
	}
	wants(t, "its own bucket without the mark", moved, c, "")
	if now := d.all[0]; now.ID != was.ID {
		t.Errorf("the new mark has another id: %+v", now)
	}
	others = Claim{Owner: "me", Places: &database{}, Adopt: true}
	wants(t, "another database's bucket, taken over", moved, others, "")
}

// Marks that earlier versions wrote have no place id.
func TestAnEarlierMarkIsAccepted(t *testing.T) {
	server := s3test.Start(t)
	url := server.Bucket(t, "one")
	server.Put(t, "one", markerName, `{"format":1,"owner":"me","created_at":"2026-01-02T03:04:05Z"}`)
	server.Put(t, "one", "snapshots/x/index.json", "{}")
	d := &database{}
	for range 2 {
		wants(t, "without records", url, Claim{Owner: "me", Places: d, Used: true}, "")
	}
	wants(t, "with records of another place", url, Claim{Owner: "me", Places: &database{all: []Place{{ID: "x", Used: true}}}}, "is not the place in the records")
}

// Hosts that claim a new bucket at the same time agree on its mark, whichever writes it first.
func TestHostsMarkABucketTogether(t *testing.T) {
	server := s3test.Start(t)
	for round := range 5 {
		url := server.Bucket(t, fmt.Sprint("bucket", round))
		d := &database{}
		// In every other round, all hosts find the bucket empty before the first one writes its mark.
		var looked atomic.Int32
		all := make(chan struct{})
		mend := server.InjectFaults(s3test.Faults{Before: func(r *http.Request) {
			if round%2 == 0 && r.Method == http.MethodPut {
				if looked.Add(1) == 4 {
					close(all)
				}
				<-all
			}
		}})
		var hosts sync.WaitGroup
		places := make([]string, 4)
		errs := make([]error, 4)
		for i := range places {
			b := openBucket(t, url)
			hosts.Go(func() {
				errs[i] = b.Claim(t.Context(), Claim{Owner: "me", Places: d})
				places[i] = b.Place()
			})
		}
		hosts.Wait()
		mend()
		for i := range places {
			if errs[i] != nil || places[i] == "" || places[i] != places[0] {
				t.Errorf("round %d: host %d: %q, %v", round, i, places[i], errs[i])
			}
		}
	}
}

func TestTry(t *testing.T) {
	server := s3test.Start(t)
	b := openBucket(t, server.Bucket(t, "one"))
	if err := b.Try(t.Context(), "x"); err != nil {
		t.Error(err)
	}
	if keys := server.Objects(t, "one"); len(keys) > 0 {
		t.Errorf("objects are left: %v", keys)
	}
	server.InjectFaults(s3test.Faults{Answer: func(r *http.Request, b []byte) []byte {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/x") {
			return []byte("y")
		}
		return b
	}})
	if err := b.Try(t.Context(), "x"); err == nil {
		t.Error("changed bytes are not noticed")
	}
}

// The storage has a certificate of a private authority, and is asked to encrypt.
func TestPrivateAuthorityAndEncryption(t *testing.T) {
	server := s3test.Start(t)
	server.Bucket(t, "one")
	to, err := url.Parse(server.Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan string, 100)
	front := httptest.NewTLSServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		if r.In.Method == http.MethodPut {
			asked <- r.In.Header.Get("X-Amz-Server-Side-Encryption")
		}
		r.SetURL(to)
		r.Out.Host = r.In.Host
	}})
	defer front.Close()
	at := "s3://one?region=" + s3test.Region + "&path_style=true&sse=AES256&endpoint=" + url.QueryEscape(front.URL)
	if err := openBucket(t, at).Claim(t.Context(), claimOf(at, "me")); !errors.Is(err, ErrUnavailable) || !errors.As(err, new(x509.UnknownAuthorityError)) {
		t.Errorf("without the authority: %v", err)
	}
	ca := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: front.Certificate().Raw})
	if err := os.WriteFile(ca, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := openBucket(t, at+"&ca_file="+ca).Claim(t.Context(), claimOf(at, "me")); err != nil {
		t.Fatal(err)
	}
	if got := <-asked; got != "AES256" {
		t.Errorf("the requested encryption is %q", got)
	}
	if err := os.WriteFile(ca, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := ParseLocation(at + "&ca_file=" + ca)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenBucket(l); bothy.ErrorCode(err) != bothy.CodeInvalid {
		t.Errorf("a file without a certificate: %v", err)
	}
}
