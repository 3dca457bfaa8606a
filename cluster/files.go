package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/bothy-dev/bothy"
)

// ReadFile reads a file of a sandbox that another host has, for the caller in ctx. found is false if no other
// host has the sandbox.
func (x *Router) ReadFile(ctx context.Context, sandbox, path, user string) (content io.ReadCloser, info *bothy.FileInfo, found bool, err error) {
	for range 2 { // it may have just moved
		o, err := x.o.Hosts.SandboxHost(ctx, sandbox)
		if err != nil || o.Host == "" || o.Host == x.o.Hosts.Self() || o.Dead {
			return nil, nil, false, err
		}
		content, info, err := x.readFile(ctx, o.Host, o.Address, sandbox, path, user)
		if bothy.ErrorCode(err) != bothy.CodeMisdirected {
			return content, info, true, err
		}
	}
	return nil, nil, true, elsewhere("sandbox " + sandbox)
}

func (x *Router) readFile(ctx context.Context, host, address, sandbox, path, user string) (io.ReadCloser, *bothy.FileInfo, error) {
	q := url.Values{"path": {path}}
	if user != "" {
		q.Set("user", user)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+host+"/v1/sandboxes/"+sandbox+"/files?"+q.Encode(), nil)
	if err != nil {
		return nil, nil, err
	}
	origin := bothy.OriginFrom(ctx)
	describe(req.Header, origin, origin.Remote)
	if c := bothy.CallerFrom(ctx); c != nil {
		req.Header.Set(headerProject, c.ProjectID)
		req.Header.Set(headerToken, c.TokenID)
	}
	res, err := x.transport.to(host, address).RoundTrip(req)
	if err != nil {
		return nil, nil, unanswered(host, err)
	}
	info := &bothy.FileInfo{}
	if res.StatusCode == http.StatusOK {
		if err = json.Unmarshal([]byte(res.Header.Get("X-File-Info")), info); err == nil {
			return res.Body, info, nil
		}
		res.Body.Close()
		return nil, nil, unanswered(host, fmt.Errorf("%s is no file there: %w", path, err))
	}
	defer res.Body.Close()
	_, p, err := readProblem(res)
	if err != nil || p.Code == "" {
		return nil, nil, unanswered(host, errors.Join(err, fmt.Errorf("it answers %s", res.Status)))
	}
	return nil, nil, bothy.Errorf(p.Code, "%s", p.Detail).WithHint("%s", p.Hint)
}
