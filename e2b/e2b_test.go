package e2b

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
)

// TestRoutes mounts all calls: the mux refuses ambiguous ones.
func TestRoutes(t *testing.T) {
	mux := http.NewServeMux()
	for _, r := range New(Services{}, Config{}).Routes() {
		if r.ID == "e2b:" || r.Scope == "" {
			t.Errorf("%s has no id or scope", r.Pattern)
		}
		mux.HandleFunc(r.Pattern, func(http.ResponseWriter, *http.Request) {})
	}
}

// A body of few bytes may decode to many values.
func TestBodiesHaveLimits(t *testing.T) {
	for body, want := range map[string]bothy.Code{
		``: "", `{"metadata":{"a":"b"}}`: "", `{"metadata":`: bothy.CodeInvalid,
		`{"x":[` + strings.Repeat("0,", maxValues) + `0]}`: bothy.CodeTooLarge,
		strings.Repeat(`[`, maxDepth+1):                    bothy.CodeTooLarge,
		`{"x":"` + strings.Repeat("x", maxBody) + `"}`:     bothy.CodeTooLarge,
	} {
		var v struct{ Metadata map[string]string }
		err := read(httptest.NewRecorder(), httptest.NewRequest("POST", "/sandboxes", strings.NewReader(body)), &v)
		if bothy.ErrorCode(err) != want {
			t.Errorf("%.30s: %v", body, err)
		}
	}
}

