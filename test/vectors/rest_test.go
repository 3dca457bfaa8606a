package vectors

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// restPlayer speaks HTTP by itself.
type restPlayer struct{ url, key string }

func (p *restPlayer) request(ctx context.Context, method, path string, query url.Values, body []byte, kind string) (*http.Response, *failure) {
	target := p.url + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		return nil, &failure{Detail: err.Error()}
	}
	r.Header.Set("Authorization", "Bearer "+p.key)
	r.Header.Set("Accept", kind)
	if method == http.MethodPut {
		r.Header.Set("Content-Type", "application/octet-stream")
	} else if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, &failure{Detail: err.Error()}
	}
	if res.StatusCode < 300 {
		return res, nil
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	f := &failure{}
	if json.Unmarshal(text, f) != nil || f.Code == "" {
		f.Detail = fmt.Sprintf("%s: %s", res.Status, text)
	}
	if got := res.Header.Get("Content-Type"); got != "application/problem+json" {
		f.Code = "a problem of the type " + got
	}
	return nil, f
}

func (p *restPlayer) call(method, path string, query url.Values, in any) (object, *failure) {
	var body []byte
	if in != nil {
		body, _ = json.Marshal(in)
	}
	res, failed := p.request(context.Background(), method, path, query, body, "application/json")
	if failed != nil {
		return nil, failed
	}
	return read(res)
}

func read(res *http.Response) (object, *failure) {
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, &failure{Detail: err.Error()}
	}
	if len(text) == 0 {
		return object{}, nil
	}
	var out object
	if err := json.Unmarshal(text, &out); err != nil {
		return nil, &failure{Detail: err.Error()}
	}
	return out, nil
}

// only returns those of a step's arguments that are named, by the names of the
// API where they differ.
func only(step object, names ...string) object {
	out := object{}
	for _, name := range names {
		from, to, renamed := strings.Cut(name, ":")
		if !renamed {
			to = from
		}
		if v, ok := step[from]; ok {
			out[to] = v
		}
	}
	return out
}

func query(step object, names ...string) url.Values {
	q := url.Values{}
	for k, v := range only(step, names...) {
		q.Set(k, fmt.Sprint(v))
	}
	return q
}

var execNames = []string{"command", "cwd", "env", "user", "timeout_seconds", "stdin"}

func (p *restPlayer) play(step object, heard func(string)) (object, *failure) {
	base := "/v1/sandboxes/" + text(step["sandbox"])
	process := fmt.Sprintf("%s/processes/%.0f", base, number(step["pid"], 0))
	switch step["do"] {
	case "create":
		return p.call("POST", "/v1/sandboxes", nil, only(step, "template", "timeout_seconds"))
	case "terminate":
		return p.call("DELETE", base, nil, nil)
	case "pause", "resume":
		return p.call("POST", base+"/"+text(step["do"]), nil, nil)
	case "metrics":
		return p.call("GET", base+"/metrics", nil, nil)
	case "exec":
		return p.call("POST", base+"/exec", nil, only(step, execNames...))
	case "spawn":
		in := only(step, execNames...)
		in["background"] = true
		return p.call("POST", base+"/exec", nil, in)
	case "stream":
		return p.stream(base, step, heard)
	case "processes":
		return p.call("GET", base+"/processes", nil, nil)
	case "follow":
		return p.follow(process, step)
	case "stdin":
		return p.call("POST", process+"/stdin", nil, only(step, "data", "eof"))
	case "signal":
		return p.call("POST", process+"/signal", nil, only(step, "signal"))
	case "kill":
		return p.call("DELETE", process, nil, nil)
	case "logs":
		return p.logs(base, step)
	case "events":
		return p.events(step)
	case "code":
		return p.call("POST", base+"/code", nil, only(step, "code", "language", "context:context_id", "timeout_seconds", "env"))
	case "contexts":
		return p.call("GET", base+"/contexts", nil, nil)
	case "context_create":
		return p.call("POST", base+"/contexts", nil, only(step, "language", "cwd"))
	case "context_restart":
		return p.call("POST", base+"/contexts/"+text(step["context"])+"/restart", nil, nil)
	case "context_remove":
		return p.call("DELETE", base+"/contexts/"+text(step["context"]), nil, nil)
	}
	return p.file(base+"/files", step)
}

