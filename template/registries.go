package template

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"unicode"

	"github.com/bothy-dev/bothy"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// Registries configures how this server reaches image registries.
type Registries struct {
	// Mirrors are hosts tried before a registry, in order, by the registry's host. They are
	// reached with this server's own network, for every project.
	Mirrors map[string][]string
	// PlainHTTP are registries used without TLS. Those on this host always are.
	PlainHTTP []string
}

// Check validates the names of registries.
func (r Registries) Check() error {
	hosts := slices.Clone(r.PlainHTTP)
	for host, mirrors := range r.Mirrors {
		hosts = append(append(hosts, host), mirrors...)
	}
	for _, host := range hosts {
		if _, err := name.NewRegistry(host); err != nil || host == "" {
			return bothy.Errorf(bothy.CodeInvalid, "%q is not the host of a registry", host).
				WithHint("Write it like registry.example.com or registry.example.com:5000, without https:// and without a path.")
		}
	}
	return nil
}

// parse parses a reference to an image.
func (r Registries) parse(ref string) (name.Reference, error) {
	parsed, err := name.ParseReference(ref)
	if err == nil && slices.Contains(r.PlainHTTP, parsed.Context().RegistryStr()) {
		return name.ParseReference(ref, name.Insecure)
	}
	return parsed, err
}

// mirrors returns the names of an image in its registry's mirrors.
func (r Registries) mirrors(ref name.Reference) ([]name.Reference, error) {
	registry := ref.Context().RegistryStr()
	var list []name.Reference
	for host, mirrors := range r.Mirrors {
		of, err := name.NewRegistry(host)
		if err != nil {
			return nil, err
		}
		if of.RegistryStr() != registry {
			continue
		}
		for _, m := range mirrors {
			there := m + "/" + ref.Context().RepositoryStr()
			if _, ok := ref.(name.Digest); ok {
				there += "@" + ref.Identifier()
			} else {
				there += ":" + ref.Identifier()
			}
			mirror, err := r.parse(there)
			if err != nil {
				return nil, err
			}
			list = append(list, mirror)
		}
	}
	return list, nil
}

// onlyTLS refuses requests without TLS, except to hosts configured so and to this host.
type onlyTLS struct {
	http.RoundTripper
	plain []string
}

func (t onlyTLS) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" && !slices.Contains(t.plain, r.URL.Host) && !isLoopback(r.URL.Hostname()) {
		return nil, fmt.Errorf("%w: %s", errPlain, r.URL.Host)
	}
	return t.RoundTripper.RoundTrip(r)
}

var errPlain = errors.New("the connection would not use TLS, and registries.plain_http does not allow that")

// OpenImage opens an image in a registry for a project. The operator's project uses the host's
// networks, proxy, and docker login credentials. Any other reaches only what Options.Transport
// allows, anonymously. Logins add credentials for their registries.
func (l *Library) OpenImage(ctx context.Context, project, ref string, logins []bothy.RegistryLogin) (v1.Image, error) {
	r, err := l.opts.Registries.parse(ref)
	if err != nil {
		return nil, bothy.Errorf(bothy.CodeInvalid, "%q is not a reference to an image", ref).
			WithHint("Write it like alpine:3.20 or registry.example.com/team/image:tag; a path must be absolute.").Because(err)
	}
	mirrors, err := l.opts.Registries.mirrors(r)
	if err != nil {
		return nil, err
	}
	for _, m := range mirrors {
		img, err := l.ask(ctx, project, m, true, logins)
		if err == nil || ctx.Err() != nil || bothy.ErrorCode(err) == bothy.CodeInvalid {
			return img, err
		}
	}
	return l.ask(ctx, project, r, false, logins)
}

func (l *Library) ask(ctx context.Context, project string, ref name.Reference, mirror bool, logins []bothy.RegistryLogin) (v1.Image, error) {
	options, err := l.registryOptions(project, ref, mirror, logins)
	if err != nil {
		return nil, err
	}
	img, err := remote.Image(ref, append(options, remote.WithContext(ctx),
		remote.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}))...)
	if err == nil {
		err = checkDescription(img)
	}
	if err == nil {
		_, err = img.ConfigFile()
	}
	if err != nil {
		return nil, pullError(ref.String(), err)
	}
	return img, nil
}

// registryOptions configure a project's access to an image's registry: see OpenImage.
func (l *Library) registryOptions(project string, ref name.Reference, mirror bool, logins []bothy.RegistryLogin) ([]remote.Option, error) {
	auth, err := loginFor(ref, logins)
	if err != nil {
		return nil, err
	}
	over := remote.DefaultTransport
	if project != bothy.DefaultProject && !mirror {
		if over = l.opts.Transport; over == nil {
			return nil, bothy.Errorf(bothy.CodeTemplateInvalid, "this server does not let projects use registries").
				WithHint("Ask the operator to import the image.")
		}
	}
	as := remote.WithAuth(auth)
	if project == bothy.DefaultProject && auth == authn.Anonymous {
		as = remote.WithAuthFromKeychain(authn.DefaultKeychain)
	}
	return []remote.Option{remote.WithTransport(&modest{RoundTripper: attentive{onlyTLS{over, l.opts.Registries.PlainHTTP}}}), as}, nil
}

