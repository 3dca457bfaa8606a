package mcp

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/bothy-dev/bothy"
)

// Sandboxes are also resources: bothy://sandboxes lists them, and each has a page and its files
// below it.
const (
	resourceList = "bothy://sandboxes"
	resourceOne  = "bothy://sandboxes/{id}"
	resourceFile = "bothy://sandboxes/{id}/files{+path}"
)

func (t tools) addResources() {
	t.server.AddResource(&mcp.Resource{
		URI: resourceList, Name: "sandboxes", Title: "Your sandboxes", MIMEType: "application/json",
		Description: "All sandboxes that have not ended, newest first",
	}, t.readList)
	t.server.AddResourceTemplate(&mcp.ResourceTemplate{
		URITemplate: resourceOne, Name: "sandbox", Title: "A sandbox", MIMEType: "application/json",
		Description: "State, size, network policy and times of one sandbox",
	}, t.readOne)
	t.server.AddResourceTemplate(&mcp.ResourceTemplate{
		URITemplate: resourceFile, Name: "file", Title: "A file in a sandbox",
		Description: "The beginning of a file, as much as fits into 1 MiB, by its absolute path, such as bothy://sandboxes/ID/files/workspace/main.py",
	}, t.readPath)
}

func (t tools) readList(ctx context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	page, err := t.Sandboxes.List(ctx, bothy.SandboxFilter{States: bothy.LiveStates, Limit: 1000})
	if err != nil {
		return nil, failure(err)
	}
	if page.Items == nil {
		page.Items = []*bothy.Sandbox{}
	}
	page.Items = page.Items[:fitting(page.Items)]
	return jsonResource(req.Params.URI, page)
}

func (t tools) readOne(ctx context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	id, _, err := resourcePath(req.Params.URI)
	if err != nil {
		return nil, err
	}
	sb, err := t.Sandboxes.Get(ctx, id)
	if err != nil {
		return nil, resourceError(req.Params.URI, err)
	}
	return jsonResource(req.Params.URI, sb)
}

func (t tools) readPath(ctx context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	uri := req.Params.URI
	id, rest, err := resourcePath(uri)
	if err != nil {
		return nil, err
	}
	path, ok := strings.CutPrefix(rest, "files/")
	if !ok {
		return nil, mcp.ResourceNotFoundError(uri)
	}
	r, _, err := t.Files.Read(ctx, id, "/"+path, "")
	if err != nil {
		return nil, resourceError(uri, err)
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, maxRead+1))
	if err != nil {
		return nil, failure(err)
	}
	size := len(b)
	for most := maxAnswer; ; most /= 2 {
		b = b[:min(len(b), most)]
		c := &mcp.ResourceContents{URI: uri, MIMEType: http.DetectContentType(b)}
		if part := b; isText(&part, len(b) < size) {
			c.Text = string(part)
		} else {
			c.Blob = b
		}
		r := &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{c}}
		if encoded, err := json.Marshal(r); err != nil || len(encoded) <= maxAnswer {
			return r, err
		}
	}
}

// resourcePath splits a URI into the sandbox's id and the rest.
func resourcePath(uri string) (id, rest string, err error) {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != "bothy" || u.Host != "sandboxes" {
		return "", "", mcp.ResourceNotFoundError(uri)
	}
	id, rest, _ = strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	return id, rest, nil
}

func resourceError(uri string, err error) error {
	switch bothy.ErrorCode(err) {
	case bothy.CodeSandboxNotFound, bothy.CodeFileNotFound:
		return mcp.ResourceNotFoundError(uri)
	}
	return failure(err)
}

func jsonResource(uri string, v any) (*mcp.ReadResourceResult, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: uri, MIMEType: "application/json", Text: string(b)}}}, nil
}