func (p *restPlayer) file(base string, step object) (object, *failure) {
	switch step["do"] {
	case "write":
		res, failed := p.request(context.Background(), "PUT", base, query(step, "path", "user", "mode"), content(step), "application/json")
		if failed != nil {
			return nil, failed
		}
		return read(res)
	case "read":
		res, failed := p.request(context.Background(), "GET", base, query(step, "path", "user"), nil, "*/*")
		if failed != nil {
			return nil, failed
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		if err != nil {
			return nil, &failure{Detail: err.Error()}
		}
		if res.Header.Get("X-File-Info") == "" { // of a folder it is a list
			return nil, &failure{Code: "is_a_directory", Hint: "-"}
		}
		return object{"text": string(b), "base64": base64.StdEncoding.EncodeToString(b)}, nil
	case "list":
		res, failed := p.request(context.Background(), "GET", base, query(step, "path", "user", "depth"), nil, "*/*")
		if failed != nil {
			return nil, failed
		}
		if res.Header.Get("X-File-Info") != "" {
			res.Body.Close()
			return nil, &failure{Code: "not_a_directory", Hint: "-"}
		}
		return read(res)
	case "stat":
		return p.call("GET", base+"/stat", query(step, "path", "user"), nil)
	case "exists":
		_, failed := p.call("GET", base+"/stat", query(step, "path", "user"), nil)
		if failed != nil && failed.Code != "file_not_found" && failed.Code != "not_a_directory" {
			return nil, failed
		}
		return object{"exists": failed == nil}, nil
	case "mkdir":
		return p.call("POST", base+"/mkdir", nil, only(step, "path", "user"))
	case "move":
		return p.call("POST", base+"/move", nil, only(step, "from", "to", "user"))
	case "remove":
		return p.call("DELETE", base, query(step, "path", "user"), nil)
	}
	return nil, &failure{Detail: fmt.Sprintf("nobody can do %v", step["do"])}
}

type event struct {
	Stream, Data, Encoding string
	Offset                 int64
	IsFinal                bool `json:"is_final"`
	Code, Hint, Detail     string
}

func (e event) bytes() []byte {
	if e.Encoding != "base64" {
		return []byte(e.Data)
	}
	b, err := base64.StdEncoding.DecodeString(e.Data)
	if err != nil {
		panic(err)
	}
	return b
}

// listen calls fn with each event, until it says that it has heard enough.
func listen(res *http.Response, fn func(event, object) bool) *failure {
	defer res.Body.Close()
	r := bufio.NewReader(res.Body)
	failed := false
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return &failure{Detail: "the stream ended: " + err.Error()}
		}
		failed = failed || strings.HasPrefix(line, "event: error")
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}
		var e event
		var all object
		if json.Unmarshal([]byte(data), &e) != nil || json.Unmarshal([]byte(data), &all) != nil {
			return &failure{Detail: "not JSON: " + data}
		}
		if failed {
			return &failure{Code: e.Code, Hint: e.Hint, Detail: e.Detail}
		}
		if !fn(e, all) {
			return nil
		}
	}
}

func (p *restPlayer) stream(base string, step object, heard func(string)) (object, *failure) {
	body, _ := json.Marshal(only(step, execNames...))
	res, failed := p.request(context.Background(), "POST", base+"/exec", nil, body, "text/event-stream")
	if failed != nil {
		return nil, failed
	}
	var out outputs
	var final object
	failed = listen(res, func(e event, all object) bool {
		if e.IsFinal {
			final = all
			return false
		}
		out.add(e.Stream, e.bytes())
		heard(string(e.bytes()))
		return true
	})
	answer := out.answer()
	for k, v := range final {
		answer[k] = v
	}
	return answer, failed
}

func (p *restPlayer) follow(process string, step object) (object, *failure) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	from := int64(number(step["from"], 0))
	stop := int64(number(step["stop_after"], 1<<60))
	res, failed := p.request(ctx, "GET", process+"/output", url.Values{"from": {fmt.Sprint(from)}}, nil, "text/event-stream")
	if failed != nil {
		return nil, failed
	}
	var all []byte
	var exit any
	failed = listen(res, func(e event, o object) bool {
		if e.IsFinal {
			exit = o["exit_code"]
			return false
		}
		if len(all) == 0 {
			from = e.Offset
		}
		all = append(all, e.bytes()...)
		return from+int64(len(all)) < stop
	})
	return followed(from, all, exit), failed
}

func (p *restPlayer) logs(base string, step object) (object, *failure) {
	got, failed := p.call("GET", base+"/logs", query(step, "pid"), nil)
	if failed != nil {
		return nil, failed
	}
	all := ""
	items, _ := got["items"].([]any)
	for _, item := range items {
		all += text(item.(object)["data"])
	}
	return object{"text": all}, nil
}

// events lists the types of what happened to the sandbox, whatever happened to
// others before.
func (p *restPlayer) events(step object) (object, *failure) {
	types := []any{}
	since := "0"
	for {
		page, failed := p.call("GET", "/v1/events", url.Values{"since": {since}, "limit": {"1000"}}, nil)
		if failed != nil {
			return nil, failed
		}
		items, _ := page["items"].([]any)
		for _, item := range items {
			if e := item.(object); e["sandbox_id"] == step["sandbox"] {
				types = append(types, e["type"])
			}
		}
		if since = text(page["next_cursor"]); since == "" {
			return object{"types": types}, nil
		}
	}
}
