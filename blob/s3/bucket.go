// Package s3 stores trees of files in object storage with the API of Amazon S3, with a folder
// of this host as a cache. A tree is cut into chunks named by their SHA-256. An index that
// lists them is written last, and only if there is none yet, so a tree is stored completely or
// not at all. Everything read is verified against its checksum.
//
//	bothy.json                  who owns the bucket
//	KIND/NAME/index.json        the files of a tree, and the chunks they consist of
//	KIND/NAME/SHA256[.zst]      a chunk, possibly compressed
package s3

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/encrypt"

	"github.com/bothy-dev/bothy"
)

// Bucket is the part of a bucket below a prefix. Its methods are safe for concurrent use.
type Bucket struct {
	Location *Location
	client   *minio.Client
	sse      encrypt.ServerSide
	creds    *credentials.Credentials
	slots    chan struct{} // limits chunks in flight

	// silent is set while the storage does not respond.
	silent atomic.Bool

	mu    sync.Mutex
	unfit error // why nothing may be read or written
	place string
	since time.Time
}

// ErrUnavailable means that the storage could not be reached, or temporarily failed.
var ErrUnavailable = errors.New("the object storage is unavailable")

const (
	connectTimeout = 5 * time.Second
	// silence is how long a request may make no progress.
	silence = 30 * time.Second
	// tries is how often a request is sent before it fails.
	tries = 3
	// chunksAtOnce limits the memory for chunks in flight, which is about twice this number
	// times chunkSize.
	chunksAtOnce = 8
)

// OpenBucket creates the client for a bucket. It does not connect yet.
func OpenBucket(l *Location) (*Bucket, error) {
	transport := &http.Transport{
		Proxy:       http.ProxyFromEnvironment,
		DialContext: dial, TLSHandshakeTimeout: connectTimeout, ResponseHeaderTimeout: silence,
		MaxIdleConnsPerHost: 2 * chunksAtOnce, IdleConnTimeout: time.Minute,
		// Chunks that compress well are stored compressed.
		DisableCompression: true,
		TLSClientConfig:    &tls.Config{MinVersion: tls.VersionTLS12},
	}
	if l.CAFile != "" {
		pem, err := os.ReadFile(l.CAFile)
		if err != nil {
			return nil, err
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, invalid("blobs: %s contains no certificate", l.CAFile).WithHint("Give the PEM of the authority that signed the storage's certificate.")
		}
		transport.TLSClientConfig.RootCAs = pool
	}
	b := &Bucket{Location: l, slots: make(chan struct{}, chunksAtOnce), creds: chain(l), unfit: fmt.Errorf("%w: it was not reached yet", ErrUnavailable)}
	var err error
	switch l.Encryption {
	case "AES256":
		b.sse = encrypt.NewSSE()
	case "aws:kms":
		b.sse, err = encrypt.NewSSEKMS(l.KMSKey, nil)
	}
	if err != nil {
		return nil, err
	}
	lookup := minio.BucketLookupAuto
	if l.PathStyle {
		lookup = minio.BucketLookupPath
	}
	b.client, err = minio.New(l.Endpoint, &minio.Options{
		Creds: b.creds, Secure: l.TLS, Transport: transport, Region: l.Region, BucketLookup: lookup, MaxRetries: tries,
	})
	if err != nil {
		return nil, invalid("blobs: %v", err).WithHint("Give s3://BUCKET/PREFIX?endpoint=https://HOST.")
	}
	b.client.SetAppInfo("bothy", "1")
	return b, nil
}

// chain looks for keys in the given file or the usual places.
func chain(l *Location) *credentials.Credentials {
	if l.Credentials != "" {
		return credentials.NewFileAWSCredentials(l.Credentials, l.Profile)
	}
	return credentials.NewChainCredentials([]credentials.Provider{
		&credentials.EnvAWS{},
		&credentials.FileAWSCredentials{},
		&credentials.IAM{Client: &http.Client{Timeout: connectTimeout}},
	})
}

// dial connects, with timeouts for reads and writes that make no progress.
func dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := (&net.Dialer{Timeout: connectTimeout}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &impatientConn{c}, nil
}

// impatientConn fails reads and writes that make no progress.
type impatientConn struct{ net.Conn }

func (c *impatientConn) Read(p []byte) (int, error) {
	// Idle connections block in a read; the transport closes them before this deadline.
	_ = c.SetReadDeadline(time.Now().Add(2 * silence))
	return c.Conn.Read(p)
}

func (c *impatientConn) Write(p []byte) (int, error) {
	_ = c.SetWriteDeadline(time.Now().Add(silence))
	return c.Conn.Write(p)
}

// Usable returns why nothing may be read or written; nil once Claim has succeeded.
func (b *Bucket) Usable() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.unfit
}

// Answers reports whether the storage responded to the last request.
func (b *Bucket) Answers() bool { return !b.silent.Load() }

// note records whether the storage responds. The error of a request that was given up says nothing
// about that.
func (b *Bucket) note(ctx context.Context, err *error) {
	if !errors.Is(ctx.Err(), context.Canceled) && !errors.Is(*err, context.Canceled) {
		b.silent.Store(errors.Is(*err, ErrUnavailable))
	}
}

func (b *Bucket) key(parts ...string) string { return b.Location.Prefix + path.Join(parts...) }

