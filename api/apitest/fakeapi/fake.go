package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"

	"github.com/bothy-dev/bothy/api"
	"github.com/bothy-dev/bothy/api/apitest"
)

// setup is the first line of a test.
type setup struct {
	Key string `json:"key"` // opens everything
	// Certificate is a file with a certificate and its key: the server then speaks TLS.
	Certificate string `json:"certificate"`
	// PageSize bounds each page of sandboxes.
	PageSize int `json:"page_size"`
}

// A report is a line to the test: the server's URL, or what happened to the request ID.
type report struct {
	URL string `json:"url,omitempty"`

	ID      int64             `json:"id,omitempty"`
	Method  string            `json:"method,omitempty"` // of a new request
	Target  string            `json:"target,omitempty"`
	Headers map[string]string `json:"headers,omitempty"` // by names in lower case
	Body    []byte            `json:"body,omitempty"`
	// Op and Body are a frame of the client, after the order to upgrade.
	Op *byte `json:"op,omitempty"`
	// Gone says that the client hung up. Of a new request: in the middle of its body.
	Gone bool `json:"gone,omitempty"`
}

// An order is a line from the test: what to do about the request ID.
type order struct {
	ID int64  `json:"id"`
	Do string `json:"do"`
	// Status and Headers are those of "head" and "upgrade".
	Status  int               `json:"status"`
	Headers map[string]string `json:"headers"`
	// Data is sent by "write" unchanged.
	Data []byte `json:"data"`
}

// The verbs of orders.
const (
	doPass    = "pass"    // let the API answer
	doHead    = "head"    // begin an answer
	doWrite   = "write"   // send bytes now
	doEnd     = "end"     // end the answer as it should end
	doDrop    = "drop"    // break the connection
	doUpgrade = "upgrade" // accept a WebSocket: bytes are then written without a form
)

// passHeader marks requests of the test itself, which are passed on and not reported.
const passHeader = "X-Fake-Pass"

// fake is one server.
type fake struct {
	api  http.Handler
	done chan struct{}

	mu     sync.Mutex
	out    *json.Encoder
	last   int64
	orders map[int64]chan order
}

// serve makes a server, and ends it with the control connection.
func serve(control net.Conn) {
	defer control.Close()
	in := json.NewDecoder(control)
	var s setup
	if in.Decode(&s) != nil {
		return
	}
	f := &fake{api: newAPI(s), done: make(chan struct{}), out: json.NewEncoder(control), orders: map[int64]chan order{}}
	listener, err := listen(s.Certificate)
	if err != nil {
		slog.Error("fakeapi cannot listen", "err", err)
		return
	}
	// Without HTTP/2, as in Bothy.
	server := &http.Server{Handler: f, TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){}, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	defer close(f.done)
	scheme := "http"
	if s.Certificate != "" {
		scheme = "https"
	}
	f.report(report{URL: scheme + "://" + listener.Addr().String()})
	for {
		var o order
		if in.Decode(&o) != nil {
			return
		}
		f.give(o)
	}
}

func newAPI(s setup) http.Handler {
	world, tokens := apitest.New(), apitest.NewTokens()
	world.PageSize = s.PageSize
	tokens.Add(s.Key)
	return api.New(api.Services{Services: world.Services(tokens), Recorder: &apitest.Audit{}, Answers: &apitest.Answers{}, Log: slog.New(slog.DiscardHandler)}, api.Config{})
}

func listen(certificate string) (net.Listener, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil || certificate == "" {
		return l, err
	}
	pair, err := tls.LoadX509KeyPair(certificate, certificate)
	if err != nil {
		l.Close()
		return nil, err
	}
	return tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{pair}}), nil
}

func (f *fake) report(r report) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_ = f.out.Encode(r)
}

// give passes an order to the request that it is for, if that still exists.
func (f *fake) give(o order) {
	f.mu.Lock()
	orders := f.orders[o.ID]
	f.mu.Unlock()
	if orders == nil {
		return
	}
	select {
	case orders <- o:
	case <-f.done:
	}
}

// ServeHTTP reports a request to the test and follows its orders.
func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get(passHeader) != "" {
		f.api.ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	request := report{Method: r.Method, Target: r.URL.RequestURI(), Headers: map[string]string{}, Body: body, Gone: err != nil}
	for name, values := range r.Header {
		request.Headers[strings.ToLower(name)] = latin1(strings.Join(values, ", "))
	}
	request.Headers["host"] = r.Host
	x := &exchange{fake: f, w: w, r: r, body: body, orders: make(chan order, 1024)}
	f.mu.Lock()
	f.last++
	x.id, request.ID = f.last, f.last
	f.orders[x.id] = x.orders
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.orders, x.id)
		f.mu.Unlock()
	}()
	f.report(request)
	if request.Gone {
		return
	}
	x.answer()
}

// latin1 converts a header's bytes to text with one character for each.
func latin1(s string) string {
	runes := make([]rune, len(s))
	for i := range len(s) {
		runes[i] = rune(s[i])
	}
	return string(runes)
}

// exchange is a request and the answer to it.
type exchange struct {
	*fake
	id     int64
	w      http.ResponseWriter
	r      *http.Request
	body   []byte
	orders chan order
}

// next waits for an order. It returns none if the client or the test has left.
func (x *exchange) next(gone <-chan struct{}) (o order, ok bool) {
	select {
	case o = <-x.orders:
		return o, true
	case <-gone:
		x.report(report{ID: x.id, Gone: true})
	case <-x.done:
	}
	return o, false
}

func (x *exchange) answer() {
	flush := http.NewResponseController(x.w).Flush
	for {
		o, ok := x.next(x.r.Context().Done())
		if !ok {
			panic(http.ErrAbortHandler)
		}
		switch o.Do {
		case doPass:
			x.r.Body = io.NopCloser(bytes.NewReader(x.body))
			x.api.ServeHTTP(x.w, x.r)
			return
		case doHead:
			for name, value := range o.Headers {
				x.w.Header().Set(name, value)
			}
			x.w.WriteHeader(o.Status)
		case doWrite:
			_, _ = x.w.Write(o.Data)
			_ = flush()
		case doUpgrade:
			x.upgrade(o)
			return
		case doEnd:
			return
		default:
			panic(http.ErrAbortHandler)
		}
	}
}

// upgrade accepts a WebSocket, and follows orders until one side hangs up.
func (x *exchange) upgrade(o order) {
	conn, buffered, err := http.NewResponseController(x.w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	if err := acceptSocket(conn, x.r, o.Headers); err != nil {
		return
	}
	gone, hungUp := context.WithCancel(context.Background())
	go func() {
		defer hungUp()
		for {
			op, data, err := readFrame(buffered)
			if err != nil {
				return
			}
			x.report(report{ID: x.id, Op: &op, Body: data})
		}
	}()
	for {
		o, ok := x.next(gone.Done())
		if !ok || o.Do != doWrite {
			return
		}
		_, _ = conn.Write(o.Data)
	}
}
