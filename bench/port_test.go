package bench

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

func TestAPageIsAskedFor(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer key" || r.URL.Path != "/page" {
			w.WriteHeader(http.StatusForbidden)
		}
		io.WriteString(w, "hello")
	}))
	defer s.Close()
	ask := func(p Page) (map[string]float64, error) {
		p.For = 50 * time.Millisecond
		got := map[string]float64{}
		err := p.Ask("bothy", "once", "rate").Once(t.Context(), func(m string, v float64) { got[m] = v })
		return got, err
	}
	got, err := ask(Page{URL: s.URL + "/page", Key: "key", Body: "hello"})
	if err != nil || got["once"] <= 0 || got["rate"] < 16 {
		t.Errorf("%v, %v", got, err)
	}
	for what, p := range map[string]Page{
		"a wrong key": {URL: s.URL + "/page", Body: "hello"},
		"other words": {URL: s.URL + "/page", Key: "key", Body: "goodbye"},
		"nobody":      {URL: "http://127.0.0.1:1/"},
	} {
		if got, err := ask(p); err == nil {
			t.Errorf("%s: %v", what, got)
		}
	}
}
