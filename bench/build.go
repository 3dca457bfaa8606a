package bench

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
)

// Names of the measures of builds.
const (
	BuildClean  = "build_clean"
	BuildCached = "build_cached"
	BuildLast   = "build_last"
	ImageImport = "image_import"
	CreateServe = "create_serve"
)

// Dockerfile is built by all subjects, from an image that each has under the name in BASE. It
// needs no network.
const Dockerfile = `ARG BASE
FROM ${BASE}
USER root
WORKDIR /srv/app
COPY . /srv/app
RUN mkdir out && for i in $(seq 2000); do echo "$i" >out/$i; done
RUN cp -r /usr/lib/python3* /srv/lib 2>/dev/null || cp -r /usr/share /srv/lib
RUN find /srv -type f | sort | xargs sha256sum >/srv/sums
RUN tar -C /srv -czf /srv/all.tar.gz app lib && tar -tzf /srv/all.tar.gz | wc -l
ARG LAST
RUN echo "$LAST" >/srv/last
`

// BuildContext is a tar of what COPY copies: 500 files of 4 KiB.
func BuildContext() []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	text := strings.Repeat("0123456789abcdef", 256)
	for i := range 500 {
		_ = w.WriteHeader(&tar.Header{Name: fmt.Sprintf("src/%d/file%d", i%20, i), Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(text)), ModTime: time.Unix(1e9, 0)})
		_, _ = w.Write([]byte(text))
	}
	w.Close()
	return b.Bytes()
}

// BuildOf is a subject that builds the Dockerfile: completely, again unchanged, and again after
// a change of the last step.
func BuildOf(name string, build func(ctx context.Context, last string, clean bool) error) Subject {
	turn := 0
	return Subject{Name: name, Once: func(ctx context.Context, record Record) error {
		for _, one := range []struct {
			measure string
			clean   bool
			turn    int
		}{{BuildClean, true, turn}, {BuildCached, false, turn}, {BuildLast, false, turn + 1}} {
			begun := time.Now()
			if err := build(ctx, fmt.Sprint(one.turn), one.clean); err != nil {
				return fmt.Errorf("%s: %w", one.measure, err)
			}
			record(one.measure, Since(begun))
		}
		turn += 2
		return nil
	}}
}

// buildName is the name of the templates that are built here.
const buildName = "bothy-bench"

// Build is a subject: Bothy's build, until sandboxes can be made from the template.
func (t Target) Build() Subject {
	files := BuildContext()
	return BuildOf("bothy", func(ctx context.Context, last string, clean bool) error {
		c, err := t.Client.Builder.UploadContext(ctx, bytes.NewReader(files))
		if err != nil {
			return err
		}
		return t.buildAll(ctx, bothy.BuildRequest{
			Name: buildName, Dockerfile: Dockerfile, ContextID: c.ID, Args: map[string]string{"BASE": t.Template, "LAST": last}, Engine: t.Engine,
			NoCache: clean, Network: &bothy.Network{Mode: bothy.NetworkOff},
			CPU: min(float64(runtime.NumCPU()), bothy.MaxCPU), // as many as others use by default
		})
	})
}

// buildAll builds a template, to the end.
func (t Target) buildAll(ctx context.Context, req bothy.BuildRequest) error {
	b, err := t.Client.Builder.StartBuild(ctx, req)
	if err != nil {
		return err
	}
	failed := errors.New("the build's log has no end")
	err = t.Client.Builder.BuildLog(ctx, b.ID, 0, func(_ int64, e bothy.BuildEvent) error {
		if e.Template != nil {
			failed = nil
		} else if e.Error != "" {
			failed = errors.New(e.Error)
		}
		return nil
	})
	return errors.Join(err, failed)
}

// BuildServed builds a template in which a web server already runs.
func (t Target) BuildServed(ctx context.Context) error {
	return t.buildAll(ctx, bothy.BuildRequest{
		Name: buildName, Dockerfile: "FROM " + t.Template + "\nWORKDIR /srv\n", Engine: t.Engine, Network: &bothy.Network{Mode: bothy.NetworkOff},
		Start: &bothy.TemplateStart{Command: fmt.Sprint("python3 -m http.server ", servedPort), Ready: &bothy.TemplateReady{Port: servedPort}},
	})
}

const servedPort = 8000

// servedAsked is how often a template is requested before the pool keeps a sandbox of it.
const servedAsked = 2

// Served is a subject: a request for a sandbox of that template while one is ready, and then for
// a page, with the client's key.
func (t Target) Served(ctx context.Context, key string) (Subject, error) {
	others, err := gauge(ctx, t.Client, "bothy_pool_ready")
	if err != nil {
		return Subject{}, err
	}
	for range servedAsked {
		if _, err := t.serveOnce(ctx, key); err != nil {
			return Subject{}, err
		}
	}
	return Subject{Name: "bothy", Once: func(ctx context.Context, record Record) error {
		if err := t.awaitPool(ctx, others+1); err != nil {
			return err
		}
		took, err := t.serveOnce(ctx, key)
		if err == nil {
			record(CreateServe, took)
		}
		return err
	}}, nil
}

// serveOnce creates a sandbox whose server already runs, and returns when its first page has
// arrived.
func (t Target) serveOnce(ctx context.Context, key string) (took float64, err error) {
	begun := time.Now()
	sb, end, err := t.Create(ctx, bothy.SandboxCreate{Template: buildName})
	if err != nil {
		return 0, err
	}
	defer end()
	url := fmt.Sprintf("%s/v1/sandboxes/%s/ports/%d/", t.Client.URL(), sb.ID, servedPort)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0, err
	}
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("the server inside answers %s", resp.Status)
	}
	return Since(begun), nil
}

// Import is a subject: an image in a file becomes a template.
func (t Target) Import(file string) Subject {
	return Subject{Name: "bothy", Once: func(ctx context.Context, record Record) error {
		begun := time.Now()
		_, err := t.Client.Templates.BuildTemplate(ctx, bothy.TemplateBuild{Name: buildName, Image: file, Force: true}, nil)
		record(ImageImport, Since(begun))
		return err
	}}
}

// RemoveBuilt removes what Build and Import make.
func (t Target) RemoveBuilt() {
	_ = t.Client.Templates.RemoveTemplate(context.Background(), buildName)
}