// loginFor finds the login for an image's registry; the default is authn.Anonymous.
func loginFor(ref name.Reference, logins []bothy.RegistryLogin) (authn.Authenticator, error) {
	for _, one := range logins {
		host, err := name.NewRegistry(one.Host)
		if err != nil || one.Host == "" || one.Username == "" && one.Password == "" {
			return nil, bothy.Errorf(bothy.CodeInvalid, "the login for the registry %q is invalid", one.Host).
				WithHint("Give the registry's host, such as registry.example.com:5000, a username and a password.")
		}
		if host.RegistryStr() == ref.Context().RegistryStr() {
			return authn.FromConfig(authn.AuthConfig{Username: one.Username, Password: one.Password}), nil
		}
	}
	return authn.Anonymous, nil
}

// pullError explains a registry's error, or that it did not respond.
func pullError(ref string, err error) error {
	const save = "Or save the image where it can be fetched (docker save IMAGE -o FILE) and import the file."
	if e := unreachable(ref, err, save); e != nil {
		return e
	}
	status := registryStatus(err)
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return bothy.Errorf(bothy.CodeTemplateInvalid, "the registry does not let this server read %s", ref).
			WithHint("The image may not exist, or needs credentials: give them with the build, or run docker login as the server's user. %s", save).Because(err)
	case http.StatusNotFound:
		return bothy.Errorf(bothy.CodeTemplateInvalid, "the registry has no image %s for linux/%s", ref, runtime.GOARCH).
			WithHint("Check the name and the tag.").Because(err)
	}
	if status == http.StatusTooManyRequests {
		return bothy.Errorf(bothy.CodeTemplateInvalid, "the registry answered %d for %s%s", status, ref, registryWords(err)).
			WithHint("It limits how often images are fetched: wait, or give a login with the build. %s", save).Because(err)
	}
	return bothy.Errorf(bothy.CodeTemplateInvalid, "the registry answered %d for %s%s", status, ref, registryWords(err)).WithHint(save).Because(err)
}

// pushError is pullError for pushing an image.
func pushError(ref string, err error) error {
	if e := unreachable(ref, err, ""); e != nil {
		return e
	}
	status := registryStatus(err)
	if status == http.StatusUnauthorized || status == http.StatusForbidden {
		return bothy.Errorf(bothy.CodeTemplateInvalid, "the registry does not let this server write %s", ref).
			WithHint("Give a login with write access, or run docker login as the server's user.").Because(err)
	}
	hint := "Check the name and the tag."
	if status == http.StatusTooManyRequests || status >= 500 {
		hint = "Try again later."
	}
	return bothy.Errorf(bothy.CodeTemplateInvalid, "the registry answered %d for %s%s", status, ref, registryWords(err)).WithHint("%s", hint).Because(err)
}

// registryStatus is the HTTP status of a registry's response; 0 if there was none.
func registryStatus(err error) int {
	if t, ok := errors.AsType[*transport.Error](err); ok {
		return t.StatusCode
	}
	return 0
}

// maxWords limits what is repeated of a registry's own words.
const maxWords = 400

// registryWords is what a registry said about its error, after a colon, if it said anything in the
// format of registries.
func registryWords(err error) string {
	t, ok := errors.AsType[*transport.Error](err)
	if !ok {
		return ""
	}
	var said []string
	for _, d := range t.Errors[:min(len(t.Errors), 3)] {
		text := strings.TrimSpace(d.Message)
		if text == "" {
			text = string(d.Code)
		}
		text = strings.Map(func(r rune) rune {
			if !unicode.IsPrint(r) {
				return ' '
			}
			return r
		}, text[:min(len(text), 4*maxWords)])
		if text != "" && !slices.Contains(said, text) {
			said = append(said, text)
		}
	}
	if len(said) == 0 {
		return ""
	}
	text := strings.Join(said, "; ")
	if len(text) > maxWords {
		text = text[:maxWords] + "…"
	}
	return ": " + strings.ToValidUTF8(text, "")
}

// unreachable is the error for a registry that did not respond, or nil if it did.
func unreachable(ref string, err error, or string) error {
	if e, ok := errors.AsType[errImmodest](err); ok {
		return bothy.Errorf(bothy.CodeTemplateInvalid, "the image %s cannot be used: %v", ref, e).
			WithHint("Use an image with fewer layers and a smaller config.").Because(err)
	}
	switch {
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return err
	case registryStatus(err) != 0:
		return nil
	case errors.Is(err, errPlain):
		return bothy.Errorf(bothy.CodeTemplateInvalid, "the registry of %s does not use TLS: %v", ref, err).
			WithHint("Give the registry a certificate, or ask the operator to add its host to registries.plain_http in the server's settings.").Because(err)
	}
	if _, ok := errors.AsType[net.Error](err); !ok {
		return bothy.Errorf(bothy.CodeTemplateInvalid, "the response of the registry of %s is invalid: %v", ref, err).
			WithHint("%s", strings.TrimSpace("Check that it is a registry of container images. "+or)).Because(err)
	}
	return bothy.Errorf(bothy.CodeTemplateInvalid, "cannot reach the registry of %s: %v", ref, err).
		WithHint("%s", strings.TrimSpace("Check the name, the network, the proxy settings and the certificates of the server. "+or)).Because(err)
}

// isLoopback reports whether a host is this one.
func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}