func TestPolicy(t *testing.T) {
	yes, no := true, false
	for name, c := range map[string]struct {
		internet *bool
		network  *network
		mode     bothy.NetworkMode
		domains  int
		ranges   int
		denied   int
		code     bothy.Code
	}{
		"nothing said":        {mode: bothy.NetworkOpen},
		"allowed":             {internet: &yes, mode: bothy.NetworkOpen},
		"denied":              {internet: &no, mode: bothy.NetworkOff},
		"all denied":          {network: &network{DenyOut: []string{"0.0.0.0/0"}}, mode: bothy.NetworkOff},
		"denied but for some": {internet: &no, network: &network{AllowOut: []string{"a.org", "*.b.org", "192.0.2.1", "198.51.100.0/24"}}, mode: bothy.NetworkRestricted, domains: 2, ranges: 2},
		"allowed needlessly":  {network: &network{AllowOut: []string{"a.org"}}, mode: bothy.NetworkOpen},
		"a part denied":       {network: &network{DenyOut: []string{"192.0.2.0/24"}, AllowOut: []string{"a.org", "192.0.2.1"}}, mode: bothy.NetworkOpen, domains: 1, ranges: 1, denied: 1},
		"a part and all":      {network: &network{DenyOut: []string{"192.0.2.0/24", "0.0.0.0/0"}}, mode: bothy.NetworkOff},
		"a name denied":       {network: &network{DenyOut: []string{"a.org"}}, code: bothy.CodeInvalid},
		"proxied":             {network: &network{Proxy: map[string]any{}}, code: bothy.CodeUnsupported},
	} {
		got, err := policyOf(c.internet, c.network)
		if bothy.ErrorCode(err) != c.code {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err == nil && (got.Mode != c.mode || len(got.AllowDomains) != c.domains || len(got.AllowCIDRs) != c.ranges || len(got.DenyCIDRs) != c.denied) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestRules(t *testing.T) {
	with := func(pairs ...string) rule {
		tr := &transform{Headers: map[string]string{}}
		for i := 0; i < len(pairs); i += 2 {
			tr.Headers[pairs[i]] = pairs[i+1]
		}
		return rule{tr}
	}
	n := &network{Rules: map[string][]rule{
		"a.org": {with("authorization", "Bearer one", "X-Stage", "test"), {}, with("Authorization", "Bearer two")},
		"b.org": {},
	}}
	got, err := n.secretsOf()
	want := []bothy.Secret{
		{Name: "e2b-rule-1", Value: "Bearer two", Hosts: []string{"a.org"}, Header: "Authorization", Override: true},
		{Name: "e2b-rule-2", Value: "test", Hosts: []string{"a.org"}, Header: "X-Stage", Override: true, AllowEcho: true},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	shown, err := json.Marshal(n.shown())
	if err != nil || strings.Contains(string(shown), "Bearer") || !strings.Contains(string(shown), `"authorization":"***"`) || n.Rules["a.org"][0].Transform.Headers["X-Stage"] != "test" {
		t.Errorf("shown is %s, %v", shown, err)
	}
	for host, r := range map[string]rule{"192.0.2.0/24": with("A", "b"), "c.org": with("A", "${e2b.identity.tokens.aws}")} {
		if _, err := (&network{Rules: map[string][]rule{host: {r}}}).secretsOf(); bothy.ErrorCode(err) != bothy.CodeUnsupported {
			t.Errorf("%s: %v", host, err)
		}
	}
	for name, c := range map[string]struct {
		has   []string
		rules *network
		want  int // -1: they stay
		code  bothy.Code
	}{
		"none":               {nil, &network{}, -1, ""},
		"dropped":            {[]string{"e2b-rule-1"}, &network{}, 0, ""},
		"given":              {nil, n, 2, ""},
		"another door's":     {[]string{"TOKEN"}, &network{}, -1, ""},
		"beside another's":   {[]string{"TOKEN"}, n, -1, bothy.CodeUnsupported},
		"mixed, and dropped": {[]string{"TOKEN", "e2b-rule-1"}, &network{}, -1, ""},
	} {
		got, err := replaceRules(&bothy.Sandbox{SecretNames: c.has}, c.rules)
		if bothy.ErrorCode(err) != c.code || (got == nil) != (c.want < 0) || got != nil && len(got) != c.want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// TestAgentCall checks that calls of E2B's clients pass, and none of those that the agent serves to the
// server only.
func TestAgentCall(t *testing.T) {
	for path, want := range map[string]bool{
		"/process.Process/Start": true, "/filesystem.Filesystem/Stat": true, "/files": true, "/health": true, "/envs": true, "/metrics": true,
		"/bothy.guest.v1.Guest/Adopt": false, "/bothy.guest.v1.Code/Run": false, "/bothy/files": false, "/bothy/tunnel": false,
		"/process.Process/../bothy/files": false, "/process.Process/..%2fbothy%2ffiles": false, "/process.Process//x": false,
		"/process.Process/": false, "/": false, "/process.Process/a/b": false,
	} {
		r := httptest.NewRequest("POST", "http://x"+path, nil)
		if _, ok := agentCall(r); ok != want {
			t.Errorf("%s: %v", path, ok)
		}
	}
}

func TestVersions(t *testing.T) {
	d := New(Services{}, Config{})
	for _, c := range []struct {
		language, version, host string
		refused                 bool
	}{
		{"python", "2.6.4", "127.0.0.1:7700", true}, {"python", "1.11.1", "localhost:7700", true}, {"python", "2.7.0", "127.0.0.1:7700", false},
		{"python", "2.63.0", "127.0.0.1:7700", false}, {"js", "2.10.4", "127.0.0.1:7700", true}, {"js", "2.11.1", "127.0.0.1:7700", false},
		{"js", "1.0.0", "api.boxes.test", false}, {"", "", "127.0.0.1:7700", false}, {"python", "dev", "127.0.0.1:7700", false},
	} {
		r := httptest.NewRequest("POST", "http://"+c.host+"/v2/sandboxes", nil)
		r.Header["Lang"], r.Header["Package_version"] = []string{c.language}, []string{c.version}
		if err := d.checkVersion(r); (err != nil) != c.refused {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestVersionsTested checks that the documented versions are those with which the tests run.
func TestVersionsTested(t *testing.T) {
	for language, c := range map[string]struct{ file, pin string }{
		"python": {"../test/e2b/requirements-newest.txt", "e2b==%d.%d.%d\n"}, "js": {"../test/e2b/newest/package.json", `"e2b": "%d.%d.%d"`},
	} {
		text, err := os.ReadFile(c.file)
		if err != nil {
			t.Fatal(err)
		}
		v := newest[language]
		if pin := fmt.Sprintf(c.pin, v[0], v[1], v[2]); !strings.Contains(string(text), pin) {
			t.Errorf("%s does not have %s", c.file, pin)
		}
	}
}

func TestCallsThatAreMissing(t *testing.T) {
	for _, c := range []struct{ language, version, want string }{
		{"python", "3.0.0", "newer than 2.63.0"}, {"js", "2.51.1", "newer than 2.51.0"}, {"python", "2.63.0", "docs/e2b.md"}, {"python", "dev", "docs/e2b.md"},
		{"", "", ""}, {"ruby", "1.0.0", ""},
	} {
		r := httptest.NewRequest("POST", "/v3/sandboxes", nil)
		r.Header["Lang"], r.Header["Package_version"] = []string{c.language}, []string{c.version}
		w := httptest.NewRecorder()
		if answered := New(Services{}, Config{}).ServeMissing(w, r); answered != (c.want != "") {
			t.Errorf("%+v: %v", c, answered)
		} else if answered && (w.Code != http.StatusNotImplemented || !strings.Contains(w.Body.String(), c.want)) {
			t.Errorf("%+v: %d %s", c, w.Code, w.Body)
		}
	}
}

// TestForControl finds the control API's requests among those that name a sandbox.
func TestForControl(t *testing.T) {
	for _, c := range []struct {
		path, key, port string
		want            bool
	}{
		{"/sandboxes/sbx1/connect", "k", "49983", true}, {"/sandboxes/sbx1/connect", "", "49983", false},
		{"/files", "k", "49983", false}, {"/process.Process/Start", "k", "49983", false}, {"/sandboxes", "k", "8000", false},
	} {
		r := httptest.NewRequest("POST", "http://x"+c.path, nil)
		r.Header.Set(headerPort, c.port)
		if c.key != "" {
			r.Header.Set("X-Api-Key", c.key)
		}
		if got := forControl(r); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestTokens(t *testing.T) {
	d := New(Services{}, Config{Secret: []byte("a")})
	other := New(Services{}, Config{Secret: []byte("b")})
	sb := target{id: "sbx1", sb: &bothy.Sandbox{ID: "sbx1", ProjectID: "p"}}
	good := d.token(tokenForAgent, "tok_1", "sbx1")
	for what, token := range map[string]string{
		"another sandbox's": d.token(tokenForAgent, "tok_1", "sbx2"), "another kind": d.token(tokenForTraffic, "tok_1", "sbx1"),
		"another server's": other.token(tokenForAgent, "tok_1", "sbx1"), "another key's name": "tok_2" + good[len("tok_1"):], "cut": good[:len(good)-1], "none": "",
	} {
		if _, ok := d.byToken(t.Context(), tokenForAgent, sb, token); ok {
			t.Errorf("a token that is %s opens the sandbox", what)
		}
	}
	if _, ok := d.byToken(t.Context(), tokenForAgent, sb, good); !ok {
		t.Error("the token does not open its sandbox")
	}
}
