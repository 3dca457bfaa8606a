package rest

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/middleware"
	"github.com/bothy-dev/bothy/api/openapi"
)

type exportInput struct {
	ID         string `path:"id" doc:"The snapshot's id."`
	Passphrase string `header:"X-Bothy-Passphrase" doc:"Encrypt the archive with this passphrase."`
}

type importInput struct {
	Name       string `query:"name" maxLength:"128" doc:"A name for the snapshot, instead of the one that it had."`
	Passphrase string `header:"X-Bothy-Passphrase" doc:"The passphrase that the archive was exported with."`
}

func (s *handlers) registerMover() {
	svc := s.services.Mover
	if svc == nil {
		return
	}
	openapi.Add(s.registry, middleware.Operation{
		ID: "export-snapshot", Audit: true, Method: http.MethodGet, Path: "/v1/snapshots/{id}/export", Tag: "Snapshots",
		Summary: "Export a snapshot as one file", Scope: bothy.ScopeSandboxesWrite,
		Text: "An archive (tar, zstd, and age if there is a passphrase) of all memory and files, signed with this server's key. It can be " +
			"imported on another server: with its memory if that server trusts the key and has the engine build that wrote it, " +
			"with its files anywhere. The number of concurrent exports and imports is limited: a further one waits briefly, and is then refused " +
			"with `rate_limited` or `capacity` and `Retry-After`.",
		Returns: []middleware.Form{middleware.Bytes("application/octet-stream")},
	}, func(_ context.Context, in *exportInput) (*openapi.Response, error) {
		return openapi.Respond(func(w http.ResponseWriter, r *http.Request) { s.exportSnapshot(w, r, in) }), nil
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "import-snapshot", Method: http.MethodPost, Path: "/v1/snapshots/import", Tag: "Snapshots", Raw: true,
		Summary: "Import a snapshot", Scope: bothy.ScopeSandboxesWrite, Status: http.StatusCreated,
		Text: "The body is an archive, of any size that fits the project's quota and the host's disk. Every byte is " +
			"checked before the snapshot appears, under a new id, dated now, as of a sandbox unknown to this server. Memory and " +
			"processes are kept only from an archive signed by this server, or with a key listed in the settings' " +
			"`snapshots.trusted_keys`. From any other only the files are kept: `kind` is `files` and `detail` says why, as does " +
			"`resumed.detail` of sandboxes created from it.",
	}, func(_ context.Context, in *importInput) (*openapi.Response, error) {
		return openapi.Respond(func(w http.ResponseWriter, r *http.Request) {
			r.Body = io.NopCloser(r.Body) // the caller may not be finished with it
			body := &pacedReader{pace: pace{silence: s.archiveSilence}, c: http.NewResponseController(w), body: r.Body}
			n, err := svc.ImportSnapshot(r.Context(), in.Name, in.Passphrase, body)
			if err != nil {
				s.Fail(w, r, err)
				return
			}
			openapi.WriteJSON(w, http.StatusCreated, n)
		}), nil
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "get-archive-key", Method: http.MethodGet, Path: "/v1/snapshots/key", Tag: "Snapshots",
		Summary: "Get the key that signs archives", Scope: bothy.ScopeSandboxesRead,
		Text: "The public key of this server, with which another one verifies what was exported here: its operator adds it to " +
			"`snapshots.trusted_keys` in the settings.",
	}, func(ctx context.Context, _ *struct{}) (*openapi.Answer[*bothy.ArchiveKey], error) {
		return one(svc.ArchiveKey(ctx))
	})
}

func (s *handlers) exportSnapshot(w http.ResponseWriter, r *http.Request, in *exportInput) {
	from, to := io.Pipe()
	go func() { to.CloseWithError(s.services.Mover.ExportSnapshot(r.Context(), in.ID, in.Passphrase, to)) }()
	defer from.Close()
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", in.ID+".bothy"))
	s.copyOrAbort(&pacedWriter{pace: pace{silence: s.archiveSilence}, ResponseWriter: w, c: http.NewResponseController(w)}, r, from)
}
