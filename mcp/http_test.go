package mcp

import (
	"io"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
)

// Where no host can take a call, such as one for labels that none has, the model reads why.
func TestCallsThatReachNoHost(t *testing.T) {
	err := bothy.Errorf(bothy.CodeInvalid, "no host of the cluster has the labels zone=x").WithHint("Omit host_labels.")
	for body, want := range map[string]string{
		`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{}}`: `{"id":7,"jsonrpc":"2.0","result":{"content":[{"text":"invalid_argument: no host of the cluster has the labels zone=x\nOmit host_labels.","type":"text"}],"isError":true}}`,
		`{"jsonrpc":"2.0","method":"notifications/x"}`:               "",
		`{"jsonrpc":"2.0","id":7,"method":"tools/list"}`:             "",
		`{`: "",
	} {
		r := httptest.NewRequest("POST", Path, nil)
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(body)), nil }
		w := httptest.NewRecorder()
		if done := FailCall(w, r, err); done != (want != "") || strings.TrimSpace(w.Body.String()) != want {
			t.Errorf("%s: %v %s", body, done, w.Body)
		}
	}
	if FailCall(httptest.NewRecorder(), httptest.NewRequest("GET", Path, nil), err) {
		t.Error("a request without a body is answered as a call")
	}
}