// put stores an object. With fresh, it returns fs.ErrExist if the object exists.
func (b *Bucket) put(ctx context.Context, key string, data []byte, fresh bool) (err error) {
	defer b.note(ctx, &err)
	o := minio.PutObjectOptions{SendContentMd5: true, DisableMultipart: true, ServerSideEncryption: b.sse, ContentType: "application/octet-stream"}
	if fresh {
		o.SetMatchETagExcept("*")
	}
	info, err := b.client.PutObject(ctx, b.Location.Bucket, key, bytes.NewReader(data), int64(len(data)), o)
	if err != nil {
		return b.translate("write", key, err)
	}
	if info.Size != int64(len(data)) {
		return fmt.Errorf("%w: it stored %d of the %d bytes of %s", ErrUnavailable, info.Size, len(data), key)
	}
	return nil
}

// get reads an object of at most the given size; hint is the expected size. A missing object is
// fs.ErrNotExist.
func (b *Bucket) get(ctx context.Context, key string, most, hint int64) (_ []byte, err error) {
	defer b.note(ctx, &err)
	o, err := b.client.GetObject(ctx, b.Location.Bucket, key, minio.GetObjectOptions{})
	if err != nil {
		return nil, b.translate("read", key, err)
	}
	defer o.Close()
	data := bytes.NewBuffer(make([]byte, 0, hint+bytes.MinRead))
	if _, err := data.ReadFrom(io.LimitReader(o, most+1)); err != nil {
		return nil, b.translate("read", key, err)
	}
	if int64(data.Len()) > most {
		return nil, fmt.Errorf("%s is larger than %d bytes", key, most)
	}
	return data.Bytes(), nil
}

// list returns the sizes of the objects below a prefix, by the rest of their keys.
func (b *Bucket) list(ctx context.Context, prefix string) (sizes map[string]int64, err error) {
	defer b.note(ctx, &err)
	sizes = map[string]int64{}
	for o := range b.client.ListObjectsIter(ctx, b.Location.Bucket, minio.ListObjectsOptions{Prefix: prefix, Recursive: true}) {
		if o.Err != nil {
			return nil, b.translate("list", prefix, o.Err)
		}
		sizes[strings.TrimPrefix(o.Key, prefix)] = o.Size
	}
	return sizes, ctx.Err()
}

// names lists what is directly below a prefix.
func (b *Bucket) names(ctx context.Context, prefix string, most int) (names []string, err error) {
	defer b.note(ctx, &err)
	for o := range b.client.ListObjectsIter(ctx, b.Location.Bucket, minio.ListObjectsOptions{Prefix: prefix}) {
		if o.Err != nil {
			return nil, b.translate("list", prefix, o.Err)
		}
		if name := strings.TrimSuffix(strings.TrimPrefix(o.Key, prefix), "/"); name != "" {
			names = append(names, name)
		}
		if most > 0 && len(names) >= most {
			break
		}
	}
	return names, ctx.Err()
}

func (b *Bucket) remove(ctx context.Context, key string) (err error) {
	defer b.note(ctx, &err)
	return b.translate("remove", key, b.client.RemoveObject(ctx, b.Location.Bucket, key, minio.RemoveObjectOptions{}))
}

// removeTree deletes a tree, its index first, so that it cannot be found half-deleted. Removing
// a missing tree is not an error.
func (b *Bucket) removeTree(ctx context.Context, kind, name string) error {
	if err := b.remove(ctx, b.key(kind, name, indexName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	prefix := b.key(kind, name) + "/"
	left, err := b.list(ctx, prefix)
	if err != nil {
		return err
	}
	for rest := range left {
		if err := b.remove(ctx, prefix+rest); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// translate translates the storage's errors to those that callers check for.
func (b *Bucket) translate(what, key string, err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	r := minio.ToErrorResponse(err)
	place := b.Location.String()
	switch {
	case r.Code == minio.NoSuchKey || (r.StatusCode == http.StatusNotFound && r.Code != minio.NoSuchBucket):
		return &fs.PathError{Op: what, Path: key, Err: fs.ErrNotExist}
	case r.Code == minio.PreconditionFailed || r.StatusCode == http.StatusPreconditionFailed:
		return &fs.PathError{Op: what, Path: key, Err: fs.ErrExist}
	case r.Code == minio.NoSuchBucket:
		return bothy.Errorf(bothy.CodeStore, "there is no bucket %s", b.Location.Bucket).
			WithHint("Create it, or correct the setting blobs.").Because(err)
	case r.StatusCode == http.StatusForbidden || r.StatusCode == http.StatusUnauthorized:
		return bothy.Errorf(bothy.CodeStore, "%s does not accept this server's keys to %s: %s", place, what, r.Code).
			WithHint("Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the server's environment, and allow them to list, read, write and delete objects there.").Because(err)
	case r.StatusCode == http.StatusMovedPermanently || r.StatusCode == http.StatusTemporaryRedirect || r.Code == "AuthorizationHeaderMalformed":
		return bothy.Errorf(bothy.CodeStore, "the bucket %s is in another region: %s", b.Location.Bucket, r.Message).
			WithHint("Set the region in the setting blobs: region=REGION.").Because(err)
	case r.StatusCode >= 400 && r.StatusCode < 500 && r.StatusCode != http.StatusRequestTimeout && r.StatusCode != http.StatusTooManyRequests:
		return bothy.Errorf(bothy.CodeStore, "%s refuses to %s: %s %s", place, what, r.Code, r.Message).
			WithHint("Run `bothy doctor` to test what the server needs.").Because(err)
	}
	return fmt.Errorf("%w: %s %s: %w", ErrUnavailable, what, key, err)
}
