package s3

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/bothy-dev/bothy"
)

// Location is where a bucket is and how to reach it, as parsed from the setting blobs.
type Location struct {
	// Bucket and Prefix locate the objects. Prefix is empty or ends in a slash.
	Bucket, Prefix string
	// Endpoint is host:port of the server. TLS selects https.
	Endpoint string
	TLS      bool
	Region   string
	// PathStyle puts the bucket's name into the path instead of the host name.
	PathStyle bool
	// CAFile contains the authorities to verify the server's certificate with; empty means
	// those of this host.
	CAFile string
	// Encryption is "", AES256 or aws:kms, and KMSKey is the key for aws:kms.
	Encryption, KMSKey string
	// Credentials is a file in the format of ~/.aws/credentials, and Profile a section of it;
	// empty means the usual places.
	Credentials, Profile string
	// Ignored is a parameter that has no effect any more, if one is given.
	Ignored string
}

// amazon is the default endpoint.
const amazon = "s3.amazonaws.com"

var bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)

// verifyDays is a parameter of earlier versions, which regularly verified what is stored.
const verifyDays = "verify_days"

// parameters are the allowed query parameters.
var parameters = []string{"endpoint", "region", "path_style", "ca_file", "sse", "kms_key", "credentials", "profile"}

// ParseLocation parses s3://BUCKET/PREFIX?endpoint=…&region=….
func ParseLocation(text string) (*Location, error) {
	u, err := url.Parse(text)
	if err != nil {
		// Do not repeat the value: it may contain a password.
		return nil, invalid("blobs is not the URL of a bucket").WithHint("Give s3://BUCKET/PREFIX?endpoint=https://HOST, or nothing for this host's disk alone.")
	}
	if u.User != nil {
		return nil, invalid("the URL in blobs contains a key").
			WithHint("Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a file with the key: s3://BUCKET?credentials=/etc/bothy/s3.")
	}
	if u.Scheme != "s3" || !bucketName.MatchString(u.Host) || u.Fragment != "" {
		return nil, invalid("blobs is not the URL of a bucket").WithHint("Give s3://BUCKET/PREFIX?endpoint=https://HOST, or nothing for this host's disk alone.")
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, invalid("the query of the URL in blobs is invalid").WithHint("Write it as in s3://BUCKET?endpoint=https://HOST&region=REGION.")
	}
	ignored := ""
	if q.Has(verifyDays) {
		ignored = verifyDays
		q.Del(verifyDays)
	}
	for key, values := range q {
		if !slices.Contains(parameters, key) {
			return nil, invalid("blobs has an unknown parameter %q", key).WithHint("The parameters are %s.", strings.Join(parameters, ", "))
		}
		if len(values) > 1 {
			return nil, invalid("blobs has %s twice", key).WithHint("Give it once.")
		}
	}
	l := &Location{
		Bucket: u.Host, Prefix: strings.Trim(u.Path, "/"), Endpoint: amazon, TLS: true, Region: q.Get("region"),
		CAFile: q.Get("ca_file"), Encryption: q.Get("sse"), KMSKey: q.Get("kms_key"),
		Credentials: q.Get("credentials"), Profile: q.Get("profile"), Ignored: ignored,
	}
	if l.Prefix != "" {
		l.Prefix += "/"
	}
	if e := q.Get("endpoint"); e != "" {
		if err := l.setEndpoint(e); err != nil {
			return nil, err
		}
	}
	if v := q.Get("path_style"); v != "" {
		if l.PathStyle, err = strconv.ParseBool(v); err != nil {
			return nil, invalid("blobs has path_style=%s", v).WithHint("Give true or false.")
		}
	}
	return l, l.check()
}

func (l *Location) setEndpoint(text string) error {
	e, err := url.Parse(text)
	if err != nil || (e.Scheme != "https" && e.Scheme != "http") || e.Host == "" || strings.Trim(e.Path, "/") != "" || e.User != nil || e.RawQuery != "" {
		return invalid("the endpoint in blobs is not the URL of a server").WithHint("Give endpoint=https://HOST or https://HOST:PORT; http:// does not use TLS.")
	}
	l.Endpoint, l.TLS = e.Host, e.Scheme == "https"
	return nil
}

func (l *Location) check() error {
	switch l.Encryption {
	case "", "AES256":
		if l.KMSKey != "" {
			return invalid("blobs has kms_key without sse=aws:kms").WithHint("Give both.")
		}
	case "aws:kms":
	default:
		return invalid("blobs has sse=%s", l.Encryption).WithHint("Give AES256 or aws:kms, or omit sse to use the bucket's default.")
	}
	if l.Profile != "" && l.Credentials == "" {
		return invalid("blobs has profile without credentials").WithHint("Add credentials=FILE, or set AWS_PROFILE in the server's environment.")
	}
	for name, path := range map[string]string{"ca_file": l.CAFile, "credentials": l.Credentials} {
		if path == "" {
			continue
		}
		if _, err := os.Stat(path); err != nil {
			reason := err
			if pe := (*os.PathError)(nil); errors.As(err, &pe) {
				reason = pe.Err
			}
			return invalid("blobs: cannot read the file in %s: %v", name, reason).WithHint("Check the path %s and its permissions.", path)
		}
	}
	return nil
}

// String names the place for people. It contains no secrets.
func (l *Location) String() string {
	return fmt.Sprintf("s3://%s/%s at %s", l.Bucket, l.Prefix, l.Endpoint)
}

func invalid(format string, args ...any) *bothy.Error {
	return bothy.Errorf(bothy.CodeInvalid, format, args...)
}
